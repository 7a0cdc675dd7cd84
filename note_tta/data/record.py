"""The record of a dataset: all facts about it in one place, in the dataset's own file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .base import BadData, Dataset, MissingData, Stream
from .checks import Check
from .corruptions.names import Table
from .recipe import Recipe

Progress = Callable[[str, int, int], None]
"""Called with the name of the part, how much is done, and how much there is."""


@dataclass(frozen=True)
class Archive:
    """One published file."""

    url: str  # HTTPS
    provides: str  # a path under the data root that exists once it is in place
    size: str  # of the download, roughly, for people
    md5: str | None = None  # its published checksum, if there is one
    into: str = ""  # the folder under the data root that it is put into
    packed: bool = True  # whether it is unpacked there, or kept as it is

    @property
    def name(self) -> str:
        """The name of the file, from the address."""
        return self.url.rsplit("/", 1)[1].split("?")[0].replace("+", "_")


@dataclass(frozen=True)
class Wanted:
    """What to regenerate of a corrupted set."""

    corruptions: tuple[str, ...] | None = None  # None is those that results are reported on
    severities: tuple[int, ...] | None = None  # None is all
    seed: int = 0  # of all random draws
    workers: int = 1  # the number of processes
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

    def verify(self, root: Path) -> list[Check]:
        """Check what is under a data root; every check is made, a failed one does not stop the others."""
        checks: list[Check] = []
        try:
            checks.extend(self.checks(root))
        except (MissingData, BadData) as error:
            checks.append(Check(self.name, False, str(error)))
        return checks

    def status(self, root: Path) -> tuple[bool, str]:
        """Whether it can be opened under a data root and, in one line, which of its domains have their files."""
        try:
            dataset = self.opens(root)
        except (MissingData, BadData) as error:
            return False, str(error)
        usable, origins = 0, set()
        for domain in dataset.targets:
            try:
                origins.add(dataset.domain(domain).origin)
                usable += 1
            except (MissingData, BadData) as error:
                if len(dataset.targets) == 1:
                    return False, str(error)
        how = f" ({', '.join(sorted(origins))})" if origins else ""
        return usable > 0, f"{usable} of {len(dataset.targets) + len(dataset.absent)} target domains{how}"
