"""Weather: snow, frost and fog."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .sampling import Images, central_zoom, line_blur

__all__ = ["fog", "frost", "snow"]

_GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)
SMALL = 64  # images up to this side take frost textures shrunk to a fifth, as CIFAR-C does


def snow(
    images: Images,
    generator: np.random.Generator,
    mean: float,
    std: float,
    zoom: float,
    threshold: float,
    radius: int,
    sigma: float,
    weight: float,
) -> Images:
    """Whiten the image and add falling flakes."""
    count, height, width, channels = images.shape
    flakes = mean + std * generator.standard_normal((count, height, width, 1), dtype=np.float32)
    flakes = central_zoom(flakes.astype(np.float32), zoom)
    flakes[flakes < threshold] = 0
    flakes = line_blur(np.clip(flakes, 0, 1), radius, sigma, generator.uniform(-135, -45, (count,)))
    grey = images if channels == 1 else (images * _GREY).sum(axis=3, keepdims=True)
    whitened = weight * images + (1 - weight) * np.maximum(images, grey * 1.5 + 0.5)
    return (whitened + flakes + flakes[:, ::-1, ::-1]).astype(np.float32)


def frost(
    images: Images,
    generator: np.random.Generator,
    image_weight: float,
    frost_weight: float,
    textures: Sequence[npt.NDArray[np.uint8]],
) -> Images:
    """Lay a random crop of an ice photograph over the image."""
    count, height, width, channels = images.shape
    shrunk = [texture[2::5, 2::5] if max(height, width) <= SMALL else texture for texture in textures]
    chosen = generator.integers(len(shrunk), size=(count,))
    frosted: Images = images * np.float32(image_weight)
    for image in range(count):
        texture = _at_least(shrunk[chosen[image]], height, width)
        row = generator.integers(texture.shape[0] - height + 1)
        column = generator.integers(texture.shape[1] - width + 1)
        crop = texture[row : row + height, column : column + width].astype(np.float32) / 255
        if channels == 1:
            crop = (crop * _GREY).sum(axis=2, keepdims=True)
        frosted[image] += np.float32(frost_weight) * crop
    return frosted


def _at_least(texture: npt.NDArray[np.uint8], height: int, width: int) -> npt.NDArray[np.uint8]:
    """The texture, mirrored outwards where it is smaller than the image."""
    missing = [max(0, height - texture.shape[0]), max(0, width - texture.shape[1])]
    if any(missing):
        texture = np.pad(texture, ((0, missing[0]), (0, missing[1]), (0, 0)), mode="symmetric")
    return texture


def fog(
    images: Images, generator: np.random.Generator, strength: float, decay: float, size: int = 0
) -> Images:
    """Add a plasma cloud and keep the image's brightest value; the cloud is the corner of a map of `size`."""
    count, height, width, _ = images.shape
    size = size or 1 << (max(height, width) - 1).bit_length()
    brightest = images.max(axis=(1, 2, 3), keepdims=True)
    cloud = plasma(count, size, decay, generator)[:, :height, :width, None]
    foggy: Images = (images + strength * cloud) * brightest / (brightest + strength)
    return foggy.astype(np.float32)


def plasma(count: int, size: int, decay: float, generator: np.random.Generator) -> Images:
    """Diamond-square clouds `[count, size, size]` in [0, 1] that wrap around at the edges.

    Each new point is the mean of its four neighbours plus a random amount that starts at ±100·100 and
    shrinks by `decay` squared at every halving. `size` must be a power of two.
    """
    if size < 2 or size & (size - 1):
        raise ValueError(f"size must be a power of two of at least 2, got {size}")
    cloud = np.zeros((count, size, size), np.float32)
    step, wobble = size, 100.0

    def around(total: Images) -> Images:
        noise = generator.random(total.shape, dtype=np.float32)
        return total / 4 + np.float32(wobble * wobble) * (2 * noise - 1)

    while step >= 2:
        half = step // 2
        corners = cloud[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=1)
        cloud[:, half::step, half::step] = around(pairs + np.roll(pairs, -1, axis=2))
        centres, corners = cloud[:, half::step, half::step], cloud[:, ::step, ::step]
        beside = centres + np.roll(centres, 1, axis=1) + corners + np.roll(corners, -1, axis=2)
        above = centres + np.roll(centres, 1, axis=2) + corners + np.roll(corners, -1, axis=1)
        cloud[:, ::step, half::step] = around(beside)
        cloud[:, half::step, ::step] = around(above)
        step, wobble = half, wobble / decay
    cloud -= cloud.min(axis=(1, 2), keepdims=True)
    cloud /= np.maximum(cloud.max(axis=(1, 2), keepdims=True), np.float32(1e-12))
    return cloud
