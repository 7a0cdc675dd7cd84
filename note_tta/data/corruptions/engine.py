"""The corruption engine: published parameters, a seed per block of images, uint8 in and out.

Random numbers come from a generator seeded by (seed, corruption, severity, block), where a block is 100 images in
a row. So the same seed gives the same bytes however the work is divided.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...names import check_known
from ..base import Pixels
from . import blur, digital, handwriting, noise, splashes, weather
from .names import TABLES, Parameters, Table, check_severity
from .sampling import Images
from .textures import Texture, ice_texture

ENGINE_VERSION = 1
BLOCK = 100

_FUNCTIONS: Mapping[str, Callable[..., Images]] = {
    name: getattr(module, name)
    for module in (noise, blur, weather, digital, splashes, handwriting)
    for name in module.__all__
}


def parameters(name: str, severity: int, table: Table) -> Parameters:
    """The parameters of a corruption: the published ones, except for `night`. MNIST-C has one severity, 1."""
    known = TABLES[table]
    check_known("corruption", name, known, of=table)
    if table == "mnist" and severity != 1:
        raise ValueError(f"MNIST-C has a single severity, 1, got {severity}")
    return known[name][check_severity(severity) - 1]


def corrupt(
    images: Pixels,
    name: str,
    severity: int = 5,
    *,
    table: Table = "cifar",
    seed: int = 0,
    first_block: int = 0,
    textures: Sequence[Texture] | None = None,
) -> Pixels:
    """Corrupt square uint8 images `[N, S, S, C]`, C being 1 or 3.

    Args:
        images: the clean images, square.
        name: the corruption.
        severity: 1 to 5 (MNIST-C: 1).
        table: which benchmark's parameters to use: `cifar`, `imagenet` or `mnist`.
        seed: with the number of the block it decides every random draw.
        first_block: number of the first block of 100 images, if `images` is a part of a larger set.
        textures: ice for `frost`; None is procedural ice.

    >>> clean = np.full((2, 32, 32, 3), 128, np.uint8)
    >>> corrupt(clean, "brightness", 5)[0, 0, 0].tolist()
    [204, 204, 204]
    """
    chosen = parameters(name, severity, table)
    shape = list(images.shape)
    if images.dtype != np.uint8 or len(shape) != 4 or shape[3] not in (1, 3):
        raise ValueError(f"images must be uint8 of shape [N, S, S, 1 or 3], got {images.dtype} {shape}")
    if shape[1] != shape[2] or shape[1] < 8:
        raise ValueError(f"images must be square, of at least 8 pixels, got {shape[1]}x{shape[2]}")
    arguments: list[Any] = list(chosen)
    if name == "elastic_transform":  # its parameters are shares of the side
        scale = images.shape[1] * (1 if table == "cifar" else 244 / 224)
        arguments = [value * scale for value in chosen]
    if name == "frost":
        arguments.append(textures if textures is not None else [ice_texture(number) for number in range(5)])
    result = np.empty_like(images)
    for start in range(0, len(images), BLOCK):
        block = first_block + start // BLOCK
        generator = np.random.default_rng([seed, zlib.crc32(name.encode()), severity, block])
        part = images[start : start + BLOCK].astype(np.float32) / 255
        changed = np.clip(_FUNCTIONS[name](part, generator, *arguments), 0, 1)
        # Truncated, as the benchmarks' makers do; the small term keeps 32-bit rounding from losing a step.
        result[start : start + BLOCK] = (changed * 255 + 2e-3).astype(np.uint8)
    return result
