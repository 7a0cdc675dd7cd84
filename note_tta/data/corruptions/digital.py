"""Light and files: brightness, night, contrast, saturation, elastic transform, pixelation, JPEG."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy import ndimage

from .sampling import Images, bilinear

__all__ = ["brightness", "contrast", "elastic_transform", "jpeg_compression", "night", "pixelate", "saturate"]


def brightness(images: Images, _generator: np.random.Generator, amount: float) -> Images:
    """Add to the value (the largest channel) of every pixel; hue and saturation stay."""
    value = images.max(axis=3, keepdims=True)
    brighter = np.clip(value + np.float32(amount), 0, 1)
    ratio = brighter / np.where(value > 0, value, np.float32(1))
    return np.where(value > 0, images * ratio, brighter)


def night(images: Images, generator: np.random.Generator, exposure: float, photons: float) -> Images:
    """Let less light in, by the factor `exposure`, and count what is left of it, photon by photon.

    Values are taken to light by a gamma of 2.2 and back; of white light at full exposure `photons` arrive.
    """
    gamma = 2.2
    arriving = photons * exposure * np.power(images, gamma, dtype=np.float64)
    return np.power(generator.poisson(arriving) / photons, 1 / gamma).astype(np.float32)


def saturate(images: Images, _generator: np.random.Generator, factor: float, shift: float) -> Images:
    """Multiply the saturation of every pixel and add to it; hue and value stay.

    A pixel without colour has the hue of red, as in the usual conversion to HSV.
    """
    if images.shape[3] == 1:
        raise ValueError("saturate needs images of three channels, got grey ones")
    value = images.max(axis=3, keepdims=True)
    spread = value - images.min(axis=3, keepdims=True)
    bright = np.where(value > 0, value, np.float32(1))
    saturation = np.clip(spread / bright * np.float32(factor) + np.float32(shift), 0, 1)
    red = np.array([0, 1, 1], dtype=np.float32)
    distance = np.where(spread > 0, (value - images) / np.where(spread > 0, spread, np.float32(1)), red)
    return value * (1 - saturation * distance)


def contrast(images: Images, _generator: np.random.Generator, factor: float) -> Images:
    """Shrink every channel towards its mean over the image."""
    means = images.mean(axis=(1, 2), keepdims=True, dtype=np.float64).astype(np.float32)
    return (images - means) * np.float32(factor) + means


def elastic_transform(
    images: Images, generator: np.random.Generator, displacement: float, smoothing: float, jitter: float
) -> Images:
    """Shake the image by a random affine map, then stretch it by a smooth random field; all in pixels."""
    count, height, width, _ = images.shape
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    third = min(height, width) // 3
    corners = np.array([[third, third], [third, -third], [-third, -third]], dtype=np.float64)
    anchors = corners + np.array([height // 2, width // 2])
    moved = anchors + generator.uniform(-jitter, jitter, (count, 3, 2))
    back = _affine(moved, anchors)
    grid = np.stack([rows, columns, np.ones_like(rows)]).astype(np.float64)
    source = sum(back[:, :, axis, None, None] * grid[axis] for axis in range(3)).astype(np.float32)
    shaken = bilinear(images, source[:, 0], source[:, 1], "mirror")
    field = generator.uniform(-1, 1, (2, count, height, width)).astype(np.float32)
    if displacement == 0:
        return shaken
    field = ndimage.gaussian_filter(field, (0, 0, smoothing, smoothing), mode="reflect", truncate=3)
    field *= np.float32(displacement)
    return bilinear(shaken, rows + field[0], columns + field[1], "reflect")


def _affine(origin: npt.NDArray[np.float64], target: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The maps `[N, 2, 3]` that take the three points `origin[n]` to `target`, by Cramer's rule."""
    first, second, third = origin[:, 0], origin[:, 1], origin[:, 2]
    one, two = second - first, third - first
    scale = one[:, 0] * two[:, 1] - one[:, 1] * two[:, 0]
    goal_one, goal_two = target[1] - target[0], target[2] - target[0]
    result = np.empty((len(origin), 2, 3))
    for axis in range(2):
        result[:, axis, 0] = (goal_one[axis] * two[:, 1] - goal_two[axis] * one[:, 1]) / scale
        result[:, axis, 1] = (goal_two[axis] * one[:, 0] - goal_one[axis] * two[:, 0]) / scale
        result[:, axis, 2] = target[0, axis] - (result[:, axis, :2] * first).sum(axis=1)
    return result


def pixelate(images: Images, _generator: np.random.Generator, factor: float) -> Images:
    """Average into fewer, larger pixels and go back to the old size."""
    _, height, width, _ = images.shape
    small = (max(1, int(width * factor)), max(1, int(height * factor)))
    box = Image.Resampling.BOX
    return _by_picture(images, lambda picture: picture.resize(small, box).resize((width, height), box))


def jpeg_compression(images: Images, _generator: np.random.Generator, quality: int) -> Images:
    """Save and load as JPEG."""

    def through(picture: Image.Image) -> Image.Image:
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=int(quality))
        return Image.open(buffer)

    return _by_picture(images, through)


def _by_picture(images: Images, change: Callable[[Image.Image], Image.Image]) -> Images:
    changed = np.empty_like(images)
    pixels = np.rint(images * 255).astype(np.uint8)
    for i, image in enumerate(pixels):
        picture = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
        result = np.asarray(change(picture), dtype=np.float32) / 255
        changed[i] = result.reshape(image.shape)
    return changed
