"""CIFAR-10, CIFAR-100 and their corrupted test sets, in the published layout.

Clean images: `cifar-10-batches-py/` or `cifar-100-python/` (fine labels). Corrupted ones:
`CIFAR-10-C/<corruption>.npy`, uint8 `[50000, 32, 32, 3]`, severities 1-5 in equal blocks, with
`labels.npy`. Sets made by `note-tta data prepare` lie in `CIFAR-10-C-regenerated/`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .base import BadData, IntArray, MissingData, Pixels, check_labels
from .corrupted import CorruptedSet
from .corruptions.names import CORRUPTIONS, OWN_CORRUPTIONS, VALIDATION_CORRUPTIONS
from .pickles import read_pickled_dict
from .record import Archive, DatasetRecord, Recipe

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
PUBLISHED = {"train": 50_000, "test": 10_000}


class _Files(NamedTuple):
    """The batches of clean images, and what they call their labels."""

    folder: str
    train: tuple[str, ...]
    test: str
    labels: str
    classes: tuple[str, ...]


_FILES = {
    "cifar10": _Files(
        "cifar-10-batches-py",
        tuple(f"data_batch_{i}" for i in range(1, 6)),
        "test_batch",
        "labels",
        CIFAR10_CLASSES,
    ),
    "cifar100": _Files("cifar-100-python", ("train",), "test", "fine_labels", CIFAR100_CLASSES),
}


def _record(name: str, corrupted: str, clean: tuple[str, str, str], number: int, md5: str) -> DatasetRecord:
    """The record of a set: its corrupted folder, its clean archive, and the corrupted one's number and checksum."""
    files, (archive, size, clean_md5) = _FILES[name], clean
    images = CorruptedSet(
        name=name,
        title=f"{name.upper()}-C",
        classes=files.classes,
        shape=(32, 32, 3),
        clean=(files.folder,),
        read_clean=partial(read_clean, name),
        published=PUBLISHED,
        table="cifar",
        usual=CORRUPTIONS,
        validation=VALIDATION_CORRUPTIONS,
        own=OWN_CORRUPTIONS,
        folder=corrupted,
        images="{}.npy",
        labels="labels.npy",
    )
    address, there = f"https://www.cs.toronto.edu/~kriz/{archive}", f"{files.folder}/{files.test}"
    corrupted_address = f"https://zenodo.org/records/{number}/files/{corrupted}.tar"
    return images.record(
        recipe=Recipe(epochs=200, lr=0.1, batch_size=128, crop_padding=4, flip=True),
        archives=(
            Archive(address, there, size, clean_md5),
            Archive(corrupted_address, f"{corrupted}/labels.npy", "2.9 GB", md5),
        ),
    )


def read_clean(name: str, root: Path, split: str) -> tuple[Pixels, IntArray]:
    """The clean images of a split, uint8 `[N, 32, 32, 3]`, and their labels."""
    chosen = _FILES[name]
    files = [root / chosen.folder / batch for batch in (chosen.train if split == "train" else (chosen.test,))]
    absent = [file for file in files if not file.is_file()]
    if absent:
        raise MissingData(f"{name} {split} images", absent, f"note-tta data download {name}")
    images, labels = zip(*(_read_batch(file, chosen) for file in files), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _read_batch(file: Path, chosen: _Files) -> tuple[Pixels, IntArray]:
    content = read_pickled_dict(file)
    data, labels = content.get("data"), content.get(chosen.labels)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
        raise BadData(file, "'data' must be a uint8 array of shape [N, 3072]")
    if not isinstance(labels, list) or not all(isinstance(n, int) and abs(n) < 2**31 for n in labels):
        raise BadData(file, f"{chosen.labels!r} must be a list of integers")
    if len(labels) != len(data):
        raise BadData(file, f"{len(data)} images but {len(labels)} labels")
    images = data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), check_labels(np.array(labels), len(chosen.classes), file)


CIFAR10 = _record(
    "cifar10",
    "CIFAR-10-C",
    ("cifar-10-python.tar.gz", "163 MB", "c58f30108f718f92721af3b95e74349a"),
    *(2535967, "56bf5dcef84df0e2308c6dcbcbbd8499"),
)
CIFAR100 = _record(
    "cifar100",
    "CIFAR-100-C",
    ("cifar-100-python.tar.gz", "161 MB", "eb9058c3a382ffc7106e4002c42a8d85"),
    *(3555552, "11f0ed0f1191edbf9fa23466ae6021d3"),
)
