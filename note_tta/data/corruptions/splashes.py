"""Spatter: drops of mud or water on the lens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from .sampling import Images, gaussian

__all__ = ["spatter"]

_MUD = np.array([63, 42, 20], dtype=np.float32) / 255
_WATER = np.array([175, 238, 238], dtype=np.float32) / 255
_RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
_EVERYWHERE = np.ones((3, 3), dtype=bool)
Grey = npt.NDArray[np.uint8]


def spatter(
    images: Images,
    generator: np.random.Generator,
    mean: float,
    std: float,
    sigma: float,
    threshold: float,
    amount: float,
    mud: bool = True,
) -> Images:
    """Let drops cover parts of the image: where smooth noise lies above a threshold.

    Mud hides what is under it, its edge smoothed by `amount`; water adds pale light, `amount` at most. Grey
    images take the first channel of the drops' colour.
    """
    channels = images.shape[3]
    noise = generator.standard_normal((*images.shape[:3], 1), dtype=np.float32)
    field = gaussian((mean + std * noise).astype(np.float32), sigma)
    if mud:
        mask = gaussian((field > threshold).astype(np.float32), amount)
        mask[mask < 0.8] = 0
        return np.asarray(images * (1 - mask) + mask * _MUD[:channels])
    field[field < threshold] = 0
    drops = np.stack([_water(np.clip(each[..., 0] * 255, 0, 255).astype(np.uint8)) for each in field])
    return np.asarray(images + np.float32(amount) * drops[..., None] * _WATER[:channels])


def _water(field: Grey) -> npt.NDArray[np.float32]:
    """The light that drops add, at most 1: strongest along the slopes beside their edges."""
    edges = edges_of(field, 50, 150)
    distance = ndimage.distance_transform_edt(~edges) if edges.any() else np.full(field.shape, 20.0)
    near = ndimage.uniform_filter(np.minimum(distance, 20), 3, mode="mirror").astype(np.uint8)
    relief = ndimage.correlate(equalized(near).astype(np.int64), _RELIEF, mode="mirror")
    smooth = np.rint(ndimage.uniform_filter(np.clip(relief, 0, 255).astype(np.float64), 3, mode="mirror"))
    light = field * smooth.astype(np.float32)
    return np.asarray(light / max(float(light.max()), 1e-12), dtype=np.float32)


def equalized(image: Grey) -> Grey:
    """Spread the values of an image so that each range holds as many pixels; one value stays as it is.

    >>> equalized(np.array([[1, 1], [2, 3]], np.uint8)).tolist()
    [[0, 0], [128, 255]]
    """
    counts = np.bincount(image.ravel(), minlength=256)
    lowest = counts[image.min()]
    if lowest == image.size:
        return image
    above = (np.cumsum(counts) - lowest).astype(np.float32)
    table = np.rint(above * np.float32(255 / (image.size - lowest)))
    return np.asarray(np.clip(table, 0, 255).astype(np.uint8)[image])


def edges_of(image: Grey, low: float, high: float) -> npt.NDArray[np.bool_]:
    """Canny's edges without smoothing: ridges of the gradient (|dx| + |dy|) above `low` that reach `high`."""
    values = np.pad(image.astype(np.int64), 2, mode="edge")
    across, down = ndimage.sobel(values, 1)[1:-1, 1:-1], ndimage.sobel(values, 0)[1:-1, 1:-1]
    slope = np.pad((np.abs(across) + np.abs(down))[1:-1, 1:-1], 1)
    across, down = across[1:-1, 1:-1], down[1:-1, 1:-1]

    def beside(rows: int, columns: int) -> npt.NDArray[np.int64]:
        height, width = image.shape
        return slope[1 + rows : 1 + rows + height, 1 + columns : 1 + columns + width]

    here, steepness = beside(0, 0), np.tan(np.pi / 8)
    flat = np.abs(down) < steepness * np.abs(across)
    steep = np.abs(across) < steepness * np.abs(down)
    falling = (across ^ down) >= 0
    ridge = np.where(
        flat,
        (here > beside(0, -1)) & (here >= beside(0, 1)),
        np.where(
            steep,
            (here > beside(-1, 0)) & (here >= beside(1, 0)),
            np.where(
                falling,
                (here > beside(-1, -1)) & (here > beside(1, 1)),
                (here > beside(-1, 1)) & (here > beside(1, -1)),
            ),
        ),
    )
    weak = ridge & (here > low)
    parts, _ = ndimage.label(weak, _EVERYWHERE)
    return np.asarray(weak & np.isin(parts, parts[weak & (here > high)]))
