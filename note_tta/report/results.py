"""Results put in order: by row and setup, averaged over domains, with the spread over seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean, pstdev
from typing import NamedTuple

from ..data import DATASETS
from ..experiments.catalog import EXPERIMENTS, TITLES, Point, template_for
from ..experiments.cell import Cell, Options, Stream
from ..experiments.paper import Number, paper_number
from ..experiments.store import Record

__all__ = ["Coverage", "Other", "Results", "Score", "Setup", "average"]

SOURCE_DOMAINS = ("train", "test")

_ByDomain = dict[str, dict[int, Record]]


class Setup(NamedTuple):
    """What rows of one table have in common beside the dataset: the backbone, and how the data was opened."""

    model: str
    width: int | None = None
    checkpoint: str = ""
    data_options: Options = ()

    def label(self, dataset: str) -> str:
        """The setup in words; empty for the paper's own backbone.

        Example:
            >>> Setup("resnet18").label("cifar10"), Setup("resnet18", 16).label("cifar10")
            ('', 'resnet18, width 16')
        """
        others = self.besides(dataset)
        named = self.model == _usual_network(dataset) and (self.width or self.checkpoint)
        return f"{self.model}, {others}" if named else others

    def besides(self, dataset: str) -> str:
        """What differs from the paper's backbone, in words: the same for setups that share a table.

        Example:
            >>> Setup("resnet18", 16).besides("cifar10"), Setup("resnet18_imagenet", 16).besides("imagenet")
            ('width 16', 'width 16')
        """
        words = [] if self.model == _usual_network(dataset) else [self.model]
        words += [f"width {self.width}"] if self.width else []
        words += [self.checkpoint] if self.checkpoint else []
        words += [f"{name} {value}" for name, value in self.data_options]
        return ", ".join(words)

    def paper(self, dataset: str, stream: str, row: str, domain: str | None = None) -> Number | None:
        """The paper's number to set beside; none where the data was opened in another way than the paper's.

        Example:
            >>> Setup("resnet20").paper("cifar10", "correlated", "note")
            Number(mean=21.1, std=0.6)
            >>> Setup("resnet20", data_options=(("severity", 3),)).paper("cifar10", "correlated", "note")
        """
        return None if self.data_options else paper_number(dataset, stream, row, domain)


def _usual_network(dataset: str) -> str | None:
    return DATASETS[dataset].network if dataset in DATASETS else None


class Coverage(NamedTuple):
    """Over what a mean was taken."""

    samples: int | None
    domains: tuple[str, ...]
    seeds: tuple[int, ...]
    regenerated: bool = False


@dataclass(frozen=True)
class Score:
    """A row's error on a dataset: mean over domains, ± standard deviation over seeds.

    Attributes:
        number: The mean and, with more than one seed, the population standard deviation of the seeds' means.
        by_domain: The same for each domain.
        coverage: What the mean is over.
        records: The results behind it, by domain, then seed.
    """

    number: Number
    by_domain: dict[str, Number]
    coverage: Coverage
    records: dict[str, dict[int, Record]]


class Other(NamedTuple):
    """A row of no experiment, its score, and the score of the row without its options over the same."""

    row: Cell
    score: Score
    plain: Score | None = None


class Results:
    """Results by row.

    Args:
        records: Any number of results, in any order.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = sorted(records, key=lambda record: record.job.describe())
        self.streams = {record.job: record for record in self.records if isinstance(record.job, Stream)}
        self._rows: dict[Cell, dict[int | None, _ByDomain]] = {}
        for record in self.records:
            if isinstance(record.job, Cell):
                stream = record.job.stream
                groups = self._rows.setdefault(record.job.row(), defaultdict(lambda: defaultdict(dict)))
                groups[stream.samples][stream.domain][stream.seed] = record

    def setups(self, dataset: str) -> list[Setup]:
        """The setups there are results of for a dataset: the paper's backbone first, then by name."""
        found = {
            Setup(cell.model, cell.width, cell.checkpoint, cell.stream.data_options)
            for cell in self._rows
            if cell.stream.dataset == dataset
        }
        return sorted(found, key=lambda setup: (setup.label(dataset) != "", repr(setup)))

    def score(
        self,
        dataset: str,
        setup: Setup,
        variant: str,
        point: Point | None = None,
        *,
        source: bool = False,
        over: Coverage | None = None,
    ) -> Score | None:
        """A row's score, from the most complete group of its results; None where there are none.

        Args:
            dataset: The dataset.
            setup: The backbone and how the data was opened.
            variant: The row.
            point: The stream and batch size; None for the paper's correlated stream.
            source: Of the source's held-out domain in the place of the targets.
            over: The samples, domains and seeds to take; None is the answer where not all of them are there.
        """
        row = _row(dataset, setup, variant, point)
        if over is not None:
            found = self._groups(row).get(over.samples, {})
            if not all(found.get(name, {}).keys() >= set(over.seeds) for name in over.domains):
                return None
            return _score(over.samples, found, dict.fromkeys(over.domains, over.seeds))
        return self.score_of(row, source=source)

    def score_of(self, row: Cell, *, source: bool = False) -> Score | None:
        """The score of a row that is given as a cell without domain, seed and samples."""
        groups = self._groups(row, source)
        scores = [_score(samples, by_domain) for samples, by_domain in groups.items()]
        return max(scores, key=_completeness, default=None)

    def pair(
        self, dataset: str, setup: Setup, one: tuple[str, Point], other: tuple[str, Point]
    ) -> tuple[Score, Score] | None:
        """The scores of two rows, each a variant at a point, over what both have; None where that is nothing.

        The domains and seeds are those they share. So are the numbers of samples, unless streams of different
        length share more domains.
        """
        return self.pair_of(_row(dataset, setup, *one), _row(dataset, setup, *other))

    def pair_of(self, one: Cell, other: Cell) -> tuple[Score, Score] | None:
        """`pair` of rows that are given as cells without domain, seed and samples."""
        first, second = self._groups(one), self._groups(other)
        pairs = []
        for samples, ours in first.items():
            for their_samples, theirs in second.items():
                shared = {name: ours[name].keys() & theirs[name].keys() for name in ours.keys() & theirs}
                shared = {name: seeds for name, seeds in shared.items() if seeds}
                if shared:
                    pairs.append((_score(samples, ours, shared), _score(their_samples, theirs, shared)))
        return max(pairs, key=_fairness, default=None)

    def _groups(self, row: Cell, source: bool = False) -> dict[int | None, _ByDomain]:
        """A row's results by the number of samples: those on the targets, or on the source's own domains."""
        groups = {
            samples: {name: seeds for name, seeds in found.items() if (name in SOURCE_DOMAINS) == source}
            for samples, found in self._rows.get(row, {}).items()
        }
        return {samples: by_domain for samples, by_domain in groups.items() if by_domain}

    def others(self) -> list[Other]:
        """The rows that are part of no experiment."""
        found = []
        for row in sorted(self._rows, key=lambda row: row.describe().rpartition(", seed")):
            setup, dataset = (
                Setup(row.model, row.width, row.checkpoint, row.stream.data_options),
                row.stream.dataset,
            )
            if dataset in TITLES and row in _rows_of_experiments(dataset, setup):
                continue
            score = self.score_of(row)
            if score is not None:
                plain = replace(row, method_options=(), norm_options=())
                pair = self.pair_of(row, plain) if plain != row else None
                found.append(Other(row, pair[0], pair[1]) if pair else Other(row, score))
        return found


@lru_cache(maxsize=64)
def _rows_of_experiments(dataset: str, setup: Setup) -> frozenset[Cell]:
    """Every row of every experiment on a dataset with a setup."""
    return frozenset(
        template_for(dataset, variant, point, **setup._asdict()).row()
        for experiment in EXPERIMENTS.values()
        for variant in (*experiment.rows, *experiment.more)
        for point in experiment.points or [Point(stream) for stream in experiment.streams]
    )


def average(numbers: Sequence[Number | None]) -> Number | None:
    """The mean of numbers, None where one is missing.

    Example:
        >>> average([Number(1.0), Number(2.0, 0.1)]), average([Number(1.0), None])
        (Number(mean=1.5, std=None), None)
    """
    present = [number.mean for number in numbers if number is not None]
    return Number(fmean(present)) if present and len(present) == len(numbers) else None


def _row(dataset: str, setup: Setup, variant: str, point: Point | None) -> Cell:
    return template_for(dataset, variant, point, **setup._asdict()).row()


def _completeness(score: Score) -> tuple[int, float, int]:
    samples = score.coverage.samples
    return (
        len(score.coverage.domains),
        float("inf") if samples is None else samples,
        len(score.coverage.seeds),
    )


def _fairness(pair: tuple[Score, Score]) -> tuple[int, bool, tuple[int, float, int], tuple[int, float, int]]:
    one, other = pair
    alike = one.coverage.samples == other.coverage.samples
    return len(one.coverage.domains), alike, _completeness(one), _completeness(other)


def _score(
    samples: int | None, by_domain: _ByDomain, only: Mapping[str, Collection[int]] | None = None
) -> Score:
    """Average over the domains that the seeds share; a seed that a stopped run left behind does not count.

    Args:
        samples: How many samples of each domain were used.
        by_domain: The results.
        only: The seeds to use, by domain; None for all.
    """
    if only is not None:
        by_domain = {
            name: {seed: record for seed, record in by_domain[name].items() if seed in seeds}
            for name, seeds in only.items()
        }
    counts: dict[int, int] = defaultdict(int)
    for seeds in by_domain.values():
        for seed in seeds:
            counts[seed] += 1
    full = max(counts.values())
    chosen = sorted(seed for seed, count in counts.items() if count == full)
    domains = sorted(name for name, seeds in by_domain.items() if all(seed in seeds for seed in chosen))
    if not domains:
        chosen = chosen[:1]
        domains = sorted(name for name, seeds in by_domain.items() if chosen[0] in seeds)
    records = {name: {seed: by_domain[name][seed] for seed in chosen} for name in domains}
    errors = {name: [_error(record) for record in seeds.values()] for name, seeds in records.items()}
    means = [fmean(column) for column in zip(*errors.values(), strict=True)]
    regenerated = any(
        record.provenance.get("data", {}).get("origin") == "regenerated"
        for seeds in records.values()
        for record in seeds.values()
    )
    return Score(
        _number(means),
        {name: _number(values) for name, values in errors.items()},
        Coverage(samples, tuple(domains), tuple(chosen), regenerated),
        records,
    )


def _error(record: Record) -> float:
    return float(record.result.get("error", 0.0))


def _number(values: Sequence[float]) -> Number:
    return Number(fmean(values), pstdev(values) if len(values) > 1 else None)
