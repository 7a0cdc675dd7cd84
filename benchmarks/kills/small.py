"""A network and streams small enough to be killed often."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import note_tta as tta


def network() -> nn.Module:
    """A classifier of small grey images."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)]
    return tta.convert_iabn(nn.Sequential(*layers).eval())


def method(model: nn.Module) -> tta.NOTE:
    """A NOTE that learns often."""
    return tta.NOTE(model, tta.PBRS(8), interval=8)


def images(count: int, seed: int) -> Tensor:
    """Images for it."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 1, 8, 8), generator=generator).float() / 255
