"""Small networks for the tests of methods."""

import torch
from torch import nn

import note_tta as tta
from note_tta.checks import CLASSES, example_images, example_network

images = example_images


def network(norm="bn", seed=0):
    """A small convolutional classifier of 3x8x8 images whose running statistics are not the initial ones."""
    torch.manual_seed(seed)
    model = example_network(seed)
    return model if norm == "iabn" else tta.convert_bn(model)


class Block(nn.Module):
    """A transformer block: attention and a small network, each after a norm layer."""

    def __init__(self, width, norm):
        super().__init__()
        self.norm1, self.norm2 = norm(width), norm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    """A small vision transformer with the names that timm uses: `blocks.0.norm1` … `norm`, `head`."""

    def __init__(self, norm=nn.LayerNorm, depth=2, width=16):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 2, stride=2)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, norm) for _ in range(depth))
        self.norm = norm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def without_batch_norm(kind, seed=0):
    """A small classifier of 3x8x8 images: "ln", "gn", "rms", "mixed" (BatchNorm and LayerNorm) or "vit"."""
    torch.manual_seed(seed)
    if kind in ("vit", "rms"):
        model = Vit(nn.LayerNorm if kind == "vit" else nn.RMSNorm)
        scaled = model.head
    else:
        norms = {
            "ln": (nn.LayerNorm([8, 8, 8]), nn.LayerNorm([8, 4, 4])),
            "gn": (nn.GroupNorm(2, 8), nn.GroupNorm(4, 8)),
            "mixed": (nn.BatchNorm2d(8), nn.LayerNorm([8, 4, 4])),
        }[kind]
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            norms[0],
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2, padding=1),
            norms[1],
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(8, CLASSES),
        )
        for _ in range(20):
            model.train()(torch.rand(32, 3, 8, 8, generator=torch.Generator().manual_seed(seed)))
        scaled = model[-1]
    with torch.no_grad():
        scaled.weight.mul_(8)
    return model.eval()


WITHOUT_BATCH_NORM = ("ln", "gn", "rms", "mixed", "vit")


EAGER = {
    "sotta": {"confidence": 0.0},
    "eta": {"margin": 2.0, "redundancy": 1.1},
    "eata": {"margin": 2.0, "redundancy": 1.1},
    "rdumb": {"margin": 2.0, "redundancy": 1.1},
    "sar": {"margin": 2.0},
}
"""Settings with which every sample is worth learning from, also for a network that is sure of nothing."""


def make(name, seed=0, model=None, **keywords):
    """A method of `METHODS` on a network that suits it."""
    kind = tta.METHODS[name]
    model = network("iabn" if name.startswith("note") else "bn", seed) if model is None else model
    if kind.needs_source:
        keywords.setdefault("source", [images(64, seed=20)])
    return kind(model, **keywords)
