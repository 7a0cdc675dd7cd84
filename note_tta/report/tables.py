"""Tables as data: our errors beside the paper's, and what each mean is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import fmean

from ..data import DATASETS
from ..experiments.catalog import EXPERIMENTS
from ..experiments.experiment import DELTA, Experiment, Point
from ..experiments.variants import METHOD_ROWS
from .coverage import Coverage, comparable, coverage_text, domain_title, stream_title, usual
from .paper_numbers import Number, paper_average
from .scores import Score, Scores, Setup, average, visit_errors

Setups = dict[str, Setup]
"""One setup per dataset; they share a table."""


@dataclass(frozen=True)
class Entry:
    """A cell of a table."""

    ours: Number | None = None
    paper: Number | None = None
    coverage: Coverage | None = None  # what our mean is over
    best: bool = False  # whether ours is the lowest of its column, in printed digits
    worse: bool = False  # whether ours is above Source's in the same column
    note: int = 0  # the number of a footnote; 0 for none

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, of the printed digits."""
        if self.ours is None or self.paper is None:
            return None
        return round(round(self.ours.mean, 1) - self.paper.mean, 1)


@dataclass(frozen=True)
class Column:
    """A column: its entries by row."""

    title: str
    entries: dict[str, Entry]
    group: str = ""  # the stream, as a heading over several columns
    dataset: str = ""  # empty for an average over datasets
    run_text: str = ""  # the mean run length of its streams in words; empty if it is not known


@dataclass(frozen=True)
class Table:
    """A table ready to be printed."""

    id: str  # the experiment's id and what sets this table apart
    title: str
    caption: str  # the dataset, the backbone, and the samples, domains and seeds
    columns: tuple[Column, ...]
    rows: dict[str, str]  # top to bottom, each variant's name in this table
    footnotes: tuple[str, ...] = ()
    wide: bool = False  # whether it has a column per domain and is better shown as a heat map
    usual: bool = True  # whether data and network are of the paper's kind, so that an overview shows it

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The headings over the columns, and how many columns each spans."""
        return [(name, len(list(part))) for name, part in groupby(column.group for column in self.columns)]

    def entries(self, row: str) -> list[Entry]:
        """A row's entries, left to right."""
        return [column.entries[row] for column in self.columns]


def make_tables(experiment: Experiment, scores: Scores) -> list[Table]:
    """Every table of an experiment that has results, one per setup."""
    makers: dict[str, Callable[[Experiment, Scores, str, Setups], Iterator[Table]]] = {
        "table": _by_dataset,
        "methods": _of_methods,
        "domains": _by_domain,
        "source": _of_source,
        "bars": _by_dataset,
        "sweep": _by_point,
        "visits": _by_visit,
    }
    if experiment.kind not in makers:
        return []
    return [
        replace(table, usual=all(_is_usual(experiment, setup) for setup in setups.values()))
        for label, setups in _groups(experiment, scores)
        for table in makers[experiment.kind](experiment, scores, label, setups)
        if any(e.ours for c in table.columns for e in c.entries.values())
        and (experiment.kind != "bars" or len(table.columns) > 1)  # bars compare two streams
    ]


def _is_usual(experiment: Experiment, setup: Setup) -> bool:
    """Whether an overview shows a setup's table: networks without BatchNorm are in the table of all methods."""
    return not setup.data_options and (setup.has_batch_norm or experiment.kind == "methods")


def in_paper_order(dataset: str, scores: Iterable[Score | None]) -> list[str]:
    """The domains of some scores in the paper's order; users by name."""
    names = {name for score in scores if score for name in score.coverage.domains}
    order = DATASETS[dataset].targets if dataset in DATASETS else ()
    return sorted(names, key=lambda name: (order.index(name) if name in order else -1, name))


def _groups(experiment: Experiment, scores: Scores) -> list[tuple[str, Setups]]:
    """Group the setups that share tables because they differ from the paper's in the same way, by name and dataset."""
    alike: dict[str, Setups] = {}
    for setup in scores.setups(*experiment.datasets):
        alike.setdefault(setup.besides, {})[setup.dataset] = setup
    named = []
    for besides, setups in alike.items():
        labels = {setup.label for setup in setups.values()}
        named.append((labels.pop() if len(labels) == 1 else besides, setups))
    return named


def _column(
    title: str,
    setup: Setup,
    scored: Mapping[str, Score | None],
    group: str = "",
    stream: str = "",
    domain: str | None = None,
    *,
    run: bool = False,
) -> Column:
    """A column of scores, beside the paper's numbers for a stream; on one domain, or the mean over all.

    With `run` its heading has the mean run length of the streams.
    """
    entries = {}
    for row, score in scored.items():
        paper = setup.paper(stream, row, domain) if stream else None
        entries[row] = Entry(paper=paper)
        if score is not None:
            ours = score.by_domain.get(domain) if domain else score.number
            entries[row] = Entry(ours, paper, score.coverage)
    length = mean_run(scored.values()) if run else None
    return Column(title, entries, group, setup.dataset, "" if length is None else f"runs of {length:.1f}")


def _by_dataset(experiment: Experiment, scores: Scores, label: str, setups: Setups) -> Iterator[Table]:
    """One column per dataset and stream, and the average over datasets."""
    scored = {
        (point, name): scores.together(
            {row: setup.row(row, point) for row in experiment.rows if experiment.has(row, point.stream)}
        )
        for point in experiment.points
        for name, setup in setups.items()
    }
    names = [name for name in setups if any(any(scored[p, name].values()) for p in experiment.points)]
    usual_data = not any(setup.data_options for setup in setups.values())
    columns: list[Column] = []
    for point, heading, alike in _headings(experiment, names):
        stream = point.stream
        found = [
            _column(DATASETS[name].title, setups[name], scored[point, name], heading, stream, run=True)
            for name in alike
            if any(scored[point, name].values())
        ]
        columns += found
        if len(found) == len(alike) > 1:
            known = usual_data and alike == experiment.datasets
            means = {row: average([column.entries[row].ours for column in found]) for row in found[0].entries}
            papers = {row: paper_average(alike, stream, row) if known else None for row in means}
            columns.append(Column("Avg", {row: Entry(means[row], papers[row]) for row in means}, heading))
    most = max((_measured(column) for column in columns), default=0)
    yield _table(experiment, label, [c for c in columns if _measured(c) > 1 or most == 1], experiment.rows)


def _headings(experiment: Experiment, names: Sequence[str]) -> Iterator[tuple[Point, str, tuple[str, ...]]]:
    """Each stream's headings, and the datasets under each: real streams are not averaged with drawn ones."""
    for point in experiment.points:
        headings = {name: stream_title(point.stream, name) for name in names}
        for heading in dict.fromkeys(headings.values()):
            yield point, heading, tuple(name for name in names if headings[name] == heading)


def _measured(column: Column) -> int:
    """How many rows of a column have our error: one row alone compares nothing."""
    return sum(entry.ours is not None for entry in column.entries.values())


def _of_methods(experiment: Experiment, scores: Scores, label: str, setups: Setups) -> Iterator[Table]:
    """All methods with results by dataset, unless the paper's own tables show them all already."""
    shown = {name for other in EXPERIMENTS.values() if other is not experiment for name in other.datasets}
    found = {
        (name, row): score
        for name, setup in setups.items()
        for row in experiment.rows
        if (score := scores.of(setup.row(row)))
    }
    if any(name not in shown or row not in METHOD_ROWS for name, row in found):
        rows = tuple(row for row in experiment.rows if any(row == other for _, other in found))
        yield from _by_dataset(replace(experiment, rows=rows), scores, label, setups)


def _by_domain(experiment: Experiment, scores: Scores, label: str, setups: Setups) -> Iterator[Table]:
    """One column per domain and their average; one table per stream, and one for the ablation."""
    for dataset, setup in setups.items():
        more = experiment.ablations_of(dataset)
        for point in experiment.points_of(dataset):
            stream = point.stream
            for rows in (experiment.rows, ("source", *more, "note") if more else ()):
                wanted = [row for row in rows if experiment.has(row, stream)]
                found = scores.together({row: setup.row(row, point) for row in wanted})
                ablation = rows is not experiment.rows
                own = [row for row in found if found[row] and (row in more or not ablation)]
                if len(own) <= (0 if ablation else 1):
                    continue
                heading = stream_title(stream, dataset)
                columns = [
                    _column(domain_title(dataset, name), setup, found, heading, stream, name)
                    for name in in_paper_order(dataset, found.values())
                ]
                columns.append(_column("Avg", setup, found, heading, stream, run=True))
                subject = f"{DATASETS[dataset].title}, {heading[0].lower()}{heading[1:]}"
                words = stream if experiment.datasets == (dataset,) else f"{dataset}-{stream}"
                if ablation:
                    subject, words = f"{subject}, ablation", f"{words}-ablation"
                yield _table(experiment, label, columns, wanted, subject, words, wide=True)


def _of_source(experiment: Experiment, scores: Scores, label: str, setups: Setups) -> Iterator[Table]:
    """The source's own domain, then every target and their average."""
    for dataset, setup in setups.items():
        home = {row: scores.of(setup.row(row), source=True) for row in experiment.rows}
        away = {row: scores.of(setup.row(row)) for row in experiment.rows}
        if not any(home.values()):
            continue
        columns = [_column("Source domain", setup, home)]
        domains = in_paper_order(dataset, away.values())
        for name in [*domains, None]:
            stream = "correlated" if name is None or len(domains) == 1 else ""
            title = domain_title(dataset, name) if name else "Avg"
            columns.append(_column(title, setup, away, "Targets", stream, name))
        yield _table(experiment, label, columns, experiment.rows, DATASETS[dataset].title, dataset)


def _by_point(experiment: Experiment, scores: Scores, label: str, setups: Setups) -> Iterator[Table]:
    """One column per point of a sweep, each over what all points have results for."""
    for dataset, setup in setups.items():
        found = [scores.of(setup.row("note", point)) for point in experiment.points]
        covered = [score.coverage for score in found if score is not None]
        over = min(covered, key=lambda coverage: (len(coverage.domains), len(coverage.seeds)), default=None)
        whole = over is None or len(over.domains) == len(DATASETS[dataset].targets)
        columns = []
        for point in experiment.points:
            default = point.batch_size == 64 and (point.stream == "iid" or point.delta == DELTA)
            scored = {row: scores.of(setup.row(row, point), over=over) for row in experiment.rows}
            paper = point.stream if whole and default else ""
            columns.append(_column(point.label, setup, scored, stream=paper))
        fixed = ("source", "onda")  # they have one error for all sizes
        measured = [any(e.ours for row, e in c.entries.items() if row not in fixed) for c in columns]
        if sum(measured) >= 3:  # a sweep needs points beside those it shares with Table 1
            yield _table(experiment, label, columns, experiment.rows, DATASETS[dataset].title, dataset)


def _by_visit(experiment: Experiment, scores: Scores, label: str, setups: Setups) -> Iterator[Table]:
    """Every fifth visit of a recurring stream, and the mean over all."""
    (point,) = experiment.points
    for dataset, setup in setups.items():
        found = scores.together({row: setup.row(row, point) for row in experiment.rows})
        errors = {row: (visit_errors(score), score.coverage) for row, score in found.items() if score}
        columns = []
        for visit in [0, *range(4, point.visits, 5)]:
            entries = {
                row: Entry(Number(values[visit]) if visit < len(values) else None, None, coverage)
                for row, (values, coverage) in errors.items()
            }
            columns.append(Column(f"Visit {visit + 1}", entries, "", dataset))
        if errors:
            columns.append(_column("Avg", setup, found, run=True))
            yield _table(experiment, label, columns, experiment.rows, DATASETS[dataset].title, dataset)


def mean_run(scores: Iterable[Score | None]) -> float | None:
    """The mean run length of a column's streams, which its rows share."""
    for score in scores:
        if score is not None:
            records = [record for found in score.records.values() for record in found]
            lengths = [r.result["mean_run_length"] for r in records if "mean_run_length" in r.result]
            return fmean(lengths) if len(lengths) == len(records) else None
    return None


def _table(
    experiment: Experiment,
    label: str,
    columns: Sequence[Column],
    rows: Sequence[str],
    subject: str = "",
    suffix: str = "",
    *,
    wide: bool = False,
) -> Table:
    """Make a table: mark the lowest errors and those above Source; title and footnotes say what the means are over.

    `subject` and `suffix` are what the title and the id add about the table's dataset.
    """
    rows = [row for row in rows if any(e.ours or e.paper for c in columns if (e := c.entries.get(row)))]
    common: dict[str, Coverage] = {}
    for name in dict.fromkeys(column.dataset for column in columns if column.dataset):
        entries = [entry for column in columns if column.dataset == name for entry in column.entries.values()]
        if covered := [entry.coverage for entry in entries if entry.coverage]:
            common[name] = usual(covered)
    texts = [
        coverage_text(column.dataset, entry.coverage)
        for row in rows
        for column in columns
        if (entry := column.entries.get(row, Entry())).coverage
        and entry.ours
        and not comparable(entry.coverage, common[column.dataset])
    ]
    footnotes = list(dict.fromkeys(texts))
    over = {name: coverage_text(name, coverage) for name, coverage in common.items()}
    if len(set(over.values())) > 1:
        over = {name: f"{DATASETS[name].title}: {text}" for name, text in over.items()}
    return Table(
        "-".join(filter(None, (experiment.id, suffix, _slug(label)))),
        experiment.title,
        " · ".join(filter(None, (subject, label, "; ".join(dict.fromkeys(over.values()))))),
        tuple(_marked(column, rows, footnotes, common.get(column.dataset)) for column in columns),
        {row: experiment.label(row) for row in rows},
        tuple(footnotes),
        wide,
    )


def _marked(column: Column, rows: Sequence[str], footnotes: list[str], common: Coverage | None) -> Column:
    """Mark the lowest of a column, what is above Source over the same samples, and what has a footnote."""
    entries = {row: column.entries.get(row, Entry()) for row in rows}
    coverages = [entry.coverage for entry in entries.values() if entry.ours and entry.coverage]
    shared = usual(coverages) if coverages else None
    means = {row: round(entry.ours.mean, 1) for row, entry in entries.items() if entry.ours}
    lowest = [mean for row, mean in means.items() if comparable(entries[row].coverage, shared)]
    for row, mean in means.items():
        own = entries[row].coverage
        worse = "source" in means and mean > means["source"] and comparable(own, entries["source"].coverage)
        best = len(lowest) > 1 and mean == min(lowest) and comparable(own, shared)
        text = coverage_text(column.dataset, own) if own else ""
        note = 0 if comparable(own, common) else footnotes.index(text) + 1
        entries[row] = replace(entries[row], best=best, worse=worse, note=note)
    return replace(column, entries=entries)


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() or c in "*-" else "-" for c in text.lower()).replace("--", "-").strip("-")
