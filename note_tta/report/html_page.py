"""The report as one HTML page without other files or network, for light and dark, desktop and phone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ..data import DATASETS
from ..evaluation import Result
from ..experiments.catalog import EXPERIMENTS
from ..experiments.store import POINTS, thinned
from ..experiments.variants import VARIANTS
from .claims import CLAIMS, SIGNS
from .coverage import coverage_text, domain_title, stream_title
from .drawing import class_colour, method_style
from .figures import CURVE_POINTS, curve, runs_of_stream
from .markdown_tables import difference, number

if TYPE_CHECKING:
    from .markdown_pages import Report

CARD_ROWS = ("source", "bn_stats", "tent", "lame", "note", "adapt")


def section(name: str, title: str, short: str, **content: Any) -> dict[str, Any]:
    """A section of the page: its anchor, its heading, its entry in the navigation bar, and what it shows.

    The content is a sentence under the heading (`text`), `tables`, `figures`, `claims`, `facts` (names and values),
    and the `explorer` of the streams to watch.
    """
    nothing = {"text": "", "tables": (), "figures": (), "claims": (), "facts": (), "explorer": False}
    return {"id": name, "title": title, "short": short, **nothing, **content}


def page(
    title: str,
    intro: str,
    sections: Sequence[dict[str, Any]],
    panels: Sequence[dict[str, Any]] = (),
    cards: Sequence[dict[str, Any]] = (),
) -> str:
    """The page's HTML. The same data give the same bytes.

    Args:
        title: The heading.
        intro: A sentence or two under it.
        sections: What `section` makes, top to bottom.
        panels: The streams to watch: `title`, `stream`, `domain`, `samples`, and at evenly spaced moments the class
            (`labels`) and, by row, the error so far (`curves`).
        cards: A few bars at the top: `title`, `subtitle` and, by row, `errors`.
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
        highest=max((error for card in cards for error in card["errors"].values()), default=1.0) or 1.0,
        sections=sections,
        name=_name,
        colour=lambda row: method_style(row)[0],
        svg=lambda figure: Markup(figure.svg()),
        all_claims=CLAIMS,
        signs=SIGNS,
    )


def report_page(report: Report) -> str:
    """The page of a report."""
    scores = report.scores
    setups = scores.setups()
    panels = [
        {
            "title": setup.title,
            "stream": stream_title(stream, setup.dataset),
            "domain": domain_title(setup.dataset, domain),
            "samples": first["samples"],
            "labels": first.get("labels", ()),
            "curves": {row: curve(record) for row, record in runs.items()},
        }
        for setup in setups
        for stream in ("correlated", "iid")
        for domain, runs in runs_of_stream(scores, setup, stream).items()
        for first in [next(iter(runs.values())).result]
    ]
    cards = []
    for setup in (setup for setup in setups if not setup.data_options):
        scored = scores.together({row: setup.row(row) for row in CARD_ROWS})
        found = {row: score.number.mean for row, score in scored.items() if score}
        if len(found) > 1:
            over = ", ".join(filter(None, [setup.label, "correlated stream, error in percent"]))
            cards.append({"title": DATASETS[setup.dataset].title, "subtitle": over, "errors": found})
    sections = []
    if report.claims:
        sections.append(section("claims", "The paper's claims", "Claims", claims=report.claims))
    if panels:
        text = "Choose a stream; click a method to hide or show it."
        sections.append(section("streams", "Watch a stream", "Streams", text=text, explorer=True))
    for name, experiment in EXPERIMENTS.items():
        figures = [] if experiment.kind == "curves" else report.figures[name]  # the explorer has all of these
        if report.tables[name] or figures:
            shown = {"tables": report.tables[name], "figures": figures}
            sections.append(section(name, experiment.title, experiment.title.partition(":")[0], **shown))
    if report.others:
        others = [
            (row.text, f"{number(score.number)} %, {coverage_text(row.stream.dataset, score.coverage)}")
            for row, score, _ in report.others
        ]
        sections.append(section("others", "Other runs", "Other runs", facts=others))
    sections.append(section("origin", "Where this comes from", "Origin", facts=scores.facts()))
    intro = (
        "Test-time adaptation on time-correlated streams: our errors next to those of the NOTE paper "
        f"(NeurIPS 2022), from {len(scores.records) - len(scores.streams):,} runs."
    )
    return page("Our results and the paper's", intro, sections, panels, cards[:8])


def demo_page(
    results: Mapping[str, Mapping[str, Result]], *, title: str, intro: str, domain: str = "all"
) -> str:
    """A page of results in memory, by the title of the stream and by name in `METHODS`, in the order to show them."""
    panels, cards = [], []
    for name, by_method in results.items():
        first = next(iter(by_method.values()))
        curves = {key: thinned(result.cumulative_error, CURVE_POINTS, 1) for key, result in by_method.items()}
        told = {"title": title, "stream": name, "domain": domain, "samples": first.samples}
        panels.append({**told, "labels": thinned(first.labels, POINTS), "curves": curves})
        errors = {key: result.error for key, result in by_method.items()}
        said = f"{first.samples:,} samples, error in percent (lower is better)"
        cards.append({"title": name, "subtitle": said, "errors": errors})
    streams = section("streams", "Watch the stream", "Streams", explorer=True)
    return page(title, intro, [streams], panels, cards)


def _name(row: str) -> str:
    return VARIANTS[row].title if row in VARIANTS else row


def _data(panels: Sequence[dict[str, Any]]) -> str:
    """The data of the page's charts, as JSON."""
    styles = {row: [_name(row), *method_style(row)] for panel in panels for row in panel["curves"]}
    shown = [{**panel, "classes": max(panel["labels"], default=0) + 1} for panel in panels]
    sizes = sorted({panel["classes"] for panel in shown})
    colours = {size: [class_colour(label, size) for label in range(size)] for size in sizes}
    content = {"rows": styles, "colours": colours, "panels": shown}
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)
