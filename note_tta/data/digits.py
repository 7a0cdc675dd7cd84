"""The embedded dataset: scikit-learn's 8x8 handwritten digits, enlarged to 32x32; nothing is downloaded.

Every image appears several times under small rotations, shifts and scales, which makes a test stream
long enough to adapt on. The targets change how the sensor sees, not what is written: low contrast, too much
light, and another style for every image (gain, offset, noise).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy import ndimage

from .base import Dataset, Domain, Floats, IntArray, image_domain
from .record import Check, DatasetRecord, Recipe

SIZE = 32
COPIES = 3
TEST_IMAGES = 800
TARGETS = ("contrast", "brightness", "style")


def open_digits(_root: Path | None = None, *, seed: int = 0) -> Dataset:
    """Open the embedded digits; `seed` draws the split, the poses and the corruptions."""
    poses = cache(partial(_posed_digits, seed))
    openers = {split: partial(_domain, poses, split, None, seed) for split in ("train", "test")}
    openers |= {target: partial(_domain, poses, "test", target, seed) for target in TARGETS}
    classes = tuple(str(digit) for digit in range(10))
    return DIGITS.dataset(classes=classes, input_shape=(1, SIZE, SIZE), openers=openers)


def _domain(
    poses: Callable[[], dict[str, tuple[Floats, IntArray]]], split: str, target: str | None, seed: int
) -> Domain:
    images, labels = poses()[split]
    if target is not None:
        generator = np.random.default_rng([seed, 1 + TARGETS.index(target)])
        images = _CORRUPTIONS[target](images, generator)
    pixels = np.rint(np.clip(images, 0, 1) * 255).astype(np.uint8)[..., None]
    return image_domain(target or split, pixels, labels, origin="embedded")


def _posed_digits(seed: int) -> dict[str, tuple[Floats, IntArray]]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = bunch.images.astype(np.float32) / 16
    labels = bunch.target.astype(np.int64)
    generator = np.random.default_rng([seed, 0])
    order = generator.permutation(len(images))
    parts = {"test": order[:TEST_IMAGES], "train": order[TEST_IMAGES:]}
    copies = {split: np.repeat(chosen, COPIES) for split, chosen in parts.items()}
    return {split: (_pose(images[chosen], generator), labels[chosen]) for split, chosen in copies.items()}


def _pose(images: Floats, generator: np.random.Generator) -> Floats:
    """Enlarge 8x8 images to 32x32, each turned by up to 12 degrees, scaled by 10 %, shifted by 2 pixels."""
    count = len(images)
    angles = generator.uniform(-np.pi / 15, np.pi / 15, count)
    scales = generator.uniform(0.9, 1.1, count)
    shifts = generator.uniform(-2, 2, (count, 2))
    rows, columns = np.mgrid[:SIZE, :SIZE].astype(np.float64) - (SIZE - 1) / 2
    posed = np.empty((count, SIZE, SIZE), np.float32)
    for i in range(count):
        y, x = rows - shifts[i, 0], columns - shifts[i, 1]
        cosine, sine = np.cos(angles[i]) / scales[i], np.sin(angles[i]) / scales[i]
        source = [(cosine * y - sine * x) / 4 + 3.5, (sine * y + cosine * x) / 4 + 3.5]
        posed[i] = ndimage.map_coordinates(images[i], source, order=1, mode="constant")
    return posed


def _contrast(images: Floats, _generator: np.random.Generator) -> Floats:
    means = images.mean(axis=(1, 2), keepdims=True)
    return means + (images - means) * np.float32(0.5)


def _brightness(images: Floats, _generator: np.random.Generator) -> Floats:
    return images * np.float32(0.8) + np.float32(0.22)


def _style(images: Floats, generator: np.random.Generator) -> Floats:
    shape = (len(images), 1, 1)
    gain, offset = generator.uniform(0.4, 1.0, shape), generator.uniform(0.0, 0.35, shape)
    noise = generator.normal(0.0, 0.06, images.shape)
    return (images * gain + offset + noise).astype(np.float32)


_CORRUPTIONS = dict(zip(TARGETS, (_contrast, _brightness, _style), strict=True))


def _check(_root: Path) -> Iterator[Check]:
    dataset = open_digits()
    for domain in dataset.domains:
        found = len(dataset.domain(domain))
        yield Check(domain, found > 0, f"{found:,} images, made from scikit-learn's digits")


DIGITS = DatasetRecord(
    name="digits",
    title="Digits",
    classes=10,
    targets=TARGETS,
    stream="dirichlet",
    network="digits_cnn",
    recipe=Recipe(epochs=15, lr=0.1, batch_size=64),
    opens=open_digits,
    checks=_check,
    options={"seed": "another split, other poses and corruptions"},
    source_options=("seed",),
    note="part of scikit-learn: nothing to download",
)
