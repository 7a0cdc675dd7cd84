"""The report as one HTML page without other files or network, for light and dark, desktop and phone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from ..data import DATASETS
from ..evaluation import Result
from ..experiments.catalog import EXPERIMENTS
from ..experiments.store import POINTS, thinned
from ..experiments.variants import VARIANTS
from .claims import CLAIMS, Claim
from .coverage import coverage_text, domain_title, stream_title
from .drawing import class_colour, method_style
from .figures import CURVE_POINTS, Curves, Figure, curve, runs_of_stream
from .markdown_tables import difference, number
from .tables import Table

if TYPE_CHECKING:
    from .markdown_pages import Report

CARD_ROWS = ("source", "bn_stats", "tent", "lame", "note", "adapt")


@dataclass(frozen=True)
class Panel:
    """A stream to watch: its classes over time, and each row's error so far.

    Attributes:
        title: The dataset and the setup.
        stream: The kind of stream.
        domain: The dataset's domain.
        samples: The stream's length.
        labels: The class at evenly spaced moments.
        curves: By row, the error so far in percent at evenly spaced moments.
    """

    title: str
    stream: str
    domain: str
    samples: int
    labels: Sequence[int]
    curves: Curves


@dataclass(frozen=True)
class Card:
    """A few bars at the top of the page: the error in percent of each row."""

    title: str
    subtitle: str
    errors: Mapping[str, float]


@dataclass(frozen=True)
class Section:
    """A section of the page, with an entry in the navigation bar.

    Attributes:
        id: Its anchor.
        title: Its heading.
        short: Its entry in the bar.
        text: A sentence under the heading.
        tables: Shown as heat maps if they are wide, otherwise as numbers.
        figures: Shown as pictures.
        claims: Shown as a board.
        explorer: Whether it shows the streams to watch.
        facts: Names and values at the end.
    """

    id: str
    title: str
    short: str
    text: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    claims: Sequence[Claim] = ()
    explorer: bool = False
    facts: Sequence[tuple[str, str]] = ()


def page(
    title: str,
    intro: str,
    sections: Sequence[Section],
    panels: Sequence[Panel] = (),
    cards: Sequence[Card] = (),
) -> str:
    """The page's HTML. The same data give the same bytes.

    Args:
        title: The heading.
        intro: A sentence or two under it.
        sections: Top to bottom.
        panels: The streams to watch, for the section with the explorer.
        cards: Shown at the top.
    """
    import jinja2
    from markupsafe import Markup

    folder = files("note_tta.report").joinpath("templates")
    sources = {"css": "page.css", "js": "page.js"}
    sources |= {"uplot_css": "uplot/uPlot.min.css", "uplot_js": "uplot/uPlot.iife.min.js"} if panels else {}
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"number": number, "difference": difference}
    return environment.from_string(folder.joinpath("page.html").read_text(encoding="utf-8")).render(
        {key: Markup(folder.joinpath(name).read_text(encoding="utf-8")) for key, name in sources.items()},
        title=title,
        intro=intro,
        data=Markup(_data(panels).replace("<", "\\u003c")),
        cards=cards,
        highest=max((error for card in cards for error in card.errors.values()), default=1.0) or 1.0,
        sections=sections,
        name=_name,
        colour=lambda row: method_style(row)[0],
        svg=lambda figure: Markup(figure.svg()),
        all_claims=CLAIMS,
        signs={
            "held": ("✓", "held"),
            "held so far": ("(✓)", "held"),
            "not held": ("✗", "broken"),
            "not measured": ("?", "none"),
        },
    )


def report_page(report: Report) -> str:
    """The page of a report."""
    scores = report.scores
    setups = scores.setups()
    panels = [
        Panel(
            setup.title,
            stream_title(stream, setup.dataset),
            domain_title(setup.dataset, domain),
            first["samples"],
            first.get("labels", ()),
            {row: curve(record) for row, record in runs.items()},
        )
        for setup in setups
        for stream in ("correlated", "iid")
        for domain, runs in runs_of_stream(scores, setup, stream).items()
        for first in [next(iter(runs.values())).result]
    ]
    cards = []
    for setup in (setup for setup in setups if not setup.data_options):
        found = {row: score.number.mean for row in CARD_ROWS if (score := scores.of(setup.row(row)))}
        if len(found) > 1:
            over = ", ".join(filter(None, [setup.label, "correlated stream, error in percent"]))
            cards.append(Card(DATASETS[setup.dataset].title, over, found))
    sections = []
    if report.claims:
        sections.append(Section("claims", "The paper's claims", "Claims", claims=report.claims))
    if panels:
        text = "Choose a stream; click a method to hide or show it."
        sections.append(Section("streams", "Watch a stream", "Streams", text, explorer=True))
    for name, experiment in EXPERIMENTS.items():
        figures = [] if experiment.kind == "curves" else report.figures[name]  # the explorer has all of these
        if report.tables[name] or figures:
            short = experiment.title.partition(":")[0]
            sections.append(Section(name, experiment.title, short, "", report.tables[name], figures))
    if report.others:
        others = [
            (row.text, f"{number(score.number)} %, {coverage_text(row.stream.dataset, score.coverage)}")
            for row, score, _ in report.others
        ]
        sections.append(Section("others", "Other runs", "Other runs", facts=others))
    sections.append(Section("origin", "Where this comes from", "Origin", facts=scores.facts()))
    intro = (
        "Test-time adaptation on time-correlated streams: our errors beside those of the NOTE paper "
        f"(NeurIPS 2022), from {len(scores.records) - len(scores.streams):,} runs."
    )
    return page("Our results and the paper's", intro, sections, panels, cards[:8])


def demo_page(
    results: Mapping[str, Mapping[str, Result]],
    *,
    title: str,
    intro: str,
    domain: str = "all",
    stream_titles: Mapping[str, str] | None = None,
) -> str:
    """A page of results in memory: `{stream: {method: Result}}`.

    Args:
        results: By stream and by name in `METHODS`, in the order to show them.
        title: The heading.
        intro: A sentence or two under it.
        domain: The domains of the streams.
        stream_titles: The names of the streams on the page.
    """
    panels, cards = [], []
    for stream, by_method in results.items():
        first = next(iter(by_method.values()))
        name = dict(stream_titles or {}).get(stream, stream)
        curves = {key: thinned(result.cumulative_error, CURVE_POINTS, 1) for key, result in by_method.items()}
        panels.append(Panel(title, name, domain, first.samples, thinned(first.labels, POINTS), curves))
        errors = {key: result.error for key, result in by_method.items()}
        cards.append(Card(name, f"{first.samples:,} samples, error in percent (lower is better)", errors))
    return page(
        title, intro, [Section("streams", "Watch the stream", "Streams", explorer=True)], panels, cards
    )


def _name(row: str) -> str:
    return VARIANTS[row].title if row in VARIANTS else row


def _data(panels: Sequence[Panel]) -> str:
    """The data of the page's charts, as JSON."""
    rows = dict.fromkeys(row for panel in panels for row in panel.curves)
    styles = {row: [_name(row), *method_style(row)] for row in rows}
    sizes = {max(panel.labels, default=0) + 1 for panel in panels}
    colours = {size: [class_colour(label, size) for label in range(size)] for size in sorted(sizes)}
    shown = [vars(panel) | {"classes": max(panel.labels, default=0) + 1} for panel in panels]
    content = {"rows": styles, "colours": colours, "panels": shown}
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)
