"""The record of a dataset: all facts about it in one place, in the dataset's own file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .base import Dataset, Stream
from .checks import Check
from .corruptions.names import Table
from .recipe import Recipe

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Archive:
    """One published file.

    Attributes:
        url: its address, HTTPS.
        provides: a path under the data root that exists once it is in place.
        size: the approximate size of the download, for people.
        md5: its published checksum; None if there is none.
        into: the folder under the data root that it is put into.
        packed: whether it is unpacked there, or kept as it is.
    """

    url: str
    provides: str
    size: str
    md5: str | None = None
    into: str = ""
    packed: bool = True

    @property
    def name(self) -> str:
        """The name of the file, from the address."""
        return self.url.rsplit("/", 1)[1].split("?")[0].replace("+", "_")


@dataclass(frozen=True)
class Wanted:
    """What to regenerate of a corrupted set.

    Attributes:
        corruptions: which ones; None is those that results are reported on.
        severities: which ones; None is all.
        seed: the seed of all random draws.
        workers: the number of processes.
        progress: called with the name of the part, how much is done, and how much there is.
    """

    corruptions: tuple[str, ...] | None = None
    severities: tuple[int, ...] | None = None
    seed: int = 0
    workers: int = 1
    progress: Progress = lambda what, done, total: None


@dataclass(frozen=True, kw_only=True)
class DatasetRecord:
    """The facts about a dataset, known without reading any file.

    Attributes:
        name: its name in code and on the command line.
        title: its name in tables.
        classes: the number of classes.
        targets: the target domains, in the order of tables.
        stream: the paper's correlated order: a Dirichlet draw, sorted by class, or as recorded.
        network: the network of the source model, a name of `note_tta.models.MODELS`.
        recipe: how the source model is trained.
        opens: opens the dataset under a data root, with its options.
        checks: compares the files under a data root with what was published.
        options: the options of `opens` and what they mean.
        prepares: regenerates its corrupted set and returns the folder; None if it has none.
        table: which benchmark's parameters the corruptions of that set have.
        archives: what `note-tta data download` downloads.
        note: what people should know before they download it.
    """

    name: str
    title: str
    classes: int
    targets: tuple[str, ...]
    stream: Stream
    network: str
    recipe: Recipe
    opens: Callable[..., Dataset] = field(repr=False)
    checks: Callable[[Path], Iterator[Check]] = field(repr=False)
    options: Mapping[str, str] = field(default_factory=dict)
    prepares: Callable[[Path, Wanted], Path] | None = field(default=None, repr=False)
    table: Table | None = None
    archives: tuple[Archive, ...] = field(default=(), repr=False)
    note: str = ""

    def dataset(self, **facts: Any) -> Dataset:
        """The opened dataset, with the record's facts and these further ones."""
        said = {"name": self.name, "title": self.title, "targets": self.targets, "stream": self.stream}
        return Dataset(**{**said, **facts})
