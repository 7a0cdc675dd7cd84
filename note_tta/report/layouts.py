"""How each kind of experiment is laid out as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..data import DATASETS
from ..experiments.catalog import DELTA, TITLES, Experiment, Point
from ..experiments.paper import paper_average
from .results import Coverage, Results, Score, Setup, average
from .tables import Column, Entry, Table, domain_title, finish, stream_title

__all__ = ["groups", "in_paper_order", "make_tables"]


def make_tables(experiment: Experiment, results: Results) -> list[Table]:
    """Every table of an experiment that there are results for, one a setup."""
    makers: dict[str, Callable[[Experiment, Results], list[Table]]] = {
        "table": _by_dataset,
        "domains": _by_domain,
        "source": _of_source,
        "bars": _by_dataset,
        "sweep": _by_point,
    }
    make = makers.get(experiment.kind)
    return [] if make is None else [table for table in make(experiment, results) if not table.empty]


def groups(experiment: Experiment, results: Results) -> dict[str, dict[str, Setup]]:
    """Setups that differ alike from the paper's backbones, by their name: each group shares its tables."""
    alike: dict[str, dict[str, Setup]] = {}
    for dataset in experiment.datasets:
        for setup in results.setups(dataset):
            alike.setdefault(setup.besides(dataset), {})[dataset] = setup
    named: dict[str, dict[str, Setup]] = {}
    for besides, setups in alike.items():
        labels = {setup.label(dataset) for dataset, setup in setups.items()}
        named[labels.pop() if len(labels) == 1 else besides] = setups
    return named


def _by_dataset(experiment: Experiment, results: Results) -> list[Table]:
    tables = []
    for label, setups in groups(experiment, results).items():
        names = [
            name
            for name in experiment.datasets
            if name in setups
            and any(
                results.score(name, setups[name], row, Point(stream))
                for row in experiment.rows
                for stream in experiment.streams
            )
        ]
        whole = tuple(names) == experiment.datasets
        columns: list[Column] = []
        entries: dict[str, list[Entry]] = {row: [] for row in experiment.rows}
        for stream in experiment.streams:
            group = stream_title(stream, names[0] if names else None)
            columns += [Column(TITLES[name], group) for name in names]
            columns += [Column("Avg", group)] if len(names) > 1 else []
            for row in experiment.rows:
                line = [_entry(results, name, setups[name], row, Point(stream)) for name in names]
                if len(names) > 1:
                    known = whole and not any(setup.data_options for setup in setups.values())
                    mean = paper_average(experiment.datasets, stream, row) if known else None
                    line.append(Entry(average([entry.ours for entry in line]), mean))
                if not experiment.has(row, stream):
                    line = [Entry()] * len(line)
                entries[row] += line
        subjects = [*names, ""] if len(names) > 1 else names
        tables.append(finish(experiment, label, columns, entries, subjects * len(experiment.streams)))
    return tables


def _by_domain(experiment: Experiment, results: Results) -> list[Table]:
    tables = []
    for label, setups in groups(experiment, results).items():
        for dataset, setup in setups.items():
            more = experiment.ablations_of(dataset)
            for stream in experiment.streams_of(dataset):
                for rows in (experiment.rows, ("source", *more, "note") if more else ()):
                    wanted = [row for row in rows if experiment.has(row, stream)]
                    scores = {row: results.score(dataset, setup, row, Point(stream)) for row in wanted}
                    ablation = rows is not experiment.rows
                    own = [row for row in scores if scores[row] and (row in more or not ablation)]
                    if len(own) > (0 if ablation else 1):
                        tables.append(
                            _domain_table(experiment, label, dataset, setup, stream, scores, ablation)
                        )
    return tables


def _domain_table(
    experiment: Experiment,
    label: str,
    dataset: str,
    setup: Setup,
    stream: str,
    scores: dict[str, Score | None],
    ablation: bool,
) -> Table:
    domains = in_paper_order(dataset, scores.values())
    heading = stream_title(stream, dataset)
    columns = [Column(domain_title(dataset, name), heading) for name in [*domains]] + [Column("Avg", heading)]
    entries = {}
    for row, score in scores.items():
        line = [
            Entry(
                score.by_domain.get(name) if score else None,
                setup.paper(dataset, stream, row, name),
                coverage=score.coverage if score else None,
            )
            for name in domains
        ]
        mean = setup.paper(dataset, stream, row)
        line.append(Entry(score.number if score else None, mean, coverage=score.coverage if score else None))
        entries[row] = line
    subject = f"{TITLES[dataset]}, {heading[0].lower()}{heading[1:]}" + (", ablation" if ablation else "")
    words = stream if experiment.datasets == (dataset,) else f"{dataset}-{stream}"
    words += "-ablation" if ablation else ""
    return finish(experiment, label, columns, entries, [dataset] * len(columns), subject, words, wide=True)


def _of_source(experiment: Experiment, results: Results) -> list[Table]:
    tables = []
    for label, setups in groups(experiment, results).items():
        for dataset, setup in setups.items():
            here = {row: results.score(dataset, setup, row, source=True) for row in experiment.rows}
            there = {row: results.score(dataset, setup, row) for row in experiment.rows}
            if not any(here.values()):
                continue
            domains = in_paper_order(dataset, there.values())
            columns = [Column("Source domain")]
            columns += [Column(domain_title(dataset, name), "Targets") for name in domains]
            columns.append(Column("Avg", "Targets"))
            entries = {}
            for row in experiment.rows:
                home, away = here[row], there[row]
                line = [Entry(home.number if home else None, coverage=home.coverage if home else None)]
                for name in [*domains, None]:
                    ours = None
                    if away is not None:
                        ours = away.number if name is None else away.by_domain.get(name)
                    only = name is None or len(domains) == 1
                    paper = setup.paper(dataset, "correlated", row) if only else None
                    line.append(Entry(ours, paper, coverage=away.coverage if away else None))
                entries[row] = line
            subjects = [dataset] * len(columns)
            tables.append(finish(experiment, label, columns, entries, subjects, TITLES[dataset], dataset))
    return tables


def _by_point(experiment: Experiment, results: Results) -> list[Table]:
    tables = []
    for label, setups in groups(experiment, results).items():
        for dataset, setup in setups.items():
            columns = [Column(point.label) for point in experiment.points]
            over = _narrowest(experiment, results, dataset, setup)
            whole = over is None or len(over.domains) == len(DATASETS[dataset].targets)
            entries = {
                row: [
                    _entry(results, dataset, setup, row, point, known=whole and _is_default(point), over=over)
                    for point in experiment.points
                ]
                for row in experiment.rows
            }
            measured = [
                any(entries[row][i].ours for row in experiment.rows if row not in ("source", "onda"))
                for i in range(len(columns))
            ]
            if sum(measured) < 3:  # a sweep needs points beside those it shares with Table 1
                continue
            subjects = [dataset] * len(columns)
            tables.append(finish(experiment, label, columns, entries, subjects, TITLES[dataset], dataset))
    return tables


def _narrowest(experiment: Experiment, results: Results, dataset: str, setup: Setup) -> Coverage | None:
    """What the point of a sweep covers that covers least: a line means something only over the same."""
    scores = [results.score(dataset, setup, "note", point) for point in experiment.points]
    covered = [score.coverage for score in scores if score is not None]
    return min(covered, key=lambda coverage: (len(coverage.domains), len(coverage.seeds)), default=None)


def _is_default(point: Point) -> bool:
    return point.batch_size == 64 and (point.stream == "iid" or point.delta == DELTA)


def _entry(
    results: Results,
    dataset: str,
    setup: Setup,
    row: str,
    point: Point,
    *,
    known: bool = True,
    over: Coverage | None = None,
) -> Entry:
    score = results.score(dataset, setup, row, point, over=over)
    paper = setup.paper(dataset, point.stream, row) if known else None
    return Entry(score.number, paper, coverage=score.coverage) if score else Entry(None, paper)


def in_paper_order(dataset: str, scores: Iterable[Score | None]) -> list[str]:
    """The domains that occur, as the paper orders them; users by name."""
    names = {name for score in scores if score for name in score.coverage.domains}
    order = DATASETS[dataset].targets if dataset in DATASETS else ()
    return sorted(names, key=lambda name: (order.index(name) if name in order else -1, name))
