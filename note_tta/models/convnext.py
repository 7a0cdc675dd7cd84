"""A small ConvNeXt for 32x32 images: LayerNorm over channels, no BatchNorm."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .normalize import Normalize


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of each place of images `[B, C, H, W]`."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each place by its own channels."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """A 7x7 convolution per channel, LayerNorm, a perceptron over channels; scaled and added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        )
        self.scale = nn.Parameter(torch.full((channels,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        """Map `[B, channels, H, W]` to the same shape."""
        y = self.scale * self.mlp(self.norm(self.conv(x).permute(0, 2, 3, 1)))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """Four stages at 16, 8, 4 and 2 pixels behind a stem of 2x2 patches.

    Args:
        normalize: Input normalisation; its channel count is the network's.
        num_classes: Outputs.
        width: Channels of the first stage, doubled by each further one.
        depths: Blocks in each stage.
    """

    def __init__(
        self,
        normalize: Normalize,
        num_classes: int,
        *,
        width: int = 40,
        depths: tuple[int, int, int, int] = (2, 2, 6, 2),
    ) -> None:
        super().__init__()
        self.normalize = normalize
        channels = [width * 2**stage for stage in range(4)]
        self.stem = nn.Sequential(nn.Conv2d(normalize.mean.numel(), width, 2, stride=2), ChannelNorm(width))
        stages: list[nn.Module] = []
        for stage, depth in enumerate(depths):
            if stage:
                before = channels[stage - 1]
                stages += [ChannelNorm(before), nn.Conv2d(before, channels[stage], 2, stride=2)]
            stages += [ConvNeXtBlock(channels[stage]) for _ in range(depth)]
        self.stages = nn.Sequential(*stages)
        self.norm = nn.LayerNorm(channels[-1], eps=1e-6)
        self.head = nn.Linear(channels[-1], num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Map images `[B, C, H, W]` in [0, 1] to logits `[B, num_classes]`."""
        x = self.stages(self.stem(self.normalize(x)))
        return self.head(self.norm(x.mean((2, 3))))
