"""What several corruptions share: smoothing, sampling between pixels, zooming, blur along a line.

Images are float32 `[N, H, W, C]`. Nothing here calls a threaded library, so results do not depend on the
number of threads or workers.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Images = npt.NDArray[np.float32]
Border = Literal["mirror", "reflect", "zero"]


def gaussian(images: Images, sigma: float) -> Images:
    """Gaussian smoothing of each image, edges continued."""
    return ndimage.gaussian_filter(images, (0, sigma, sigma, 0), mode="nearest", truncate=4)


def _fold(index: npt.NDArray[np.int64], size: int, border: Border) -> npt.NDArray[np.int64]:
    """Bring indices from outside back inside: `mirror` does not repeat the edge pixel, `reflect` does."""
    period = max(1, 2 * size - 2) if border == "mirror" else 2 * size
    folded = np.mod(index, period)
    beyond = folded >= size
    folded[beyond] = (period if border == "mirror" else period - 1) - folded[beyond]
    return folded


def bilinear(images: Images, rows: Images, columns: Images, border: Border) -> Images:
    """Sample each image at its own real-valued positions `rows`, `columns` (`[N, H', W']`)."""
    height, width = images.shape[1:3]
    count = np.arange(len(images))[:, None, None]
    top, left = np.floor(rows).astype(np.int64), np.floor(columns).astype(np.int64)
    down, right = (rows - top)[..., None].astype(np.float32), (columns - left)[..., None].astype(np.float32)

    def at(row: npt.NDArray[np.int64], column: npt.NDArray[np.int64]) -> Images:
        if border == "zero":
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            values = images[count, np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)]
            return np.asarray(values * inside[..., None])
        return np.asarray(images[count, _fold(row, height, border), _fold(column, width, border)])

    upper = at(top, left) * (1 - right) + at(top, left + 1) * right
    lower = at(top + 1, left) * (1 - right) + at(top + 1, left + 1) * right
    return np.asarray(upper * (1 - down) + lower * down)


def central_zoom(images: Images, zoom: float) -> Images:
    """Enlarge the centre of square images by `zoom`, linearly, keeping their size."""
    size = images.shape[1]
    inside = int(np.ceil(size / zoom))
    first = (size - inside) // 2
    enlarged = round(inside * zoom)
    trim = (enlarged - size) // 2
    position = first + (np.arange(size) + trim) * ((inside - 1) / max(1, enlarged - 1))
    low = np.minimum(np.floor(position).astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    share = (position - low).astype(np.float32)
    rows = images[:, low] * (1 - share)[:, None, None] + images[:, high] * share[:, None, None]
    return rows[:, :, low] * (1 - share)[:, None] + rows[:, :, high] * share[:, None]


def line_blur(images: Images, radius: int, sigma: float, angles: npt.NDArray[np.float64]) -> Images:
    """Motion blur: a one-sided Gaussian of 2·radius+1 taps along a line at each image's angle in degrees."""
    height, width = images.shape[1:3]
    taps = 2 * radius + 1
    weights = np.exp(-0.5 * (np.arange(taps) / sigma) ** 2)
    weights = (weights / weights.sum()).astype(np.float32)
    radians = np.deg2rad(angles)
    down = np.ceil(np.outer(np.sin(radians), np.arange(taps)) - 0.5).astype(np.int64)
    right = np.ceil(np.outer(np.cos(radians), np.arange(taps)) - 0.5).astype(np.int64)
    margin = taps
    padded = np.pad(images, ((0, 0), (margin, margin), (margin, margin), (0, 0)), mode="edge")
    blurred = np.zeros_like(images)
    for image in range(len(images)):
        for tap in range(taps):
            row, column = margin + down[image, tap], margin + right[image, tap]
            blurred[image] += weights[tap] * padded[image, row : row + height, column : column + width]
    return blurred
