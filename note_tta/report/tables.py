"""Tables as data: rows, columns, ours beside the paper's, and what a mean was taken over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..data import DATASETS
from ..experiments.catalog import CORRELATED, TITLES, Experiment
from ..experiments.paper import Number
from .results import Coverage

__all__ = [
    "Column",
    "Entry",
    "Row",
    "Table",
    "coverage_text",
    "domain_title",
    "finish",
    "stream_title",
    "usual",
]


@dataclass(frozen=True)
class Column:
    """A column: what its numbers are of, and the stream it stands under."""

    title: str
    group: str = ""


@dataclass(frozen=True)
class Entry:
    """A place in a table.

    Attributes:
        ours: What came out here.
        paper: What the paper says.
        best: The lowest of its column, to the digit that is printed.
        worse: Above Source's in the same column.
        note: The number of a footnote, 0 for none.
        coverage: What ours is a mean over.
    """

    ours: Number | None = None
    paper: Number | None = None
    best: bool = False
    worse: bool = False
    note: int = 0
    coverage: Coverage | None = None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, of the printed digits."""
        if self.ours is None or self.paper is None:
            return None
        return round(round(self.ours.mean, 1) - self.paper.mean, 1)


@dataclass(frozen=True)
class Row:
    """A row: the variant, its name in this table, and one entry a column."""

    variant: str
    title: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Table:
    """A table ready to be printed.

    Attributes:
        id: The experiment's id, made unique by what follows it.
        title: What it shows.
        caption: Of which dataset, with which backbone, over which samples, domains and seeds.
        columns: Left to right.
        rows: Top to bottom.
        footnotes: What entries with a note are about.
        wide: One column a domain: a heat map is the better picture.
    """

    id: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    footnotes: tuple[str, ...] = ()
    wide: bool = False

    @property
    def empty(self) -> bool:
        """Whether there is no number of ours in it."""
        return all(entry.ours is None for row in self.rows for entry in row.entries)


def stream_title(stream: str, dataset: str | None = None) -> str:
    """The heading over a stream's columns.

    Example:
        >>> stream_title("correlated"), stream_title("correlated", "harth"), stream_title("iid")
        ('Temporally correlated', 'Real stream', 'Uniformly distributed (i.i.d.)')
    """
    if stream == "iid":
        return "Uniformly distributed (i.i.d.)"
    real = dataset is not None and CORRELATED.get(dataset) == "chronological"
    return "Real stream" if real else "Temporally correlated"


def domain_title(dataset: str, domain: str) -> str:
    """A domain's name as a heading: a corruption in words, a user or a recording as it is called.

    Example:
        >>> domain_title("cifar10", "gaussian_noise"), domain_title("mnist", "dotted_line")
        ('Gaussian', 'Dotted line')
    """
    if dataset in DATASETS and DATASETS[dataset].stream == "chronological":
        return domain
    words = domain.removesuffix("_noise").removesuffix("_blur").removesuffix("_transform")
    words = words.removesuffix("_compression").replace("_", " ")
    return "JPEG" if words == "jpeg" else words.capitalize()


def coverage_text(dataset: str, coverage: Coverage, *, brief: bool = False) -> str:
    """What a mean was taken over, where that is less than everything; else the seeds alone.

    Args:
        dataset: The domains are of.
        coverage: Of the mean.
        brief: Leave out the names of the domains and whether they were regenerated.

    Example:
        >>> coverage_text("cifar10", Coverage(500, ("fog", "frost"), (0, 1, 2)))
        'first 500 samples of each domain, 2 of 15 domains (Fog, Frost), seeds 0–2'
        >>> coverage_text("cifar10", Coverage(500, ("fog", "frost"), (0,), regenerated=True), brief=True)
        'first 500 samples of each domain, 2 of 15 domains, seed 0'
    """
    words = ["regenerated"] if coverage.regenerated and not brief else []
    if coverage.samples is not None:
        words.append(f"first {coverage.samples:,} samples of each domain")
    domains = [name for name in coverage.domains if name not in ("train", "test")]
    whole = len(DATASETS[dataset].targets) if dataset in DATASETS else len(domains)
    if domains and len(domains) < whole:
        names = ", ".join(domain_title(dataset, name) for name in domains)
        words.append(f"{len(domains)} of {whole} domains" + ("" if brief else f" ({names})"))
    words.append(_seeds(coverage.seeds))
    return ", ".join(words)


def usual(coverages: Sequence[Coverage]) -> Coverage:
    """The coverage that most have; of several, the one over most domains."""
    found = Counter(coverages)
    most = max(found.values())
    return max((c for c, n in found.items() if n == most), key=lambda c: (len(c.domains), str(c)))


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 2:
        return f"seeds {seeds[0]}–{seeds[-1]}"
    return "seeds " + ", ".join(map(str, seeds))


def finish(
    experiment: Experiment,
    label: str,
    columns: Sequence[Column],
    entries: dict[str, list[Entry]],
    subjects: Sequence[str],
    subject: str = "",
    suffix: str = "",
    *,
    wide: bool = False,
) -> Table:
    """Make a table: mark the lowest and the worse than Source; title and footnotes tell what means are over.

    Args:
        experiment: What it is a table of.
        label: The setup in words.
        columns: Left to right.
        entries: One list a row, by variant.
        subjects: The dataset of each column; empty for an average over datasets.
        subject: What the title adds about the table's dataset.
        suffix: What the id adds.
        wide: Whether there is one column a domain.
    """
    common: dict[str, Coverage] = {}
    for name in dict.fromkeys(subjects):
        column_entries = [
            line[i] for line in entries.values() for i, own in enumerate(subjects) if own == name
        ]
        found = [entry.coverage for entry in column_entries if entry.coverage]
        if name and found:
            common[name] = usual(found)
    footnotes: list[str] = []
    rows = []
    for row, line in entries.items():
        marked = []
        for i, entry in enumerate(line):
            note = 0
            shared = common.get(subjects[i])
            if entry.ours and entry.coverage and shared and not _alike(entry.coverage, shared):
                text = coverage_text(subjects[i], entry.coverage)
                if text not in footnotes:
                    footnotes.append(text)
                note = footnotes.index(text) + 1
            marked.append(
                replace(
                    entry,
                    note=note,
                    best=_is_best(entry, entries, i),
                    worse=_is_worse(entry, entries, row, i),
                )
            )
        rows.append(Row(row, experiment.label(row), tuple(marked)))
    over = {name: coverage_text(name, coverage) for name, coverage in common.items()}
    if len(set(over.values())) > 1:
        over = {name: f"{TITLES[name]}: {text}" for name, text in over.items()}
    caption = " · ".join(part for part in (subject, label, "; ".join(dict.fromkeys(over.values()))) if part)
    slug = "-".join(part for part in (experiment.id, suffix, _slug(label)) if part)
    return Table(slug, experiment.title, caption, tuple(columns), tuple(rows), tuple(footnotes), wide)


def _alike(one: Coverage, other: Coverage) -> bool:
    return (
        one.samples == other.samples
        and one.seeds == other.seeds
        and (one.domains == other.domains or one.domains == ("test",) or other.domains == ("test",))
    )


def _is_best(entry: Entry, entries: dict[str, list[Entry]], i: int) -> bool:
    """Whether it is the lowest of its column; one that is over other samples than most is not compared."""
    column = [line[i] for line in entries.values() if line[i].ours]
    coverages = [other.coverage for other in column if other.coverage]
    shared = usual(coverages) if coverages else None
    values = [round(other.ours.mean, 1) for other in column if other.ours and _comparable(other, shared)]
    return (
        entry.ours is not None
        and _comparable(entry, shared)
        and len(values) > 1
        and round(entry.ours.mean, 1) == min(values)
    )


def _is_worse(entry: Entry, entries: dict[str, list[Entry]], row: str, i: int) -> bool:
    """Whether it is above Source, where both are over the same samples."""
    source = entries["source"][i] if "source" in entries else Entry(None)
    if entry.ours is None or source.ours is None or row == "source":
        return False
    return _comparable(entry, source.coverage) and round(entry.ours.mean, 1) > round(source.ours.mean, 1)


def _comparable(entry: Entry, coverage: Coverage | None) -> bool:
    return entry.coverage is None or coverage is None or _alike(entry.coverage, coverage)


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() or c in "*-" else "-" for c in text.lower()).replace("--", "-").strip("-")
