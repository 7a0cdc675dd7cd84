"""Figures from results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

from ..data import DATASETS
from ..experiments.experiment import Experiment, Point, stream_at
from ..experiments.store import Record, cumulative_error, thinned
from ..experiments.variants import VARIANTS
from .coverage import coverage_text, domain_title, stream_title
from .drawing import DIM, FG, draw, error_axis, method_style, standalone, strip
from .scores import Scores, Setup, visit_errors
from .tables import Table, in_paper_order

CURVE_POINTS = 100
AXES = {"figure5a": "concentration δ", "figure5b": "batch or memory size"}

Curves = dict[str, list[float]]
"""Error so far by row, at evenly spaced places of a stream."""


@dataclass(frozen=True)
class Figure:
    """A picture: its file name without suffix, its title, and the function that paints it."""

    id: str
    title: str
    paint: Callable[[Any], Any]
    height: int = 320

    def svg(self) -> str:
        """The picture for a page whose style sheet sets the colours."""
        return draw(self.paint, (640, self.height), self.id)

    def file(self) -> str:
        """The picture as a file."""
        return standalone(self.svg(), self.title)


def make_figures(experiment: Experiment, scores: Scores, tables: list[Table]) -> list[Figure]:
    """Every figure of an experiment that has results."""
    if experiment.kind in ("bars", "sweep"):
        paint = _bars if experiment.kind == "bars" else partial(_sweep, AXES.get(experiment.id, ""))
        return [Figure(each.id, f"{each.title} · {each.caption}", partial(paint, each)) for each in tables]
    if experiment.kind == "streams":
        return list(_streams(experiment, scores))
    makers = {"curves": _curves, "visit curves": _visit_curves, "mean curves": _mean_curves}
    if experiment.kind not in makers:
        return []
    setups = [setup for setup in scores.setups(*experiment.datasets) if not setup.data_options]
    return [figure for setup in setups for figure in makers[experiment.kind](experiment, scores, setup)]


def runs_of_stream(scores: Scores, setup: Setup, stream: str) -> dict[str, dict[str, Record]]:
    """By domain and row, the run with the lowest seed; all are over the same stream."""
    found = {row: scores.of(setup.row(row, Point(stream))) for row in VARIANTS}
    runs: dict[str, dict[str, Record]] = {}
    for domain in in_paper_order(setup.dataset, found.values()):
        here = {
            row: score.records[domain][0] for row, score in found.items() if score and domain in score.records
        }
        kept = {row: run for row, run in here.items() if run.result.get("wrong")}
        if kept:
            samples = next(iter(kept.values())).result["samples"]
            runs[domain] = {row: run for row, run in kept.items() if run.result["samples"] == samples}
    return runs


def curve(record: Record) -> list[float]:
    """A run's error so far, at most `CURVE_POINTS` values."""
    return thinned(cumulative_error(record.result), CURVE_POINTS, 1)


def _bars(table: Table, figure: Any) -> None:
    """Two bars per method, the first outlined, the second filled; a tick marks the paper's value."""
    axes = figure.subplots()
    columns = {column.group: column for column in table.columns}
    order = [columns[name] for name in (stream_title("iid"), stream_title("correlated")) if name in columns]
    values: list[float | None] = []
    for j, column in enumerate(order):
        for i, row in enumerate(table.rows):
            x, colour = i + 0.38 * (j - 0.5), method_style(row)[0]
            entry = column.entries[row]
            ours, paper = (number.mean if number else None for number in (entry.ours, entry.paper))
            values += [ours, paper]
            if ours is not None:
                axes.bar(x, ours, 0.35, color=colour if j else f"{colour}2e", edgecolor=colour)
                top = max(ours, paper or 0.0)
                place = {"xytext": (0, 3), "textcoords": "offset points", "ha": "center"}
                axes.annotate(f"{ours:.0f}", (x, top), fontsize=7, **place)
            if paper is not None:
                axes.plot([x - 0.2, x + 0.2], [paper, paper], color=FG, linewidth=2)
    error_axis(axes, values)
    axes.set_xticks(range(len(table.rows)), list(table.rows.values()))
    fills = (f"{DIM}2e", DIM)[: len(order)]
    handles = [axes.bar(0, 0, color=fill, edgecolor=DIM) for fill in fills]
    handles += axes.plot([], [], color=FG, linewidth=2)
    names = [column.group for column in order]
    figure.legend(handles, [*names, "the paper's"], loc="outside upper left", ncols=3)


def _sweep(x_title: str, table: Table, figure: Any) -> None:
    """A line per row with a mark at each point of the axis."""
    lines = {row: [e.ours.mean if e.ours else None for e in table.entries(row)] for row in table.rows}
    ticks = [column.title for column in table.columns]
    _marked_lines(table.rows, lines, 0, x_title, figure).set_xticks(range(len(ticks)), ticks)


def _marked_lines(
    titles: dict[str, str], lines: Mapping[str, Sequence[float | None]], first: int, x_title: str, figure: Any
) -> Any:
    """Lines with a mark at every whole number from `first` on; returns the axes."""
    axes = figure.subplots()
    for row, values in lines.items():
        _line(axes, row, titles[row], range(first, first + len(values)), values, marker="o")
    error_axis(axes, [value for values in lines.values() for value in values])
    axes.set_xlabel(x_title)
    figure.legend(loc="outside upper left", ncols=4)
    return axes


def _over_time(curves: Curves, samples: int, labels: Sequence[int], figure: Any) -> None:
    """Error so far over a stream, and under it the stream's classes as a strip if there are labels."""
    ratios = [12, 1] if labels else [1]
    axes, *under = figure.subplots(len(ratios), 1, squeeze=False, height_ratios=ratios)[:, 0]
    for row, values in curves.items():
        places = [(i + 1) * samples / len(values) for i in range(len(values))]
        _line(axes, row, VARIANTS[row].title, places, values)
    error_axis(axes, [value for values in curves.values() for value in values], "error so far (%)")
    axes.set(xlim=(0, samples), xticks=[0, samples], xticklabels=["1", f"{samples:,}"])
    if under:
        strip(under[0], labels, max(labels) + 1)
        under[0].set_title("samples, classes by colour", fontsize=8, color=DIM, y=-1.6)
    figure.legend(loc="outside upper left", ncols=4)


def _line(
    axes: Any, row: str, title: str, x: Sequence[float], y: Sequence[float | None], **style: Any
) -> None:
    """A row's line through the points that it has."""
    style["color"], style["dashes"] = method_style(row)
    style |= {"linewidth": 2.6 if row == "note" else 1.5, "markersize": 4, "label": title}
    places = [place for place, value in zip(x, y, strict=True) if value is not None]
    axes.plot(places, [value for value in y if value is not None], **style)


def _streams(experiment: Experiment, scores: Scores) -> Iterator[Figure]:
    """The classes over time, one strip per point, from the first stream with each set of data options."""
    drawn = sorted(scores.streams, key=lambda stream: (stream.domain, stream.seed))
    for dataset in experiment.datasets:
        for options in sorted({stream.data_options for stream in drawn}, key=str):
            strips = {}
            for point in experiment.points:
                wanted = stream_at(dataset, point, data_options=options)
                alike = [s for s in drawn if replace(s, domain="", seed=0, samples=None) == wanted]
                if alike:
                    strips[point.label] = scores.streams[alike[0]].result
            if strips:
                title = f"{experiment.title} · {DATASETS[dataset].title}"
                height = 34 * len(strips) + 26
                yield Figure(f"{experiment.id}-{dataset}", title, partial(_strips, strips), height)


def _strips(strips: dict[str, dict[str, Any]], figure: Any) -> None:
    classes = max(max(result["labels"]) for result in strips.values()) + 1
    rows = figure.subplots(len(strips), 1, squeeze=False)[:, 0]
    for axes, (name, result) in zip(rows, strips.items(), strict=True):
        strip(axes, result["labels"], classes)
        axes.text(-0.015, 0.5, name, ha="right", va="center", transform=axes.transAxes)
        remark = f"runs of {result['mean_run_length']:.1f}"
        axes.text(1.015, 0.5, remark, va="center", color=DIM, transform=axes.transAxes)
    figure.supxlabel("time →", fontsize=8, color=DIM)


def _curves(experiment: Experiment, scores: Scores, setup: Setup) -> Iterator[Figure]:
    for domain, runs in runs_of_stream(scores, setup, "correlated").items():
        first = next(iter(runs.values())).result
        name = domain_title(setup.dataset, domain)
        words = "-".join(f"{setup.title} {name}".lower().replace("·", " ").split())
        curves = {row: curve(record) for row, record in runs.items() if row in experiment.rows}
        paint = partial(_over_time, curves, first["samples"], first.get("labels", ()))
        yield Figure(f"{experiment.id}-{words}", f"{experiment.title} · {setup.title}, {name}", paint)


def _visit_curves(experiment: Experiment, scores: Scores, setup: Setup) -> Iterator[Figure]:
    """The error of each visit of a recurring stream, a line per row."""
    (point,) = experiment.points
    found = scores.together({row: setup.row(row, point) for row in experiment.rows})
    lines = {row: visit_errors(score) for row, score in found.items() if score}
    titles = {row: experiment.label(row) for row in lines}
    if lines:
        yield _figure_of(experiment, setup, "", partial(_marked_lines, titles, lines, 1, "visit"))


def _figure_of(experiment: Experiment, setup: Setup, over: str, paint: Callable[[Any], Any]) -> Figure:
    """The figure of a setup, named after both."""
    words = "-".join([experiment.id, setup.dataset, *setup.label.replace(",", "").split()])
    title = " · ".join(filter(None, [experiment.title, DATASETS[setup.dataset].title, setup.label, over]))
    return Figure(words, title, paint)


def _mean_curves(experiment: Experiment, scores: Scores, setup: Setup) -> Iterator[Figure]:
    """Mean error so far over domains and seeds, for the rows with the same coverage as NOTE."""
    found = scores.together({row: setup.row(row) for row in experiment.rows})
    note, curves = found["note"], {}
    for row, score in found.items():
        if note is not None and score is not None and score.coverage == note.coverage:
            runs = [curve(record) for records in score.records.values() for record in records]
            if all(runs) and len({len(run) for run in runs}) == 1:
                curves[row] = [round(fmean(moment), 2) for moment in zip(*runs, strict=True)]
    if note is not None and curves:
        over = coverage_text(setup.dataset, note.coverage)
        samples = max(record.result["samples"] for records in note.records.values() for record in records)
        yield _figure_of(experiment, setup, over, partial(_over_time, curves, samples, ()))
