"""CIFAR-10, CIFAR-100 and their corrupted test sets, in the published layout.

Clean images: `cifar-10-batches-py/` or `cifar-100-python/` (fine labels). Corrupted ones:
`CIFAR-10-C/<corruption>.npy`, uint8 `[50000, 32, 32, 3]`, severities 1-5 in equal blocks, with
`labels.npy`. Sets made by `note-tta data prepare` lie in `CIFAR-10-C-regenerated/` in the same layout,
beside a manifest that says which severities are filled in; the published files win where both exist.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .base import (
    BadData,
    Dataset,
    Domain,
    IntArray,
    MissingData,
    Origin,
    check_labels,
    image_domain,
    load_array,
)
from .corruptions.names import (
    CORRUPTIONS,
    OWN_CORRUPTIONS,
    SEVERITIES,
    VALIDATION_CORRUPTIONS,
    check_severity,
)
from .imbalance import thin_out
from .manifest import Manifest
from .pickles import read_pickled_dict

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR100_NAMES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel
    can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
    dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion
    lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree
    pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea
    seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
    telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman
    worm"""
CIFAR100_CLASSES = tuple(_CIFAR100_NAMES.split())
_LAYOUT: dict[str, dict[str, Any]] = {
    "cifar10": {
        "clean": "cifar-10-batches-py",
        "corrupted": "CIFAR-10-C",
        "classes": CIFAR10_CLASSES,
        "train": tuple(f"data_batch_{i}" for i in range(1, 6)),
        "test": ("test_batch",),
        "labels": "labels",
    },
    "cifar100": {
        "clean": "cifar-100-python",
        "corrupted": "CIFAR-100-C",
        "classes": CIFAR100_CLASSES,
        "train": ("train",),
        "test": ("test",),
        "labels": "fine_labels",
    },
}


def open_cifar(root: Path, name: str, *, severity: int = 5, imbalance: float = 1) -> Dataset:
    """Open CIFAR-10 or CIFAR-100 with its fifteen corruptions at one severity, all classes alike or not.

    Beside the targets, the four validation corruptions and `night` can be opened where they were prepared.
    """
    check_severity(severity)
    layout = _LAYOUT[name]
    places = [root / layout["clean"], root / layout["corrupted"], root / f"{layout['corrupted']}-regenerated"]
    if not any(place.is_dir() for place in places):
        raise MissingData(f"{name} data", places, f"note-tta data download {name}")
    openers: dict[str, Callable[[], Domain]] = {
        split: partial(_clean_domain, root, name, split) for split in ("train", "test")
    }
    for corruption in (*CORRUPTIONS, *VALIDATION_CORRUPTIONS, *OWN_CORRUPTIONS):
        openers[corruption] = partial(_corrupted_domain, root, name, corruption, severity)
    dataset = Dataset(
        name=name,
        title=f"{layout['corrupted'].replace('-', '', 1)}",
        classes=layout["classes"],
        input_shape=(3, 32, 32),
        targets=CORRUPTIONS,
        stream="dirichlet",
        openers=openers,
        validation=VALIDATION_CORRUPTIONS,
    )
    return thin_out(dataset, imbalance)


def read_clean(root: Path, name: str, split: str) -> tuple[npt.NDArray[np.uint8], IntArray]:
    """The clean images of a split, uint8 `[N, 32, 32, 3]`, and their labels."""
    layout = _LAYOUT[name]
    folder = root / layout["clean"]
    files = [folder / batch for batch in layout[split]]
    absent = [file for file in files if not file.is_file()]
    if absent:
        raise MissingData(f"{name} {split} images", absent, f"note-tta data download {name}")
    images, labels = zip(*(_read_batch(file, layout) for file in files), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def corrupted_folders(root: Path, name: str) -> tuple[Path, Path]:
    """Where the published and where the regenerated corrupted set lie."""
    published = root / _LAYOUT[name]["corrupted"]
    return published, published.with_name(f"{published.name}-regenerated")


def _read_batch(file: Path, layout: dict[str, Any]) -> tuple[npt.NDArray[np.uint8], IntArray]:
    content = read_pickled_dict(file)
    data, labels = content.get("data"), content.get(layout["labels"])
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
        raise BadData(file, "'data' must be a uint8 array of shape [N, 3072]")
    if not isinstance(labels, list) or not all(isinstance(n, int) and abs(n) < 2**31 for n in labels):
        raise BadData(file, f"{layout['labels']!r} must be a list of integers")
    if len(labels) != len(data):
        raise BadData(file, f"{len(data)} images but {len(labels)} labels")
    images = data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), check_labels(np.array(labels), len(layout["classes"]), file)


def _clean_domain(root: Path, name: str, split: str) -> Domain:
    images, labels = read_clean(root, name, split)
    return image_domain(split, images, labels, origin="published")


def _corrupted_domain(root: Path, name: str, corruption: str, severity: int) -> Domain:
    published, regenerated = corrupted_folders(root, name)
    chosen = "" if corruption in CORRUPTIONS else f" --corruption {corruption}"
    making = f"note-tta data prepare {name} --severity {severity}{chosen}"
    command = making if corruption in OWN_CORRUPTIONS else f"note-tta data download {name} (or: {making})"
    for folder in (published, regenerated):
        file = folder / f"{corruption}.npy"
        if not file.is_file():
            continue
        if folder == regenerated:
            Manifest.read(folder).require(corruption, severity, making)
        images = load_array(file, dtype="uint8", tail=(32, 32, 3))
        labels_file = folder / "labels.npy"
        labels = check_labels(
            load_array(labels_file, dtype="integer", tail=()), len(_LAYOUT[name]["classes"]), labels_file
        )
        if len(images) != len(labels) or len(images) % len(SEVERITIES):
            raise BadData(
                file, f"{len(images)} images for {len(labels)} labels in five equal severity blocks"
            )
        size = len(images) // len(SEVERITIES)
        block = slice((severity - 1) * size, severity * size)
        origin: Origin = "published" if folder == published else "regenerated"
        return image_domain(corruption, images[block], labels[block], origin=origin)
    places = [folder / f"{corruption}.npy" for folder in (published, regenerated)]
    raise MissingData(f"{name} {corruption} at severity {severity}", places, command)
