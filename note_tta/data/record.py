"""What is said of a dataset once, in its own file, for everything that needs to know it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .base import Dataset, Stream
from .checks import Check
from .corruptions.engine import Table
from .recipe import Recipe

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Archive:
    """One published file.

    Attributes:
        url: its address, HTTPS.
        md5: its published checksum, or None where the publisher gives none.
        kind: how to unpack it; `file` is kept as it is.
        into: folder under the data root that it is unpacked into.
        provides: a path under the data root that is there once it is unpacked.
        size: rough size of the download, for people.
    """

    url: str
    md5: str | None
    kind: Literal["tar", "zip", "file"]
    into: str
    provides: str
    size: str

    @property
    def name(self) -> str:
        """The file's name, without what the address carries around it."""
        return self.url.rsplit("/", 1)[1].split("?")[0].replace("+", "_")


@dataclass(frozen=True)
class Wanted:
    """What to regenerate of a corrupted set.

    Attributes:
        corruptions: some of them; None means those that results are reported on.
        severities: some of them; None means all.
        seed: of every random draw.
        workers: processes.
        progress: called with what is being made, how much is done, and how much there is.
    """

    corruptions: tuple[str, ...] | None = None
    severities: tuple[int, ...] | None = None
    seed: int = 0
    workers: int = 1
    progress: Progress = lambda what, done, total: None


@dataclass(frozen=True, kw_only=True)
class DatasetRecord:
    """A dataset before any file of it is read.

    Attributes:
        name: what the command line and the code call it.
        title: what tables call it.
        classes: how many there are.
        targets: the target domains, in the order of tables.
        stream: the paper's correlated order: a Dirichlet draw, sorted by class, or as recorded.
        network: the source model's, a name of `note_tta.models.MODELS`.
        recipe: how the source model is trained.
        opens: opens it under a data root, with its options.
        checks: compares what is under a data root with what was published.
        options: what `opens` takes, and what each option means.
        prepares: regenerates what is wanted of its corrupted set and returns the folder; None where it has none.
        table: whose parameters the corruptions of that set have.
        archives: what `note-tta data download` fetches.
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
        """The opened dataset; what the record says need not be said again."""
        said = {"name": self.name, "title": self.title, "targets": self.targets, "stream": self.stream}
        return Dataset(**{**said, **facts})
