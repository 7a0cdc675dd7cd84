"""Small networks for the tests of methods."""

import torch
from torch import nn

import note_tta as tta

CLASSES = 5


def network(norm="bn", seed=0):
    """A small convolutional classifier of 3x8x8 images whose running statistics are not the initial ones."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(8, CLASSES),
    )
    for _ in range(20):
        model.train()(torch.rand(32, 3, 8, 8, generator=generator))
    with torch.no_grad():
        model[-1].weight.mul_(8)
    return (tta.convert_iabn(model) if norm == "iabn" else model).eval()


def make(name, seed=0, model=None, **keywords):
    """A method of `METHODS` on a network that suits it."""
    kind = tta.METHODS[name]
    model = network("iabn" if name.startswith("note") else "bn", seed) if model is None else model
    if kind.needs_source:
        keywords.setdefault("source", [images(64, seed=20)])
    return kind(model, **keywords)


def images(count, seed=1):
    """Images that drift: each has a gain and an offset of its own."""
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 3, 8, 8, generator=g)
    gain = torch.rand(count, 1, 1, 1, generator=g) + 0.5
    return x * gain + torch.rand(count, 3, 1, 1, generator=g) - 0.5
