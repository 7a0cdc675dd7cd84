"""Blur: Gaussian, defocus, glass, motion and zoom."""

from __future__ import annotations

import numpy as np

from .sampling import Images, central_zoom, gaussian, line_blur

__all__ = ["defocus_blur", "gaussian_blur", "glass_blur", "motion_blur", "zoom_blur"]


def gaussian_blur(images: Images, _generator: np.random.Generator, sigma: float) -> Images:
    """Smooth by a Gaussian."""
    return gaussian(images, sigma)


def _disk(radius: float, sigma: float) -> Images:
    """The kernel of a defocused lens: a disk with its edge smoothed, without empty rows around it."""
    taps = np.arange(-1, 2) if radius <= 8 else np.arange(-2, 3)
    reach = int(radius) + len(taps) // 2
    rows, columns = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    disk = (rows**2 + columns**2 <= radius**2).astype(np.float64)
    weights = np.exp(-0.5 * (taps / sigma) ** 2)
    weights /= weights.sum()
    padded = np.pad(disk / disk.sum(), len(taps) // 2)
    size = 2 * reach + 1
    across = sum(weight * padded[:, i : i + size] for i, weight in enumerate(weights))
    kernel = sum(weight * across[i : i + size] for i, weight in enumerate(weights))
    used = np.flatnonzero(kernel.max(axis=1) > 1e-8)
    return kernel[used[0] : used[-1] + 1, used[0] : used[-1] + 1].astype(np.float32)


def defocus_blur(images: Images, _generator: np.random.Generator, radius: float, sigma: float) -> Images:
    """Spread every pixel over a disk."""
    kernel = _disk(radius, sigma)
    reach = len(kernel) // 2
    height, width = images.shape[1:3]
    padded = np.pad(images, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="reflect")
    blurred = np.zeros_like(images)
    for (row, column), weight in np.ndenumerate(kernel):
        if weight > 0:
            blurred += weight * padded[:, row : row + height, column : column + width]
    return blurred


def glass_blur(
    images: Images,
    generator: np.random.Generator,
    sigma: float,
    shift: int,
    rounds: int,
    swap: float | None = None,
) -> Images:
    """Smooth, overwrite each pixel with a near one, row by row from the far corner, smooth again.

    With `swap` the two pixels change places instead, with that probability.
    """
    count, height, width, channels = images.shape
    smoothed = np.floor(np.clip(gaussian(images, sigma), 0, 1) * 255 + 1e-3) / np.float32(255)
    # The shuffle moves indices, not colours: pixel-major, so that one pixel of all images is one row.
    origin = np.repeat(np.arange(height * width, dtype=np.int32)[:, None], count, axis=1)
    everyone = np.arange(count)
    for _ in range(rounds):
        for row in range(height - shift, shift, -1):
            down = generator.integers(-shift, shift, (width, count))
            right = generator.integers(-shift, shift, (width, count))
            swapped = None if swap is None else generator.random((width, count)) < swap
            for column in range(width - shift, shift, -1):
                here = row * width + column
                there = here + down[column - 1] * width + right[column - 1]
                if swapped is None:
                    origin[here] = origin[there, everyone]
                else:
                    chosen = np.flatnonzero(swapped[column - 1])
                    mine = origin[here, chosen]
                    origin[here, chosen] = origin[there[chosen], chosen]
                    origin[there[chosen], chosen] = mine
    pixels = smoothed.reshape(count, height * width, channels)
    shuffled = pixels[everyone[:, None], origin.T].reshape(images.shape)
    return gaussian(shuffled.astype(np.float32), sigma)


def motion_blur(images: Images, generator: np.random.Generator, radius: int, sigma: float) -> Images:
    """Blur along a line at an angle of up to 45 degrees either way."""
    return line_blur(images, radius, sigma, generator.uniform(-45, 45, len(images)))


def zoom_blur(images: Images, _generator: np.random.Generator, stop: float, step: float) -> Images:
    """The mean of the image and its central zooms, from 1 up in steps.

    The factors are those of `zoom_factors`: the benchmarks' makers wrote floating-point ranges, whose
    rounding decides how many factors there are and how far the last one enlarges.
    """
    factors = zoom_factors(stop, step)
    total: Images = images.copy()
    for factor in factors:
        total += central_zoom(images, factor)
    total /= np.float32(len(factors) + 1)
    return total


def zoom_factors(stop: float, step: float) -> list[float]:
    """The factors of `zoom_blur`: a floating-point range from 1, whose rounding may reach `stop` itself.

    >>> zoom_factors(1.26, 0.01)[-1], len(zoom_factors(1.11, 0.01))
    (1.2500000000000002, 12)
    """
    return np.arange(1, stop, step).tolist()
