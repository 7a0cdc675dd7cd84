"""Random views of images for CoTTA, RoTTA, PeTTA and ROID: colour, geometry, blur and noise on tensors."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ..nn.functional import widened

_GREY = (0.299, 0.587, 0.114)
_BLUR = 5


def random_view(x: Tensor, generator: torch.Generator, *, mirrored: bool = False) -> Tensor:
    """Return an augmented copy of a batch of images, with the same transformation for all of them.

    The steps are: clamp to [0, 1]; brightness, contrast, saturation, hue and gamma in random order (grey images skip
    saturation and hue); rotation, shift and zoom with edges extended; a slight blur; a flip; noise; clamp.

    Args:
        x: Images `[B, C, H, W]`.
        generator: Source of randomness, on the CPU.
        mirrored: Make ROID's views: the image is mirrored beyond its edges, and there is no blur and no noise.
            The views of CoTTA, RoTTA and PeTTA extend the edges instead.

    Returns:
        Images of the same shape, in [0, 1].
    """

    def between(low: float, high: float) -> float:
        return low + (high - low) * torch.rand((), generator=generator, dtype=torch.float64).item()

    dtype = x.dtype
    x = widened(x).clamp(0, 1)
    jitter: list[Callable[[Tensor], Tensor]] = [
        lambda x: (x * between(0.6, 1.4)).clamp(0, 1),
        lambda x: _blend(x, _grey(x).mean(dim=(1, 2, 3), keepdim=True), between(0.7, 1.3)),
        lambda x: x.clamp_min(1e-8) ** between(0.7, 1.3),
    ]
    if x.shape[1] == 3:
        jitter.append(lambda x: _blend(x, _grey(x), between(0.5, 1.5)))
        jitter.append(lambda x: _turn_hue(x, between(-0.06, 0.06)))
    for i in torch.randperm(len(jitter), generator=generator).tolist():
        x = jitter[i](x)
    x = _move(
        x,
        angle=math.radians(between(-15, 15)),
        shift=(between(-1 / 16, 1 / 16), between(-1 / 16, 1 / 16)),
        scale=between(0.9, 1.1),
        margin=0 if mirrored else _BLUR // 2,
        mirrored=mirrored,
    )
    x = x if mirrored else _blur(x, between(0.001, 0.5))
    if between(0, 1) < 0.5:
        x = x.flip(-1)
    if not mirrored:
        x = x + 0.005 * torch.randn(x.shape, generator=generator, dtype=torch.float32).to(x)
    return x.clamp(0, 1).to(dtype)


def _grey(x: Tensor) -> Tensor:
    if x.shape[1] != 3:
        return x.mean(dim=1, keepdim=True)
    return (x * x.new_tensor(_GREY).view(1, 3, 1, 1)).sum(dim=1, keepdim=True)


def _blend(x: Tensor, other: Tensor, factor: float) -> Tensor:
    return (factor * x + (1 - factor) * other).clamp(0, 1)


def _turn_hue(x: Tensor, turn: float) -> Tensor:
    """Turn the hue by a fraction of the full circle; saturation and value do not change."""
    value, low = x.amax(dim=1), x.amin(dim=1)
    chroma = value - low
    red, green, blue = x.unbind(dim=1)
    safe = chroma.clamp_min(1e-8)
    hue = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    hue = torch.where(chroma > 0, hue, torch.zeros_like(hue)) + 6 * turn
    channels = [
        value - chroma * torch.clamp(torch.minimum(k := (n + hue) % 6, 4 - k), 0, 1) for n in (5.0, 3.0, 1.0)
    ]
    return torch.stack(channels, dim=1)


def _move(
    x: Tensor, *, angle: float, shift: tuple[float, float], scale: float, margin: int, mirrored: bool
) -> Tensor:
    """Rotate, shift and zoom about the centre; the result has `margin` more pixels on each side.

    Beyond the edges the image is extended or mirrored. The shift is a fraction of the image after padding to twice
    its side, as in the authors' code.
    """
    height, width = x.shape[-2:]
    rows = torch.arange(-margin, height + margin, dtype=x.dtype, device=x.device) - (height - 1) / 2
    columns = torch.arange(-margin, width + margin, dtype=x.dtype, device=x.device) - (width - 1) / 2
    down = (rows - 2 * height * shift[0]).view(-1, 1) / scale
    across = (columns - 2 * width * shift[1]).view(1, -1) / scale
    cos, sin = math.cos(angle), math.sin(angle)
    if mirrored:
        x = F.pad(x, (width // 2, width // 2, height // 2, height // 2), mode="reflect")
        height, width = x.shape[-2:]
    grid = torch.stack(
        torch.broadcast_tensors(
            (cos * across + sin * down) * 2 / width, (cos * down - sin * across) * 2 / height
        ),
        dim=-1,
    )
    grid = grid.expand(len(x), *grid.shape)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _blur(x: Tensor, sigma: float) -> Tensor:
    """Apply a Gaussian blur, which removes a margin of half the kernel's width."""
    taps = torch.arange(_BLUR, dtype=x.dtype, device=x.device) - _BLUR // 2
    kernel = torch.softmax(-(taps**2) / (2 * sigma**2), dim=0)
    channels = x.shape[1]
    x = F.conv2d(x, kernel.view(1, 1, -1, 1).expand(channels, 1, -1, 1), groups=channels)
    return F.conv2d(x, kernel.view(1, 1, 1, -1).expand(channels, 1, 1, -1), groups=channels)
