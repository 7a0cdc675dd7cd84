"""Noise: Gaussian, shot (Poisson), impulse (salt and pepper) and speckle."""

from __future__ import annotations

import numpy as np

from .sampling import Images

__all__ = ["gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"]


def gaussian_noise(images: Images, generator: np.random.Generator, std: float) -> Images:
    """Add normal noise to every value."""
    return images + np.float32(std) * generator.standard_normal(images.shape, dtype=np.float32)


def shot_noise(images: Images, generator: np.random.Generator, photons: float) -> Images:
    """Count photons: a value of 1 stands for `photons` of them on average."""
    return (generator.poisson(images * np.float32(photons)) / photons).astype(np.float32)


def impulse_noise(images: Images, generator: np.random.Generator, share: float) -> Images:
    """Set a share of all values to 0 or 1, half each."""
    draw = generator.random(images.shape, dtype=np.float32)
    return np.where(draw < share / 2, np.float32(1), np.where(draw < share, np.float32(0), images))


def speckle_noise(images: Images, generator: np.random.Generator, std: float) -> Images:
    """Add normal noise in proportion to every value."""
    noise = generator.standard_normal(images.shape, dtype=np.float32)
    return images * (1 + np.float32(std) * noise)
