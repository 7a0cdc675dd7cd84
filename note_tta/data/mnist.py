"""MNIST (the four idx files) and MNIST-C (`mnist_c/<corruption>/test_images.npy`)."""

from __future__ import annotations

import gzip
import struct
import zlib
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
from .corruptions.names import MNIST_CORRUPTIONS
from .imbalance import thin_out
from .manifest import Manifest

_PREFIX = {"train": "train", "test": "t10k"}
_LARGEST_IDX = 1 << 28  # 256 MB: five times MNIST's training images; more is not an MNIST file
MNIST_SEVERITY = 1  # MNIST-C has one severity; its manifest lists it as 1


def open_mnist(root: Path, *, imbalance: float = 1) -> Dataset:
    """Open MNIST with the fifteen corruptions of MNIST-C, all classes alike or not."""
    published, regenerated = corrupted_folders(root)
    places = [*_raw_folders(root), published, regenerated]
    if not any(place.is_dir() for place in places):
        raise MissingData("mnist data", places, "note-tta data download mnist")
    openers: dict[str, Callable[[], Domain]] = {
        split: partial(_clean_domain, root, split) for split in ("train", "test")
    }
    for corruption in MNIST_CORRUPTIONS:
        openers[corruption] = partial(_corrupted_domain, root, corruption)
    dataset = Dataset(
        name="mnist",
        title="MNIST-C",
        classes=tuple(str(digit) for digit in range(10)),
        input_shape=(1, 28, 28),
        targets=MNIST_CORRUPTIONS,
        stream="dirichlet",
        openers=openers,
    )
    return thin_out(dataset, imbalance)


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


def corrupted_folders(root: Path) -> tuple[Path, Path]:
    """Where the published and where the regenerated corrupted set lie."""
    return root / "mnist_c", root / "mnist_c-regenerated"


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


def _clean_domain(root: Path, split: str) -> Domain:
    images, labels = read_clean(root, split)
    return image_domain(split, images, labels, origin="published")


def _corrupted_domain(root: Path, corruption: str) -> Domain:
    published, regenerated = corrupted_folders(root)
    for folder in (published, regenerated):
        file = folder / corruption / "test_images.npy"
        if not file.is_file():
            continue
        if folder == regenerated:
            Manifest.read(folder).require(corruption, MNIST_SEVERITY, "note-tta data prepare mnist")
        images = load_array(file, dtype="uint8", tail=(28, 28, 1))
        labels_file = file.with_name("test_labels.npy")
        labels = check_labels(load_array(labels_file, dtype="integer", tail=()), 10, labels_file)
        if len(images) != len(labels):
            raise BadData(labels_file, f"{len(labels)} labels for {len(images)} images")
        origin: Origin = "published" if folder == published else "regenerated"
        return image_domain(corruption, images, labels, origin=origin)
    places = [folder / corruption / "test_images.npy" for folder in (published, regenerated)]
    command = "note-tta data download mnist (or: note-tta data prepare mnist)"
    raise MissingData(f"MNIST-C {corruption}", places, command)
