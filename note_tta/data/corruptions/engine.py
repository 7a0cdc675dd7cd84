"""The corruption engine: published parameters, a seed per block of images, uint8 in and out.

Random numbers come from a generator seeded by (seed, corruption, severity, block), where a block is 100 images in
a row. So the same seed gives the same bytes however the work is divided.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import blur, digital, handwriting, noise, splashes, weather
from .names import check_severity
from .sampling import Images
from .textures import Texture, ice_texture

ENGINE_VERSION = 1
BLOCK = 100
Table = Literal["cifar", "imagenet", "mnist"]
Parameters = tuple[float, ...]

_FUNCTIONS: Mapping[str, Callable[..., Images]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "defocus_blur": blur.defocus_blur,
    "glass_blur": blur.glass_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "brightness": digital.brightness,
    "contrast": digital.contrast,
    "elastic_transform": digital.elastic_transform,
    "pixelate": digital.pixelate,
    "jpeg_compression": digital.jpeg_compression,
    "shear": handwriting.shear,
    "scale": handwriting.scale,
    "rotate": handwriting.rotate,
    "translate": handwriting.translate,
    "stripe": handwriting.stripe,
    "spatter": splashes.spatter,
    "speckle_noise": noise.speckle_noise,
    "gaussian_blur": blur.gaussian_blur,
    "saturate": digital.saturate,
    "night": digital.night,
    "dotted_line": handwriting.dotted_line,
    "zigzag": handwriting.zigzag,
    "canny_edges": handwriting.canny_edges,
}

_NIGHT = tuple((exposure, 2000.0) for exposure in (0.5, 0.25, 0.12, 0.06, 0.03))
_CIFAR: dict[str, Sequence[Parameters]] = {
    "gaussian_noise": ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),
    "shot_noise": ((500,), (250,), (100,), (75,), (50,)),
    "impulse_noise": ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "brightness": ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
    "contrast": ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
    "elastic_transform": (
        (0, 0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    ),
    "pixelate": ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
    "jpeg_compression": ((80,), (65,), (58,), (50,), (40,)),
    "speckle_noise": ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,)),
    "gaussian_blur": ((0.4,), (0.6,), (0.7,), (0.8,), (1,)),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    "night": _NIGHT,
}
_IMAGENET: dict[str, Sequence[Parameters]] = {
    "gaussian_noise": ((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),
    "shot_noise": ((60,), (25,), (12,), (5,), (3,)),
    "impulse_noise": ((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    "zoom_blur": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    "snow": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "frost": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    "brightness": ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
    "contrast": ((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
    "elastic_transform": (
        (2, 0.7, 0.1),
        (2, 0.08, 0.2),
        (0.05, 0.01, 0.02),
        (0.07, 0.01, 0.02),
        (0.12, 0.01, 0.02),
    ),
    "pixelate": ((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
    "jpeg_compression": ((25,), (18,), (15,), (10,), (7,)),
    "night": _NIGHT,
}
_MNIST: dict[str, Sequence[Parameters]] = {
    "shot_noise": ((3,),),
    "impulse_noise": ((0.17,),),
    "glass_blur": ((0.7, 1, 2, 0.5),),
    "motion_blur": ((10, 3),),
    "shear": ((0.4,),),
    "scale": ((0.7,),),
    "rotate": ((0.4,),),
    "brightness": ((0.5,),),
    "translate": ((3,),),
    "stripe": ((7, 21),),
    "fog": ((3, 1.4, 256),),
    "spatter": ((0.65, 0.3, 1, 0.65, 1.5),),
    "dotted_line": ((),),
    "zigzag": ((2, 2),),
    "canny_edges": ((1, 0.1, 0.2),),
}
TABLES: Mapping[Table, Mapping[str, Sequence[Parameters]]] = {
    "cifar": _CIFAR,
    "imagenet": _IMAGENET,
    "mnist": _MNIST,
}
_WHOLE = {
    "glass_blur": (1, 2),
    "motion_blur": (0,),
    "snow": (4,),
    "stripe": (0, 1),
    "fog": (2,),
    "spatter": (5,),
    "zigzag": (0, 1),
}


def parameters(name: str, severity: int, table: Table) -> Parameters:
    """The parameters of a corruption: the published ones, except for `night`. MNIST-C has one severity, 1."""
    known = TABLES[table]
    if name not in known:
        raise ValueError(f"unknown corruption {name!r} for {table}; known are: {', '.join(known)}")
    if table == "mnist" and severity != 1:
        raise ValueError(f"MNIST-C has a single severity, 1, got {severity}")
    return tuple(TABLES[table][name][check_severity(severity) - 1])


def corrupt(
    images: npt.NDArray[np.uint8],
    name: str,
    severity: int = 5,
    *,
    table: Table = "cifar",
    seed: int = 0,
    first_block: int = 0,
    textures: Sequence[Texture] | None = None,
) -> npt.NDArray[np.uint8]:
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
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3):
        raise ValueError(
            f"images must be uint8 of shape [N, S, S, 1 or 3], got {images.dtype} {list(images.shape)}"
        )
    if images.shape[1] != images.shape[2] or images.shape[1] < 8:
        raise ValueError(
            f"images must be square, of at least 8 pixels, got {images.shape[1]}x{images.shape[2]}"
        )
    arguments = _arguments(name, chosen, table, images.shape[1])
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


def _arguments(name: str, chosen: Parameters, table: Table, side: int) -> list[Any]:
    """The parameters in pixels and with whole numbers as such."""
    if name == "elastic_transform":
        scale = side if table == "cifar" else side * 244 / 224
        return [value * scale for value in chosen]
    whole = _WHOLE.get(name, ())
    return [int(value) if place in whole else value for place, value in enumerate(chosen)]
