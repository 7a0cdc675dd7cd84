"""The paper's figures from results, as SVG; and what the page draws its curves from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean

from ..experiments.catalog import TITLES, VARIANTS, Experiment, Point, find, stream_at
from ..experiments.store import Record, cumulative_error, thinned
from .layouts import in_paper_order
from .results import Results, Setup
from .svg import Series, bar_chart, curve_chart, line_chart, standalone, strip_chart
from .tables import Table, coverage_text, domain_title, stream_title

__all__ = ["Figure", "Panel", "make_figures", "make_panels"]

PANEL_POINTS = 100


@dataclass(frozen=True)
class Figure:
    """A picture: its file name without the ending, its title, and the SVG."""

    id: str
    title: str
    svg: str

    def file(self) -> str:
        """The SVG as a file of its own."""
        return standalone(self.svg, self.title)


@dataclass(frozen=True)
class Panel:
    """A stream that one can watch: its classes over time, and each method's error so far.

    Attributes:
        title: The dataset and the setup.
        stream: What kind of stream.
        domain: Of the dataset.
        samples: The stream's length.
        classes: How many there are.
        labels: The class at evenly spaced moments.
        series: One a method: error so far, in percent, at evenly spaced moments.
    """

    title: str
    stream: str
    domain: str
    samples: int
    classes: int
    labels: tuple[int, ...]
    series: tuple[Series, ...]


def make_figures(experiment: Experiment, results: Results, tables: list[Table]) -> list[Figure]:
    """Every figure of an experiment that there are results for."""
    if experiment.kind == "bars":
        return [_bars(experiment, table) for table in tables]
    if experiment.kind == "sweep":
        return [_sweep(experiment, table) for table in tables]
    if experiment.kind == "streams":
        return _streams(experiment, results)
    if experiment.kind == "curves":
        return [
            _curves(experiment, panel)
            for dataset, setup in _setups_as_published(experiment, results)
            for panel in _panels(results, dataset, setup, "correlated")
        ]
    if experiment.kind == "mean curves":
        made = [
            _mean_curves(experiment, results, *which) for which in _setups_as_published(experiment, results)
        ]
        return [figure for figure in made if figure is not None]
    return []


def make_panels(results: Results) -> list[Panel]:
    """Every stream that results were kept of, each with all the rows that ran over it, by its lowest seed."""
    panels = []
    for dataset in TITLES:
        for setup in results.setups(dataset):
            streams = dict.fromkeys(stream for name in ("table1", "table2") for stream in find(name).streams)
            for stream in streams:
                panels += _panels(results, dataset, setup, stream)
    return panels


def _setups_as_published(experiment: Experiment, results: Results) -> list[tuple[str, Setup]]:
    """The setups to draw, with their dataset; data opened another way is left to the page's explorer."""
    return [
        (dataset, setup)
        for dataset in experiment.datasets
        for setup in results.setups(dataset)
        if not setup.data_options
    ]


def _panels(results: Results, dataset: str, setup: Setup, stream: str) -> list[Panel]:
    scores = {row: results.score(dataset, setup, row, Point(stream)) for row in VARIANTS}
    label = setup.label(dataset)
    panels = []
    for domain in in_paper_order(dataset, scores.values()):
        kept: dict[str, Record] = {}
        for row, score in scores.items():
            seeds = score.records.get(domain) if score else None
            if seeds and seeds[min(seeds)].result.get("wrong"):
                kept[row] = seeds[min(seeds)]
        if not kept:
            continue
        first = next(iter(kept.values())).result
        alike = {row: record for row, record in kept.items() if record.result["samples"] == first["samples"]}
        labels = tuple(first.get("labels", ()))
        panels.append(
            Panel(
                TITLES[dataset] + (f" · {label}" if label else ""),
                stream_title(stream, dataset),
                domain_title(dataset, domain),
                first["samples"],
                max(labels, default=0) + 1,
                labels,
                tuple(
                    Series(row, VARIANTS[row].title, _thin(cumulative_error(record.result)))
                    for row, record in alike.items()
                ),
            )
        )
    return panels


def _thin(values: list[float]) -> tuple[float, ...]:
    return tuple(thinned([float(value) for value in values], PANEL_POINTS, 1))


def _bars(experiment: Experiment, table: Table) -> Figure:
    by_group = {column.group: i for i, column in enumerate(table.columns)}
    order = [stream_title("iid"), stream_title("correlated")]
    return Figure(
        table.id,
        f"{table.title} · {table.caption}",
        bar_chart(
            [(row.variant, row.title) for row in table.rows],
            [
                (name, [_mean(row.entries[by_group[name]].ours) for row in table.rows])
                for name in order
                if name in by_group
            ],
            [
                [_mean(row.entries[by_group[name]].paper) for row in table.rows]
                for name in order
                if name in by_group
            ],
        ),
    )


def _sweep(experiment: Experiment, table: Table) -> Figure:
    series = [
        Series(row.variant, row.title, tuple(_mean(entry.ours) for entry in row.entries))
        for row in table.rows
    ]
    axis = "concentration δ" if experiment.id == "figure5a" else "batch or memory size"
    title = f"{table.title} · {table.caption}"
    return Figure(table.id, title, line_chart(series, [c.title for c in table.columns], x_title=axis))


def _streams(experiment: Experiment, results: Results) -> list[Figure]:
    figures = []
    for dataset in experiment.datasets:
        drawn = sorted(results.streams, key=lambda stream: (stream.domain, stream.seed))
        for data_options in sorted({stream.data_options for stream in drawn}, key=str):
            strips = []
            classes = 1
            for point in experiment.points:
                wanted = stream_at(dataset, point, data_options=data_options)
                alike = [s for s in drawn if replace(s, domain="", seed=0, samples=None) == wanted]
                if alike:
                    result = results.streams[alike[0]].result
                    strips.append((point.label, f"runs of {result['mean_run_length']:.1f}", result["labels"]))
                    classes = max(classes, *result["labels"]) if result["labels"] else classes
            if strips:
                title = f"{experiment.title} · {TITLES[dataset]}"
                figures.append(Figure(f"{experiment.id}-{dataset}", title, strip_chart(strips, classes + 1)))
    return figures


def _curves(experiment: Experiment, panel: Panel) -> Figure:
    rows = tuple(series for series in panel.series if series.key in experiment.rows)
    words = "-".join(f"{panel.title} {panel.domain}".lower().replace("·", " ").split())
    title = f"{experiment.title} · {panel.title}, {panel.domain}"
    return Figure(
        f"{experiment.id}-{words}", title, curve_chart(rows, panel.labels, panel.classes, panel.samples)
    )


def _mean_curves(experiment: Experiment, results: Results, dataset: str, setup: Setup) -> Figure | None:
    """Error so far as a mean over domains and seeds, of the rows that cover as much as NOTE does."""
    scores = {row: results.score(dataset, setup, row) for row in experiment.rows}
    note = scores["note"]
    if note is None:
        return None
    series = []
    for row, score in scores.items():
        if score is None or score.coverage != note.coverage:
            continue
        records = [record for seeds in score.records.values() for record in seeds.values()]
        curves = [_thin(cumulative_error(record.result)) for record in records]
        if all(curves) and len({len(curve) for curve in curves}) == 1:
            means = (fmean(moment) for moment in zip(*curves, strict=True))
            series.append(Series(row, VARIANTS[row].title, tuple(round(mean, 2) for mean in means)))
    if not series:
        return None
    label = setup.label(dataset)
    words = "-".join([experiment.id, dataset, *label.replace(",", "").split()])
    title = " · ".join(
        filter(None, [experiment.title, TITLES[dataset], label, coverage_text(dataset, note.coverage)])
    )
    samples = max(record.result["samples"] for seeds in note.records.values() for record in seeds.values())
    return Figure(words, title, curve_chart(series, (), 0, samples))


def _mean(number: object) -> float | None:
    return None if number is None else float(number[0])  # type: ignore[index]
