"""The record of a dataset, and what it is made of: archives, the recipe of its source model, and checks.

All facts about a dataset are in one place, in the dataset's own file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .base import BadData, Dataset, MissingData, Stream
from .corruptions.names import Table

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
class Recipe:
    """Everything that decides how a source model is trained, apart from its data and its seed.

    Attributes:
        epochs: Passes over the training data; 0 only evaluates.
        lr: The learning rate at the start.
        batch_size: Samples per step, over all processes together.
        optimizer: `"sgd"` (with Nesterov momentum) or `"adam"`.
        momentum: SGD's.
        weight_decay: L2 penalty on every parameter.
        schedule: `"cosine"` falls to 0 step by step over the whole run, `"constant"` stays.
        crop_padding: Pad images by this many pixels and crop them at a random place; 0 does neither.
        crop_fill: Pad with the image's own `"reflect"`ion or with `"black"`. Black borders shift a channel's
            statistics, which IABN may take for a change of domain: a ResNet-20 fine-tuned on CIFAR-10 with
            black borders erred more on clean training images than on padded ones.
        flip: Mirror every other image, at random.
        pretrained: The paper starts from ImageNet weights instead of from scratch.

    Example:
        >>> round(Recipe(epochs=2, lr=0.1).lr_at(step=50, steps=100), 3)
        0.05
    """

    epochs: int
    lr: float
    batch_size: int = 64
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: Literal["cosine", "constant"] = "cosine"
    crop_padding: int = 0
    crop_fill: Literal["reflect", "black"] = "reflect"
    flip: bool = False
    pretrained: bool = False

    def __post_init__(self) -> None:
        for name, lowest in (("epochs", 0), ("batch_size", 2), ("crop_padding", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < lowest:
                raise ValueError(f"{name} must be a whole number of at least {lowest}, got {value!r}")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise ValueError(f"lr must be positive, got {self.lr}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be at least 0 and under 1, got {self.momentum}")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise ValueError(f"weight_decay must be at least 0, got {self.weight_decay}")
        choices = {"optimizer": ("sgd", "adam"), "schedule": ("cosine", "constant")}
        for name, (one, other) in {**choices, "crop_fill": ("reflect", "black")}.items():
            if getattr(self, name) not in (one, other):
                raise ValueError(f"{name} must be {one!r} or {other!r}, got {getattr(self, name)!r}")

    def lr_at(self, step: int, steps: int) -> float:
        """Return the learning rate of a step, counted from 0, in a run of `steps` steps."""
        if self.schedule == "constant":
            return self.lr
        return self.lr * 0.5 * (1 + math.cos(math.pi * step / steps))


@dataclass(frozen=True)
class Check:
    """The outcome of one check; `ok` is None for a fact that is neither right nor wrong."""

    what: str
    ok: bool | None
    detail: str


def attempt(what: str, check: Callable[[], Check]) -> Check:
    """Make a check; missing or bad data is a failed check."""
    try:
        return check()
    except (MissingData, BadData) as error:
        return Check(what, False, str(error))


def count(dataset: Dataset, domain: str, expected: int) -> Check:
    """Whether a domain has the published number of samples."""
    return _counted(dataset, domain, lambda n: (n == expected, f"{n:,} samples, published {expected:,}"))


def _counted(dataset: Dataset, domain: str, tell: Callable[[int], tuple[bool | None, str]]) -> Check:
    return attempt(domain, lambda: Check(domain, *tell(len(dataset.domain(domain)))))


def count_windows(
    dataset: Dataset, domain: str, paper: int | None = None, *, exact: bool = False, missing: str = ""
) -> Check:
    """The number of windows of a domain, beside the paper's; only an `exact` one must be equal.

    If the dataset lacks the domain, the check has failed, and `missing` says which file is not there.
    """
    if domain in dataset.absent:
        return Check(domain, False, f"missing: {missing}")

    def tell(found: int) -> tuple[bool | None, str]:
        beside = "" if paper is None else f", the paper has {paper:,} ({found - paper:+,})"
        return found == paper if exact else None, f"{found:,} windows{beside}"

    return _counted(dataset, domain, tell)


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
        source_options: those of them that change the training data; each value has source models of its own.
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
    source_options: tuple[str, ...] = ()
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
