"""Sensor recordings cut into windows, scaled by the statistics of the source, and split without leaking."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .base import Dataset, Domain, Floats, IntArray, sensor_domain
from .record import DatasetRecord

Doubles = npt.NDArray[np.float64]
HELD_OUT_BLOCK = 50  # windows in a row that go to the same side of the source split
HELD_OUT_EVERY = 10  # one block in ten is the source's test domain


@dataclass(frozen=True)
class Windows:
    """Unscaled windows `[N, C, L]` of one person, in time order, and a class index for each."""

    values: Floats
    labels: IntArray


def cut_windows(rows: Floats | Doubles, labels: IntArray, length: int) -> Windows:
    """Cut rows `[T, C]` into windows of `length` rows, without overlap, each wholly inside one label.

    A row labelled -1 belongs to no window. Windows start again at every change of label, so a run
    of n rows gives n // length windows.

    >>> cut_windows(np.zeros((7, 2), np.float32), np.array([0, 0, 0, 1, 1, -1, 1]), 2).labels
    array([0, 1])
    """
    edges = np.flatnonzero(np.diff(labels)) + 1
    starts = np.concatenate([[0], edges]).astype(np.int64)
    ends = np.concatenate([edges, [len(labels)]]).astype(np.int64)
    firsts = [
        np.arange(start, end - length + 1, length)
        for start, end in zip(starts, ends, strict=True)
        if end > start and labels[start] >= 0
    ]
    first = np.concatenate([np.zeros(0, np.int64), *firsts]).astype(np.int64)
    values = rows[first[:, None] + np.arange(length)].transpose(0, 2, 1)
    return Windows(np.ascontiguousarray(values, dtype=np.float32), labels[first].astype(np.int64))


def join(parts: Sequence[Windows]) -> Windows:
    """Concatenate the windows of several people."""
    values = np.concatenate([part.values for part in parts])
    return Windows(values, np.concatenate([part.labels for part in parts]))


@dataclass(frozen=True)
class Scale:
    """A scaling per channel, `(x - offset) / factor`, fitted on the source domain only."""

    offset: Floats
    factor: Floats

    @classmethod
    def fit(cls, windows: Windows, kind: Literal["minmax", "standard"]) -> Scale:
        """Fit to the range (`minmax`) or the mean and deviation (`standard`) of each channel."""
        values = windows.values.astype(np.float64)
        if kind == "minmax":
            offset = values.min(axis=(0, 2))
            factor = values.max(axis=(0, 2)) - offset
        else:
            offset, factor = values.mean(axis=(0, 2)), values.std(axis=(0, 2))
        factor = np.where(factor > 0, factor, 1.0)
        return cls(offset[:, None].astype(np.float32), factor[:, None].astype(np.float32))

    def __call__(self, values: Floats) -> Floats:
        """Scale windows `[N, C, L]`."""
        return (values - self.offset) / self.factor


def held_out(count: int) -> npt.NDArray[np.bool_]:
    """Which windows of the source are kept for its test domain: one block of windows in ten.

    >>> int(held_out(1000).sum())
    100
    """
    return np.arange(count) // HELD_OUT_BLOCK % HELD_OUT_EVERY == HELD_OUT_EVERY - 1


def sensor_dataset(
    record: DatasetRecord,
    classes: tuple[str, ...],
    input_shape: tuple[int, int],
    read_source: Callable[[], Windows],
    targets: Mapping[str, Callable[[], Windows]],
    kind: Literal["minmax", "standard"],
    **facts: Any,
) -> Dataset:
    """A dataset with the domains `source`, its parts `train` and `test`, and the targets whose files are there.

    The paper's source counts are those of `source`. All domains are scaled by the source's statistics,
    which are read once, when the first domain is opened.
    """

    @cache
    def source() -> tuple[Windows, Scale]:
        windows = read_source()
        return windows, Scale.fit(windows, kind)

    def open_source(name: str) -> Domain:
        windows, scale = source()
        outside = held_out(len(windows.labels))
        chosen = {"source": np.ones_like(outside), "train": ~outside, "test": outside}[name]
        return sensor_domain(name, scale(windows.values[chosen]), windows.labels[chosen], origin="published")

    def open_target(name: str) -> Domain:
        windows, scale = targets[name](), source()[1]
        return sensor_domain(name, scale(windows.values), windows.labels, origin="published")

    openers = {name: partial(open_source, name) for name in ("train", "test", "source")}
    return record.dataset(
        classes=classes,
        input_shape=input_shape,
        targets=tuple(targets),
        openers=openers | {name: partial(open_target, name) for name in targets},
        absent=tuple(name for name in record.targets if name not in targets),
        **facts,
    )
