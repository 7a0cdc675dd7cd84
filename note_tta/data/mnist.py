"""MNIST (the four idx files) and MNIST-C (`mnist_c/<corruption>/test_images.npy`)."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np

from .base import BadData, IntArray, MissingData, Pixels, check_labels
from .corrupted import CorruptedSet
from .corruptions.names import MNIST_CORRUPTIONS
from .record import Archive, Recipe

PUBLISHED = {"train": 60_000, "test": 10_000}
_FOLDERS = ("MNIST/raw", "MNIST", "mnist")
_PREFIX = {"train": "train", "test": "t10k"}
_LARGEST_IDX = 1 << 28  # 256 MB: five times MNIST's training images; more is not an MNIST file


def read_clean(root: Path, split: str) -> tuple[Pixels, IntArray]:
    """The clean images of a split, uint8 `[N, 28, 28, 1]`, and their labels."""
    images_file = _find(root, f"{_PREFIX[split]}-images-idx3-ubyte")
    labels_file = _find(root, f"{_PREFIX[split]}-labels-idx1-ubyte")
    images, labels = _read_idx(images_file, 3), _read_idx(labels_file, 1)
    if images.shape[1:] != (28, 28):
        raise BadData(images_file, f"expected images of 28x28, found {images.shape[1]}x{images.shape[2]}")
    if len(images) != len(labels):
        raise BadData(labels_file, f"{len(labels)} labels for {len(images)} images")
    return images[..., None], check_labels(labels, 10, labels_file)


def _find(root: Path, stem: str) -> Path:
    folders = [root / folder for folder in _FOLDERS]
    for candidate in [folder / f"{stem}{suffix}" for folder in folders for suffix in (".gz", "")]:
        if candidate.is_file():
            return candidate
    raise MissingData(f"MNIST file {stem}", folders, "note-tta data download mnist")


def _read_idx(file: Path, dimensions: int) -> Pixels:
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


def _raw_file(stem: str, md5: str, size: str) -> Archive:
    name = f"{stem}-ubyte.gz"
    address = f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}"
    return Archive(address, f"MNIST/raw/{name}", size, md5, into="MNIST/raw", packed=False)


_IMAGES = CorruptedSet(
    name="mnist",
    title="MNIST-C",
    classes=tuple(str(digit) for digit in range(10)),
    shape=(28, 28, 1),
    clean=_FOLDERS,
    read_clean=read_clean,
    published=PUBLISHED,
    table="mnist",
    usual=MNIST_CORRUPTIONS,
    folder="mnist_c",
    images="{}/test_images.npy",
    labels="{}/test_labels.npy",
)

MNIST = _IMAGES.record(
    recipe=Recipe(epochs=100, lr=0.1, batch_size=128),
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
