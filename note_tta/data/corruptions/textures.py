"""Ice for the frost corruption: the published photographs where they are, a procedural texture otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from ..pictures import read_picture_file

Texture = npt.NDArray[np.uint8]
FROST_FOLDER = "frost"
USED = 5  # the benchmark's makers draw from the first five of their six files
SIDE = 512


def frost_textures(root: Path) -> tuple[Sequence[Texture], str]:
    """Five ice textures, uint8 `[H, W, 3]`, and where they come from: "published" or "procedural"."""
    found: list[Texture] = []
    for number in range(1, USED + 1):
        files = [root / FROST_FOLDER / f"frost{number}{suffix}" for suffix in (".png", ".jpg")]
        present = [file for file in files if file.is_file()]
        found += [np.asarray(read_picture_file(file)) for file in present[:1]]
    if len(found) == USED:
        return found, "published"
    return [ice_texture(number) for number in range(USED)], "procedural"


@cache
def ice_texture(seed: int, side: int = SIDE) -> Texture:
    """A procedural sheet of ice: branching ridges of several sizes on a pale, cold ground.

    Ridges are the zero crossings of warped smooth noise, sharpened; each octave is finer and fainter than
    the one before.

    >>> ice_texture(0, side=64).shape
    (64, 64, 3)
    """
    generator = np.random.default_rng([seed, 0x1CE])
    rows, columns = np.mgrid[:side, :side].astype(np.float64)
    warp = [_smooth_noise(generator, side, side / 24) * side / 40 for _ in range(2)]
    ridges = np.zeros((side, side))
    for octave in range(5):
        noise = _smooth_noise(generator, side, side / 24 / 1.7**octave)
        bent = ndimage.map_coordinates(noise, [rows + warp[0], columns + warp[1]], order=1, mode="wrap")
        ridges += 0.8**octave * np.exp(-5 * np.abs(bent))
    ridges /= ridges.max()
    ground = 0.42 + 0.1 * _smooth_noise(generator, side, side / 6)
    sparkle = np.clip(_smooth_noise(generator, side, 1.0) - 1.5, 0, 1) * 0.3
    ice = np.clip(ground + 0.65 * ridges**1.5 + sparkle, 0, 1)
    tint = np.array([0.86, 0.95, 1.0])
    texture: Texture = np.rint(np.clip(ice[..., None] * tint, 0, 1) * 255).astype(np.uint8)
    texture.setflags(write=False)  # it is made once and shared
    return texture


def _smooth_noise(generator: np.random.Generator, side: int, sigma: float) -> npt.NDArray[np.float64]:
    """Noise smoothed by `sigma` (wrapping around, in the frequency domain), of mean 0 and deviation 1."""
    frequency = np.fft.fftfreq(side)
    decay = np.exp(-2 * (np.pi * sigma * frequency) ** 2)
    noise = np.fft.ifft2(np.fft.fft2(generator.standard_normal((side, side))) * np.outer(decay, decay)).real
    return np.asarray((noise - noise.mean()) / noise.std())
