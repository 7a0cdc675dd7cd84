"""What a dataset is: named domains of inputs with labels, which are opened when they are needed.

A `Dataset` has classes, the shape of one input, and domains: `train` and `test` of the source, and one domain per
target (a corruption, a user). A `Domain` returns float32 tensors for given indices and, if the format allows it,
reads no more than these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..names import check_known
from ..streams import Batches

Origin = Literal["published", "regenerated", "embedded", "own"]
Stream = Literal["dirichlet", "sorted", "chronological"]
Indices = Tensor | slice | Iterable[int]
IntArray = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]


class MissingData(FileNotFoundError):
    """Missing data: what is missing, where it was looked for, and the command that gets it.

    >>> str(MissingData("CIFAR-10", ["/data/cifar-10-batches-py"], "note-tta data download cifar10"))
    'CIFAR-10 not found; looked in /data/cifar-10-batches-py; get it with: note-tta data download cifar10'
    """

    def __init__(self, what: str, looked: Iterable[str | Path], command: str) -> None:
        places = ", ".join(str(place) for place in looked)
        super().__init__(f"{what} not found; looked in {places}; get it with: {command}")


def first_folder(places: Sequence[Path], what: str, command: str) -> Path:
    """The first of these folders that is there; `MissingData` if none is."""
    for place in places:
        if place.is_dir():
            return place
    raise MissingData(what, places, command)


class BadData(ValueError):
    """A damaged file, or one in another format: the file (and the line), and what is wrong.

    >>> str(BadData("a.csv", "column label is missing", line=1))
    'a.csv, line 1: column label is missing'
    """

    def __init__(self, file: str | Path, problem: str, *, line: int | None = None) -> None:
        where = str(file) if line is None else f"{file}, line {line}"
        super().__init__(f"{where}: {problem}")


class Domain:
    """Inputs and labels of one domain, in their natural order.

    Args:
        name: the domain's name inside its dataset.
        labels: one class index per sample.
        read: maps an int64 array of indices to a float32 array `[n, *input_shape]`.
        digest: computes the fingerprint when it is first asked for.
        origin: whether the files are the published ones, regenerated here, part of the install, or the
            user's own.
    """

    def __init__(
        self,
        name: str,
        labels: IntArray,
        read: Callable[[IntArray], Floats],
        digest: Callable[[], str],
        origin: Origin,
    ) -> None:
        self.name = name
        self.labels: Tensor = torch.from_numpy(np.array(labels, dtype=np.int64))
        self.origin: Origin = origin
        self._read = read
        self._digest = digest

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Domain({self.name!r}, {len(self)} samples, {self.origin})"

    def inputs(self, indices: Indices = slice(None)) -> Tensor:
        """The inputs at `indices` as float32: images `[n, C, H, W]` in [0, 1], sensors `[n, C, L]`."""
        if isinstance(indices, slice):
            chosen = np.arange(len(self), dtype=np.int64)[indices]
        else:
            values = indices.tolist() if isinstance(indices, Tensor) else list(indices)
            chosen = np.asarray(values, dtype=np.int64).reshape(-1)
        if len(chosen) and (chosen.min() < -len(self) or chosen.max() >= len(self)):
            raise IndexError(f"index out of range: {self.name} has {len(self)} samples")
        return torch.from_numpy(np.ascontiguousarray(self._read(chosen % max(1, len(self)))))

    def batches(self, order: Indices = slice(None), size: int = 64) -> Batches:
        """The domain as batches of inputs and labels in this order, for `evaluate`.

        Args:
            order: Indices, as the functions of `note_tta.streams` return them.
            size: Samples per batch; the last one may be smaller.
        """
        chosen = torch.arange(len(self))[order] if isinstance(order, slice) else torch.as_tensor(order)

        def read(positions: slice) -> tuple[Tensor, Tensor]:
            return self.inputs(chosen[positions]), self.labels[chosen[positions]]

        return Batches(len(chosen), size, read)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the content, for provenance; computed once, on first use."""
        return self._digest()


Openers = Mapping[str, Callable[[], Domain]]
"""The function that opens each domain, by the domain's name."""


@dataclass(frozen=True)
class Dataset:
    """An opened dataset: its facts, and its domains by name.

    Attributes:
        name: the key in `DATASETS`.
        title: the name in tables.
        classes: class names, by class index.
        input_shape: shape of one input.
        targets: the target domains that can be opened.
        stream: the paper's correlated order: a Dirichlet draw, sorted by class, or as recorded.
        openers: the function that opens each domain, by the domain's name.
        absent: target domains of the paper whose files are not in the data root.
        validation: domains for choosing settings, which are not targets.
    """

    name: str
    title: str
    classes: tuple[str, ...]
    input_shape: tuple[int, ...]
    targets: tuple[str, ...]
    stream: Stream
    openers: Openers = field(repr=False)
    absent: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()

    @property
    def domains(self) -> tuple[str, ...]:
        """The names of all domains: the source's, the targets, then others."""
        return tuple(self.openers)

    def domain(self, name: str) -> Domain:
        """Open one domain. Files are opened now; samples are read when they are needed."""
        if name == "source" and name not in self.openers:
            name = "train"
        check_known("domain", name, self.openers, of=self.name)
        return self.openers[name]()

    def with_targets(self, change: Callable[[Domain], Domain]) -> Dataset:
        """The same dataset with every target domain changed when it is opened."""

        def changed(opener: Callable[[], Domain]) -> Callable[[], Domain]:
            return lambda: change(opener())

        targets = {name: changed(self.openers[name]) for name in self.targets}
        return replace(self, openers={**self.openers, **targets})


def content_digest(*arrays: npt.NDArray[Any]) -> str:
    """A short SHA-256 over arrays: shapes, types and bytes.

    >>> content_digest(np.zeros(2, np.uint8)) == content_digest(np.zeros(2, np.uint8))
    True
    """
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        for start in range(0, len(array), 4096):
            digest.update(np.ascontiguousarray(array[start : start + 4096]).tobytes())
    return f"sha256:{digest.hexdigest()[:16]}"


def image_domain(name: str, images: Pixels, labels: IntArray, *, origin: Origin) -> Domain:
    """A domain over uint8 images `[N, H, W, C]` (in memory or memory-mapped), scaled to [0, 1]."""

    def read(indices: IntArray) -> Floats:
        return np.asarray(images[indices]).transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)

    return Domain(name, labels, read, lambda: content_digest(images, labels), origin)


def sensor_domain(name: str, windows: Floats, labels: IntArray, *, origin: Origin) -> Domain:
    """A domain over scaled sensor windows `[N, C, L]`, or other inputs that are ready, held in memory."""
    return Domain(name, labels, windows.__getitem__, lambda: content_digest(windows, labels), origin)


def load_array(path: Path, *, dtype: str, tail: tuple[int, ...] | None = None) -> npt.NDArray[Any]:
    """Memory-map an `.npy` file, refusing pickles, truncation and any other type or sample shape.

    The type is "uint8" exactly, or "integer" for any integer; `tail` is the shape after the first axis, None any.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # a damaged header is parsed as Python text and can raise nearly anything
        raise BadData(path, f"not a complete npy file ({error}); delete it and fetch it again") from error
    if not np.issubdtype(array.dtype, np.uint8 if dtype == "uint8" else np.integer):
        raise BadData(path, f"expected {dtype} values, found {array.dtype}")
    if array.ndim == 0 or (tail is not None and array.shape[1:] != tail):
        expected = "[N" + "".join(f", {size}" for size in tail or ()) + "]"
        raise BadData(path, f"expected shape {expected}, found {list(array.shape)}")
    return array


def check_labels(labels: npt.NDArray[Any], classes: int, file: Path) -> IntArray:
    """The labels as int64; a label that is not one of the classes is refused."""
    values = np.asarray(labels, dtype=np.int64).reshape(-1)
    wrong = np.flatnonzero((values < 0) | (values >= classes))
    if len(wrong):
        first = int(wrong[0])
        raise BadData(file, f"unknown label {values[first]} at sample {first}; there are {classes} classes")
    return values
