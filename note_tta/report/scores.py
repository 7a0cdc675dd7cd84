"""Scores: the error of each row, averaged over domains, with its spread over seeds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean, pstdev
from typing import NamedTuple

from ..data import DATASETS
from ..experiments.catalog import EXPERIMENTS
from ..experiments.cell import Cell, Options, Stream
from ..experiments.experiment import Point, template_for
from ..experiments.store import Record
from ..models import MODELS
from .coverage import Coverage
from .paper_numbers import Number, paper_number

SOURCE_DOMAINS = ("train", "test")

_Runs = dict[tuple[str, int], Record]
"""Results by domain and seed."""


class Setup(NamedTuple):
    """What the rows of a table share: the dataset with its options, and the backbone."""

    dataset: str
    model: str
    width: int | None = None
    checkpoint: str = ""
    data_options: Options = ()

    @classmethod
    def of(cls, cell: Cell) -> Setup:
        """The setup of a cell."""
        return cls(cell.stream.dataset, cell.model, cell.width, cell.checkpoint, cell.stream.data_options)

    def row(self, variant: str, point: Point | None = None) -> Cell:
        """A row of this setup: a cell without domain, seed and samples."""
        return template_for(point=point, variant=variant, **self._asdict()).row()

    @property
    def label(self) -> str:
        """The setup in words; empty for the paper's own backbone.

        Example:
            >>> Setup("cifar10", "resnet18").label, Setup("cifar10", "resnet18", 16).label
            ('', 'resnet18, width 16')
        """
        named = self._usual and (self.width or self.checkpoint)
        return f"{self.model}, {self.besides}" if named else self.besides

    @property
    def besides(self) -> str:
        """How the setup differs from the paper's, in words; setups with the same words share a table.

        Example:
            >>> Setup("cifar10", "resnet18", 16).besides, Setup("imagenet", "resnet18_imagenet", 16).besides
            ('width 16', 'width 16')
        """
        words = [] if self._usual else [self.model]
        words += [f"width {self.width}"] if self.width else []
        words += [self.checkpoint] if self.checkpoint else []
        words += [f"{name} {value}" for name, value in self.data_options]
        return ", ".join(words)

    @property
    def _usual(self) -> bool:
        return self.dataset in DATASETS and self.model == DATASETS[self.dataset].network

    @property
    def title(self) -> str:
        """The dataset's title and the setup in words."""
        return DATASETS[self.dataset].title + (f" · {self.label}" if self.label else "")

    @property
    def has_batch_norm(self) -> bool:
        """Whether the network is of the kind that the paper is about."""
        return self.model not in MODELS or "bn" in MODELS[self.model].norms

    def paper(self, stream: str, variant: str, domain: str | None = None) -> Number | None:
        """The paper's error for comparison; None if the data has other options, or the network no BatchNorm.

        Example:
            >>> Setup("cifar10", "resnet20").paper("correlated", "note")
            Number(mean=21.1, std=0.6)
            >>> Setup("cifar10", "resnet20", data_options=(("severity", 3),)).paper("correlated", "note")
        """
        if self.data_options or self.dataset not in DATASETS or not self.has_batch_norm:
            return None
        only = DATASETS[self.dataset].targets == (domain,)  # the mean is over this domain
        return paper_number(self.dataset, stream, variant, None if only else domain)


@dataclass(frozen=True)
class Score:
    """A row's error: mean over domains and, with more than one seed, the deviation of the seeds' means."""

    number: Number
    by_domain: dict[str, Number]
    coverage: Coverage
    records: dict[str, list[Record]]  # the results behind it: by domain, one per seed


class Other(NamedTuple):
    """A row that is in no experiment, its score, and for comparison the score without the row's options."""

    row: Cell
    score: Score
    plain: Score | None = None


class Scores:
    """The scores of some results, in any order."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = sorted(records, key=lambda record: record.job.describe())
        self.streams = {record.job: record for record in self.records if isinstance(record.job, Stream)}
        self._rows: dict[Cell, dict[int | None, _Runs]] = {}
        for record in self.records:
            if isinstance(record.job, Cell):
                stream = record.job.stream
                groups = self._rows.setdefault(record.job.row(), defaultdict(dict))
                for domain in record.result.get("visits", [stream.domain]):
                    groups[stream.samples][domain, stream.seed] = record

    def setups(self, *datasets: str) -> list[Setup]:
        """The setups with results, by dataset (by default all): the paper's backbone first, then by name."""
        order = {name: place for place, name in enumerate(datasets or DATASETS)}
        found = {Setup.of(row) for row in self._rows if row.stream.dataset in order}
        return sorted(found, key=lambda setup: (order[setup.dataset], setup.label != "", repr(setup)))

    def main_setup(self, dataset: str, model: str | None = None, option: str = "") -> Setup | None:
        """The setup whose Source row covers the most samples, domains and seeds.

        It has the paper's data options, or one `option` such as `severity=3`; with `model` it is of that network.
        """
        named = [setup for setup in self.setups(dataset) if model in (None, setup.model)]
        named = [s for s in named if ",".join(f"{name}={value}" for name, value in s.data_options) == option]
        found = {setup: score for setup in named if (score := self.of(setup.row("source")))}
        return max(found, key=lambda setup: _completeness(found[setup]), default=None)

    def of(self, row: Cell, *, source: bool = False, over: Coverage | None = None) -> Score | None:
        """A row's score, from the most complete group of its results; None if there are none.

        With `source` it is on the source's held-out domain, not on the targets. With `over` it is over these samples,
        domains and seeds, and None if one of them is missing.
        """
        groups = self._groups(row, source)
        if over is None:
            scores = [_score(samples, runs) for samples, runs in groups.items()]
            return max(scores, key=_completeness, default=None)
        runs = groups.get(over.samples, {})
        wanted = [(domain, seed) for domain in over.domains for seed in over.seeds]
        if not all(key in runs for key in wanted):
            return None
        return _score(over.samples, {key: runs[key] for key in wanted})

    def together(self, rows: Mapping[str, Cell]) -> dict[str, Score | None]:
        """The scores of rows that are shown side by side: over the seeds that all of them have, if there are any.

        A row over other samples or domains than the most complete one keeps its own seeds.
        """
        scores = {name: self.of(row) for name, row in rows.items()}
        found = [score for score in scores.values() if score]
        if not found:
            return scores
        most = max(found, key=_completeness).coverage
        seeds = [{*each.coverage.seeds} for each in found if each.coverage._replace(seeds=most.seeds) == most]
        over = most._replace(seeds=tuple(sorted(set.intersection(*seeds))))
        if not over.seeds:
            return scores
        return {name: self.of(row, over=over) or scores[name] for name, row in rows.items()}

    def pair(self, one: Cell, other: Cell) -> tuple[Score, Score] | None:
        """The scores of two rows over the domains and seeds that both have; None if they share none.

        The numbers of samples are the same too, unless streams of different lengths share more domains.
        """
        pairs = []
        for samples, ours in self._groups(one).items():
            for their_samples, theirs in self._groups(other).items():
                shared = [key for key in ours if key in theirs]
                if shared:
                    first = _score(samples, {key: ours[key] for key in shared})
                    pairs.append((first, _score(their_samples, {key: theirs[key] for key in shared})))
        return max(pairs, key=_fairness, default=None)

    def others(self) -> list[Other]:
        """The rows that are part of no experiment."""
        found = []
        for row in sorted(self._rows, key=lambda row: row.text):
            setup = Setup.of(row)
            score = self.of(row)
            if score is None or (setup.dataset in DATASETS and row in _rows_of_experiments(setup)):
                continue
            plain = replace(row, method_options=(), norm_options=())
            pair = self.pair(row, plain) if plain != row else None
            found.append(Other(row, *(pair or (score,))))
        return found

    def facts(self) -> list[tuple[str, str]]:
        """Where the results come from: versions, commits, machines, data and computing time."""
        origins = [record.provenance for record in self.records]

        def seen(name: str) -> str:
            return ", ".join(sorted({str(origin[name]) for origin in origins if origin.get(name)})) or "–"

        dirty = sum(bool(origin.get("dirty")) for origin in origins)
        hours = sum(float(origin.get("wall_seconds", 0.0)) for origin in origins) / 3600
        drawn = f" and {len(self.streams)} streams drawn" if self.streams else ""
        data = sorted({origin["data"]["origin"] for origin in origins if "data" in origin})
        return [
            ("Runs", f"{len(origins) - len(self.streams):,}{drawn}, {hours:.1f} hours of computing"),
            ("Versions", f"note-tta {seen('version')}; torch {seen('torch')}; Python {seen('python')}"),
            ("Commits", seen("commit") + (f" ({dirty:,} runs from a changed tree)" if dirty else "")),
            ("Machines", seen("machine")),
            ("Data", ", ".join(data) or "–"),
        ]

    def _groups(self, row: Cell, source: bool = False) -> dict[int | None, _Runs]:
        """A row's results by the number of samples: those on the targets, or on the source's own domains."""
        groups = {
            samples: {key: record for key, record in runs.items() if (key[0] in SOURCE_DOMAINS) == source}
            for samples, runs in self._rows.get(row, {}).items()
        }
        return {samples: runs for samples, runs in groups.items() if runs}


@lru_cache(maxsize=64)
def _rows_of_experiments(setup: Setup) -> frozenset[Cell]:
    """Every row of every experiment with a setup."""
    return frozenset(
        setup.row(variant, point)
        for experiment in EXPERIMENTS.values()
        for variant in (*experiment.rows, *experiment.more)
        for point in experiment.points
    )


def visit_errors(score: Score) -> list[float]:
    """The error of each visit of a recurring stream: the mean over domains and seeds."""
    runs = [record.result["visits"][name] for name, found in score.records.items() for record in found]
    return [fmean(errors) for errors in zip(*runs, strict=True)]


def average(numbers: Sequence[Number | None]) -> Number | None:
    """The mean of numbers; None if one is missing.

    Example:
        >>> average([Number(1.0), Number(2.0, 0.1)]), average([Number(1.0), None])
        (Number(mean=1.5, std=None), None)
    """
    present = [number.mean for number in numbers if number is not None]
    return Number(fmean(present)) if present and len(present) == len(numbers) else None


def _completeness(score: Score) -> tuple[int, float, int]:
    samples, domains, seeds, _ = score.coverage
    return len(domains), float("inf") if samples is None else samples, len(seeds)


def _fairness(pair: tuple[Score, Score]) -> tuple[object, ...]:
    one, other = pair
    alike = one.coverage.samples == other.coverage.samples
    return len(one.coverage.domains), alike, _completeness(one), _completeness(other)


def _score(samples: int | None, runs: _Runs) -> Score:
    """Average over the domains that the seeds share. A seed with fewer domains, left by a stopped run, is ignored."""
    counts = Counter(seed for _, seed in runs)
    seeds = sorted(seed for seed, count in counts.items() if count == max(counts.values()))
    names = sorted({domain for domain, _ in runs})
    domains = [name for name in names if all((name, seed) in runs for seed in seeds)]
    if not domains:  # the seeds are of different domains
        seeds = seeds[:1]
        domains = [name for name in names if (name, seeds[0]) in runs]
    records = {name: [runs[name, seed] for seed in seeds] for name in domains}
    errors = {name: [_error(record, name) for record in found] for name, found in records.items()}
    used = [record for found in records.values() for record in found]
    origins = {record.provenance.get("data", {}).get("origin") for record in used}
    return Score(
        _number([fmean(column) for column in zip(*errors.values(), strict=True)]),
        {name: _number(values) for name, values in errors.items()},
        Coverage(samples, tuple(domains), tuple(seeds), "regenerated" in origins),
        records,
    )


def _error(record: Record, domain: str) -> float:
    """The error on a domain; in a stream of several domains, the mean over its visits."""
    return fmean(record.result["visits"][domain] if "visits" in record.result else [record.result["error"]])


def _number(values: Sequence[float]) -> Number:
    return Number(fmean(values), pstdev(values) if len(values) > 1 else None)
