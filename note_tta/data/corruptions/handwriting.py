"""The corruptions that MNIST-C has on its own: warps, stripes, lines and edges; grey images."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from .sampling import Images, bilinear

__all__ = ["canny_edges", "dotted_line", "rotate", "scale", "shear", "stripe", "translate", "zigzag"]


def _signs(generator: np.random.Generator, *shape: int) -> npt.NDArray[np.float64]:
    return np.asarray(2.0 * generator.integers(0, 2, shape) - 1)


def _warp(images: Images, matrices: npt.NDArray[np.float64], shift: npt.NDArray[np.float64]) -> Images:
    """Sample at `matrix @ (row, column) - shift` about the centre; black outside."""
    height, width = images.shape[1:3]
    centre = np.array([(height - 1) / 2, (width - 1) / 2])
    rows, columns = np.mgrid[:height, :width].astype(np.float64)
    rows, columns = rows - centre[0], columns - centre[1]
    source = [
        matrices[:, axis, 0, None, None] * rows
        + matrices[:, axis, 1, None, None] * columns
        + (centre[axis] - shift[:, axis])[:, None, None]
        for axis in range(2)
    ]
    return bilinear(images, source[0].astype(np.float32), source[1].astype(np.float32), "zero")


def shear(images: Images, generator: np.random.Generator, angle: float) -> Images:
    """Lean the image to either side by `angle` radians."""
    turn = angle * _signs(generator, len(images))
    matrices = np.tile(np.eye(2), (len(images), 1, 1))
    matrices[:, 0, 0], matrices[:, 1, 0] = np.cos(turn), -np.sin(turn)
    return _warp(images, matrices, np.zeros((len(images), 2)))


def scale(images: Images, _generator: np.random.Generator, factor: float) -> Images:
    """Shrink the image to `factor` of its size."""
    matrices = np.tile(np.eye(2) / factor, (len(images), 1, 1))
    return _warp(images, matrices, np.zeros((len(images), 2)))


def rotate(images: Images, generator: np.random.Generator, angle: float) -> Images:
    """Turn the image either way by `angle` radians."""
    turn = angle * _signs(generator, len(images))
    cosine, sine = np.cos(turn), np.sin(turn)
    matrices = np.stack([np.stack([cosine, sine], 1), np.stack([-sine, cosine], 1)], 1)
    return _warp(images, matrices, np.zeros((len(images), 2)))


def translate(images: Images, generator: np.random.Generator, pixels: float) -> Images:
    """Move the image by `pixels` on both axes, either way on each."""
    matrices = np.tile(np.eye(2), (len(images), 1, 1))
    return _warp(images, matrices, pixels * _signs(generator, len(images), 2))


def stripe(images: Images, _generator: np.random.Generator, left: int, right: int) -> Images:
    """Invert the columns before `left` and from `right` on."""
    striped: Images = images.copy()
    striped[:, :, :left] = 1 - images[:, :, :left]
    striped[:, :, right:] = 1 - images[:, :, right:]
    return striped


def _draw(images: Images, heights: npt.NDArray[np.float64]) -> Images:
    """Add a line that passes each column at the given row (NaN: no line there)."""
    rows = np.arange(images.shape[1])[:, None]
    distance = np.abs(rows - heights[:, None, :])
    with np.errstate(divide="ignore", invalid="ignore"):
        ink = 1 + np.log(np.maximum(1 - distance / 2.3, 0))
    return np.clip(images + np.nan_to_num(np.clip(ink, 0, 1))[..., None], 0, 1).astype(np.float32)


def dotted_line(images: Images, generator: np.random.Generator) -> Images:
    """Draw a dotted line across, from a random row at the left to a random row at the right."""
    count, height, width, _ = images.shape
    ends = generator.integers(0, height, (count, 2)).astype(np.float64)
    columns = np.arange(width)
    heights = ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * columns / (width - 1)
    heights[:, columns // 2 % 2 == 1] = np.nan
    return _draw(images, heights)


def zigzag(images: Images, generator: np.random.Generator, length: int, height: int) -> Images:
    """Draw a zigzag of teeth `length` long and `height` high, from the third column to the last but two."""
    count, rows, width, _ = images.shape
    first, last = 2, width - 3
    start = generator.integers(rows // 4, rows - rows // 4, (count,))
    rise = generator.integers(-5, 5, (count,))
    columns = np.arange(width, dtype=np.float64)
    heights = np.full((count, width), np.nan)
    inside = (columns >= first) & (columns <= last)
    for image in range(count):
        tilt = np.arctan2(rise[image], last - first)
        whole = (last - first) / np.cos(tilt)
        along = np.concatenate([[0.0], np.arange(length, whole, 2 * length), [whole]])
        across = np.zeros_like(along)
        across[1:-1] = height * (1 - 2 * (np.arange(len(along) - 2) % 2))
        x = first + along * np.cos(tilt) - across * np.sin(tilt)
        y = start[image] + along * np.sin(tilt) + across * np.cos(tilt)
        heights[image, inside] = np.interp(columns[inside], x, y)
    return _draw(images, heights)


def canny_edges(
    images: Images, _generator: np.random.Generator, sigma: float, low: float, high: float
) -> Images:
    """Keep Canny's edges only: thinned gradient maxima above `low` that touch one above `high`."""
    grey = images[..., 0].astype(np.float64)
    spread = (0, sigma, sigma)
    weight = ndimage.gaussian_filter(np.ones_like(grey[:1]), spread, mode="constant") + np.finfo(float).eps
    smoothed = ndimage.gaussian_filter(grey, spread, mode="constant") / weight
    down, right = _sobel(smoothed, 1), _sobel(smoothed, 2)
    slope = np.hypot(down, right)
    thin = _local_maxima(slope, down, right)
    weak = thin & (slope >= low)
    within_image = np.zeros((3, 3, 3), bool)
    within_image[1] = True
    parts, number = ndimage.label(weak, within_image)
    strong = np.zeros(number + 1, bool)
    strong[parts[weak & (slope >= high)]] = True
    strong[0] = False
    return np.asarray(strong[parts][..., None], dtype=np.float32)


def _sobel(stack: npt.NDArray[np.float64], axis: int) -> npt.NDArray[np.float64]:
    """Sobel's derivative along one axis of each image; scipy's own would smooth across the images too."""
    slope = ndimage.correlate1d(stack, [-1, 0, 1], axis=axis)
    return np.asarray(ndimage.correlate1d(slope, [1, 2, 1], axis=3 - axis))


def _local_maxima(
    slope: npt.NDArray[np.float64], down: npt.NDArray[np.float64], right: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Where the slope is at least that of both neighbours along the gradient (interpolated between two)."""
    steep, flat = np.abs(down), np.abs(right)
    upright = steep >= flat
    larger = np.where(upright, steep, flat)
    share = np.where(upright, flat, steep) / np.where(larger > 0, larger, 1)
    row_step, column_step = np.sign(down).astype(np.int64), np.sign(right).astype(np.int64)
    count, height, width = slope.shape
    image, row, column = np.ogrid[:count, :height, :width]
    padded = np.pad(slope, ((0, 0), (1, 1), (1, 1)))

    def beside(sign: int) -> npt.NDArray[np.float64]:
        rows, columns = row + 1 + sign * row_step, column + 1 + sign * column_step
        straight = np.where(upright, padded[image, rows, column + 1], padded[image, row + 1, columns])
        return np.asarray((1 - share) * straight + share * padded[image, rows, columns])

    inside = np.zeros_like(slope, bool)
    inside[:, 1:-1, 1:-1] = True
    return np.asarray(inside & (slope > 0) & (beside(1) <= slope) & (beside(-1) <= slope))
