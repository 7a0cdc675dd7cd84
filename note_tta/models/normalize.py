"""Input normalisation as the first layer, so that everything outside of a model uses [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

IMAGENET_INPUT = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation per channel that public ImageNet weights expect; the default for colour images."""

AUTHORS_INPUT = {
    10: ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)),
    100: ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}
"""Mean and standard deviation per channel of the authors' CIFAR networks, by number of classes."""


class Normalize(nn.Module):
    """Subtract each channel's mean and divide by its standard deviation.

    Both are buffers, so they follow the model's device and dtype. They are not in the state dict, so that a
    model has exactly the keys of public weight files; a checkpoint's card holds them instead.

    Args:
        mean: One value per channel.
        std: One positive value per channel.

    Shape:
        `[B, C, ...]` in and out.

    Example:
        >>> Normalize([0.5], [0.25])(torch.tensor([[[0.0, 0.5, 1.0]]]))
        tensor([[[-2.,  0.,  2.]]])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not mean:
            raise ValueError(f"mean and std need one value per channel each, got {len(mean)} and {len(std)}")
        if not all(value > 0 for value in std):
            raise ValueError(f"std must be positive, got {tuple(std)}")
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32), persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32), persistent=False)
        self.is_identity = not any(mean) and all(value == 1 for value in std)

    def forward(self, x: Tensor) -> Tensor:
        """Return `(x - mean) / std`, or `x` itself if that changes nothing."""
        if self.is_identity:
            return x
        shape = (-1,) + (1,) * (x.dim() - 2)
        return (x - self.mean.view(shape)) / self.std.view(shape)

    def extra_repr(self) -> str:
        """Show the values in `repr(model)`."""
        return f"channels={self.mean.numel()}, identity={self.is_identity}"
