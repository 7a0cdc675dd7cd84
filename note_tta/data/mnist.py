"""MNIST (the four idx files) and MNIST-C (`mnist_c/<corruption>/test_images.npy`)."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .base import BadData, Dataset, IntArray, MissingData, check_labels
from .checks import Check
from .corrupted import CorruptedSet
from .corruptions.names import MNIST_CORRUPTIONS
from .imbalance import thin_out
from .recipe import Recipe
from .record import Archive, DatasetRecord

PUBLISHED = {"train": 60_000, "test": 10_000}
_PREFIX = {"train": "train", "test": "t10k"}
_LARGEST_IDX = 1 << 28  # 256 MB: five times MNIST's training images; more is not an MNIST file


def open_mnist(root: Path, *, imbalance: float = 1) -> Dataset:
    """Open MNIST with the fifteen corruptions of MNIST-C, all classes alike or not."""
    places = [*_raw_folders(root), *_CORRUPTED.folders(root)]
    if not any(place.is_dir() for place in places):
        raise MissingData("mnist data", places, "note-tta data download mnist")
    openers = _CORRUPTED.openers(root, MNIST_CORRUPTIONS)
    classes = tuple(str(digit) for digit in range(10))
    return thin_out(MNIST.dataset(classes=classes, input_shape=(1, 28, 28), openers=openers), imbalance)


def read_clean(root: Path, split: str) -> tuple[npt.NDArray[np.uint8], IntArray]:
    """The clean images of a split, uint8 `[N, 28, 28, 1]`, and their labels."""
    images_file = _find(root, f"{_PREFIX[split]}-images-idx3-ubyte")
    labels_file = _find(root, f"{_PREFIX[split]}-labels-idx1-ubyte")
    images, labels = _read_idx(images_file, 3), _read_idx(labels_file, 1)
    if images.shape[1:] != (28, 28):
        raise BadData(images_file, f"expected images of 28x28, found {images.shape[1]}x{images.shape[2]}")
    if len(images) != len(labels):
        raise BadData(labels_file, f"{len(labels)} labels for {len(images)} images")
    return images[..., None], check_labels(labels, 10, labels_file)


def _raw_folders(root: Path) -> list[Path]:
    return [root / "MNIST" / "raw", root / "MNIST", root / "mnist"]


def _find(root: Path, stem: str) -> Path:
    candidates = [folder / f"{stem}{suffix}" for folder in _raw_folders(root) for suffix in (".gz", "")]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise MissingData(f"MNIST file {stem}", _raw_folders(root), "note-tta data download mnist")


def _read_idx(file: Path, dimensions: int) -> npt.NDArray[Any]:
    try:
        opener = gzip.open if file.suffix == ".gz" else open
        with opener(file, "rb") as stream:
            content = stream.read(_LARGEST_IDX + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadData(file, f"truncated or damaged gzip ({error}); delete it and fetch it again") from error
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes([0, 0, 8, dimensions]):
        raise BadData(file, f"not an idx file of bytes with {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    expected = header + int(np.prod([int(size) for size in shape], dtype=object))
    if len(content) != expected:
        raise BadData(file, f"its header announces {expected} bytes, it has {len(content)}")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def _check(root: Path) -> Iterator[Check]:
    return _CORRUPTED.checks(root, open_mnist(root), PUBLISHED)


def _raw_file(stem: str, md5: str, size: str) -> Archive:
    name = f"{stem}-ubyte.gz"
    address = f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}"
    return Archive(address, f"MNIST/raw/{name}", size, md5, into="MNIST/raw", packed=False)


_CORRUPTED = CorruptedSet(
    dataset="mnist",
    table="mnist",
    usual=MNIST_CORRUPTIONS,
    folder="mnist_c",
    images="{}/test_images.npy",
    labels="{}/test_labels.npy",
    shape=(28, 28, 1),
    classes=10,
    read_clean=read_clean,
)

MNIST = DatasetRecord(
    name="mnist",
    title="MNIST-C",
    classes=10,
    targets=MNIST_CORRUPTIONS,
    stream="dirichlet",
    network="resnet18",
    recipe=Recipe(epochs=100, lr=0.1, batch_size=128),
    opens=open_mnist,
    checks=_check,
    options={"imbalance": "the first class has this many times as many samples as the last"},
    prepares=_CORRUPTED.prepare,
    table="mnist",
    archives=(
        _raw_file("train-images-idx3", "f68b3c2dcbeaaa9fbdd348bbdeb94873", "10 MB"),
        _raw_file("train-labels-idx1", "d53e105ee54ea40749a09fcbcd1e9432", "29 kB"),
        _raw_file("t10k-images-idx3", "9fb629c4189551a2d022fa330f9573f3", "1.6 MB"),
        _raw_file("t10k-labels-idx1", "ec29112dd5afa0611ce80d1b7f02629c", "5 kB"),
        Archive(
            "https://zenodo.org/records/3239543/files/mnist_c.zip",
            "mnist_c/identity/test_labels.npy",
            "228 MB",
            "4b34b33045869ee6d424616cd3a65da3",
        ),
    ),
)
