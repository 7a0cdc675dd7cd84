"""CIFAR-10, CIFAR-100 and their corrupted test sets, in the published layout.

Clean images: `cifar-10-batches-py/` or `cifar-100-python/` (fine labels). Corrupted ones:
`CIFAR-10-C/<corruption>.npy`, uint8 `[50000, 32, 32, 3]`, severities 1-5 in equal blocks, with
`labels.npy`. Sets made by `note-tta data prepare` lie in `CIFAR-10-C-regenerated/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .base import BadData, Dataset, IntArray, MissingData, check_labels
from .checks import Check
from .corrupted import CorruptedSet
from .corruptions.names import CORRUPTIONS, OWN_CORRUPTIONS, VALIDATION_CORRUPTIONS, check_severity
from .imbalance import thin_out
from .pickles import read_pickled_dict
from .recipe import Recipe
from .record import Archive, DatasetRecord

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


class _Set(NamedTuple):
    """One of the two sets: its files, what it calls its labels, and where it is published."""

    name: str
    clean: str
    corrupted: str
    classes: tuple[str, ...]
    train: tuple[str, ...]
    test: str
    labels: str
    clean_archive: tuple[str, str, str]
    corrupted_archive: tuple[int, str]

    @property
    def corrupted_set(self) -> CorruptedSet:
        return CorruptedSet(
            dataset=self.name,
            table="cifar",
            usual=CORRUPTIONS,
            folder=self.corrupted,
            images="{}.npy",
            labels="labels.npy",
            shape=(32, 32, 3),
            classes=len(self.classes),
            read_clean=partial(read_clean, self.name),
        )

    def record(self) -> DatasetRecord:
        archive, size, md5 = self.clean_archive
        number, corrupted_md5 = self.corrupted_archive
        address = f"https://zenodo.org/records/{number}/files/{self.corrupted}.tar"
        return DatasetRecord(
            name=self.name,
            title=f"{self.name.upper()}-C",
            classes=len(self.classes),
            targets=CORRUPTIONS,
            stream="dirichlet",
            network="resnet18",
            recipe=Recipe(epochs=200, lr=0.1, batch_size=128, crop_padding=4, flip=True),
            opens=partial(open_cifar, name=self.name),
            checks=partial(_check, self.name),
            options={
                "severity": "corruptions of that severity, 1 to 5",
                "imbalance": "the first class has this many times as many samples as the last",
            },
            prepares=self.corrupted_set.prepare,
            table="cifar",
            archives=(
                Archive(
                    f"https://www.cs.toronto.edu/~kriz/{archive}", f"{self.clean}/{self.test}", size, md5
                ),
                Archive(address, f"{self.corrupted}/labels.npy", "2.9 GB", corrupted_md5),
            ),
        )


_CIFAR10 = _Set(
    "cifar10",
    "cifar-10-batches-py",
    "CIFAR-10-C",
    CIFAR10_CLASSES,
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test="test_batch",
    labels="labels",
    clean_archive=("cifar-10-python.tar.gz", "163 MB", "c58f30108f718f92721af3b95e74349a"),
    corrupted_archive=(2535967, "56bf5dcef84df0e2308c6dcbcbbd8499"),
)
_CIFAR100 = _Set(
    "cifar100",
    "cifar-100-python",
    "CIFAR-100-C",
    CIFAR100_CLASSES,
    train=("train",),
    test="test",
    labels="fine_labels",
    clean_archive=("cifar-100-python.tar.gz", "161 MB", "eb9058c3a382ffc7106e4002c42a8d85"),
    corrupted_archive=(3555552, "11f0ed0f1191edbf9fa23466ae6021d3"),
)
_SETS = {"cifar10": _CIFAR10, "cifar100": _CIFAR100}


def open_cifar(root: Path, name: str, *, severity: int = 5, imbalance: float = 1) -> Dataset:
    """Open CIFAR-10 or CIFAR-100 with its fifteen corruptions at one severity, all classes alike or not.

    Beside the targets, the four validation corruptions and `night` can be opened where they were prepared.
    """
    check_severity(severity)
    chosen = _SETS[name]
    corrupted = chosen.corrupted_set
    places = [root / chosen.clean, *corrupted.folders(root)]
    if not any(place.is_dir() for place in places):
        raise MissingData(f"{name} data", places, f"note-tta data download {name}")
    corruptions = (*CORRUPTIONS, *VALIDATION_CORRUPTIONS, *OWN_CORRUPTIONS)
    openers = corrupted.openers(root, corruptions, severity)
    record = CIFAR10 if name == "cifar10" else CIFAR100
    dataset = record.dataset(
        classes=chosen.classes, input_shape=(3, 32, 32), openers=openers, validation=VALIDATION_CORRUPTIONS
    )
    return thin_out(dataset, imbalance)


def read_clean(name: str, root: Path, split: str) -> tuple[npt.NDArray[np.uint8], IntArray]:
    """The clean images of a split, uint8 `[N, 32, 32, 3]`, and their labels."""
    chosen = _SETS[name]
    files = [root / chosen.clean / batch for batch in (chosen.train if split == "train" else (chosen.test,))]
    absent = [file for file in files if not file.is_file()]
    if absent:
        raise MissingData(f"{name} {split} images", absent, f"note-tta data download {name}")
    images, labels = zip(*(_read_batch(file, chosen) for file in files), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _read_batch(file: Path, chosen: _Set) -> tuple[npt.NDArray[np.uint8], IntArray]:
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


def _check(name: str, root: Path) -> Iterator[Check]:
    return _SETS[name].corrupted_set.checks(root, open_cifar(root, name), PUBLISHED)


CIFAR10, CIFAR100 = _CIFAR10.record(), _CIFAR100.record()
