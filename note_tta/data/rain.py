"""Rain on a photograph, by the physics of the rain-rendering literature.

Drops follow Marshall and Palmer's sizes; each leaves a streak as long as it falls during the exposure, as
wide and as bright as its distance allows. What lies behind the rain fades with its depth: exp(-beta·d),
beta = 0.312·R^0.67 per km, and the light lost is replaced by the sky's.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .base import Floats, Pixels

FOCAL = 721.5  # KITTI's colour cameras, pixels
CAMERA_HEIGHT = 1.65  # metres above the road, KITTI's car
EXPOSURE = 0.005  # seconds
NEAR, FAR = 0.5, 10.0  # metres: the volume in which single drops are seen as streaks
SMALLEST, LARGEST = 1.0, 6.0  # drop diameter in mm; smaller drops are part of the veil
SKY = 80.0  # metres: depth given to everything above the horizon


def extinction(rate: float) -> float:
    """The share of light lost per metre in rain of `rate` mm/hr.

    >>> round(extinction(200), 4)
    0.0109
    """
    return 0.312 * float(rate**0.67) / 1000


def drop_density(diameter: Floats, rate: float) -> Floats:
    """Drops per cubic metre and mm of diameter (Marshall-Palmer), diameters in mm."""
    return (8000 * np.exp(-4.1 * rate**-0.21 * diameter)).astype(np.float32)


def terminal_speed(diameter: Floats) -> Floats:
    """How fast drops of these diameters (mm) fall, in m/s: 9.65 - 10.3·exp(-0.6·D), after Atlas et al."""
    return np.maximum(0.0, 9.65 - 10.3 * np.exp(-0.6 * diameter)).astype(np.float32)


def road_depth(height: int, width: int, focal: float = FOCAL) -> Floats:
    """The depth `[H, W]` in metres that a camera over a flat road sees; the sky above the horizon is far.

    >>> depth = road_depth(375, 1242)
    >>> bool(depth[0, 0] == 80.0), round(float(depth[-1, 0]), 1)
    (True, 6.4)
    """
    below = np.arange(height, dtype=np.float32) - (height - 1) / 2
    depth = np.where(below > 0, CAMERA_HEIGHT * focal / np.maximum(below, 1e-3), SKY)
    return np.repeat(np.minimum(depth, SKY)[:, None], width, axis=1).astype(np.float32)


def render_rain(
    image: Pixels,
    *,
    rate: float = 200.0,
    depth: Floats | None = None,
    seed: int | tuple[int, ...] = 0,
    focal: float = FOCAL,
) -> Pixels:
    """Let it rain on a photograph, uint8 `[H, W, 3]`, at `rate` mm/hr.

    `depth` is in metres `[H, W]`, None a flat road in front of the camera, whose `focal` length is in pixels.

    >>> clear = np.full((40, 60, 3), 100, np.uint8)
    >>> rainy = render_rain(clear, rate=200)
    >>> rainy.shape, bool((rainy != clear).any())
    ((40, 60, 3), True)
    """
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"image must be uint8 [H, W, 3], got {image.dtype} {list(image.shape)}")
    if not 0 <= rate <= 500:
        raise ValueError(f"rate must lie between 0 and 500 mm/hr, got {rate}")
    height, width = image.shape[:2]
    if depth is None:
        depth = road_depth(height, width, focal)
    if depth.shape != (height, width) or not np.isfinite(depth).all() or (depth < 0).any():
        raise ValueError(f"depth must be [{height}, {width}] in metres, finite and not negative")
    if rate == 0:
        return np.array(image)
    scene = image.astype(np.float32) / 255
    airlight = np.quantile(scene.reshape(-1, 3), 0.95, axis=0).astype(np.float32) * np.float32(0.9)
    clear = np.exp(-extinction(rate) * depth)[..., None].astype(np.float32)
    veiled = scene * clear + airlight * (1 - clear)
    streaks = _streaks(height, width, rate, focal, np.random.default_rng(seed), depth)[..., None]
    # A drop gathers light from most of the sky, so a streak pulls what is behind it towards the sky's light.
    rainy = veiled * (1 - streaks) + np.clip(airlight * 1.1, 0, 1) * streaks
    return np.asarray(np.rint(np.clip(rainy, 0, 1) * 255), dtype=np.uint8)


def _streaks(
    height: int, width: int, rate: float, focal: float, generator: np.random.Generator, depth: Floats
) -> Floats:
    """The opacity `[H, W]` of all streaks between camera and scene."""
    sizes = np.linspace(SMALLEST, LARGEST, 51, dtype=np.float32)
    step = float(sizes[1] - sizes[0])
    volume = width * height / focal**2 * (FAR**3 - NEAR**3) / 3
    expected = drop_density(sizes, rate) * step * volume
    counts = generator.poisson(expected)
    diameter = np.repeat(sizes, counts)
    total = len(diameter)
    distance = np.cbrt(generator.uniform(NEAR**3, FAR**3, total))
    row, column = generator.uniform(0, height, total), generator.uniform(0, width, total)
    length = terminal_speed(diameter) * EXPOSURE * focal / distance
    breadth = diameter / 1000 * focal / distance
    # A drop covers a pixel for the time it falls by its own size; narrower than a pixel, it fills part.
    opacity = np.minimum(1.0, diameter / 1000 / (terminal_speed(diameter) * EXPOSURE)) * 4
    opacity = np.clip(opacity * np.minimum(1.0, breadth), 0, 0.8)
    slant = generator.normal(0.05, 0.03) + generator.normal(0, 0.02, total)
    visible = (opacity > 0.004) & (distance < depth[row.astype(np.int64), column.astype(np.int64)])
    layer = np.zeros(height * width)
    for group in _by_length(length[visible], np.flatnonzero(visible)):
        taps = np.arange(int(np.ceil(length[group].max())) + 1)[None, :]
        half = np.maximum(0, np.ceil(breadth[group]).astype(np.int64) - 1)
        for side in range(int(half.max()) + 1):
            rows = np.floor(row[group][:, None] + taps).astype(np.int64)
            columns = np.floor(column[group][:, None] + slant[group][:, None] * taps).astype(np.int64) + side
            inside = (rows < height) & (columns >= 0) & (columns < width)
            inside &= (taps <= length[group][:, None]) & (side <= half[:, None])
            strength = np.broadcast_to(opacity[group][:, None], rows.shape)
            pixels = rows[inside] * width + columns[inside]
            layer += np.bincount(pixels, strength[inside], minlength=height * width)
    return np.minimum(layer, 0.85).reshape(height, width).astype(np.float32)


def _by_length(lengths: Floats, indices: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Indices grouped by streak length (doubling), so that short streaks do not pay for long ones."""
    bins = np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    return [indices[bins == number] for number in np.unique(bins)]
