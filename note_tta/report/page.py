"""One page that holds everything: no network, no other file, light and dark, desk and phone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from typing import Any

from ..evaluation import Result
from ..experiments.catalog import VARIANTS
from ..experiments.store import POINTS, thinned
from .claims import CLAIMS, Claim
from .figures import PANEL_POINTS, Figure, Panel
from .svg import Series, class_colour, method_colour
from .tables import Entry, Table
from .text import difference, number

__all__ = ["Card", "Section", "demo_page", "page"]

_SIGNS = {
    "held": ("✓", "held"),
    "not held": ("✗", "broken"),
    "not measured": ("–", "none"),
    "does not apply": ("–", "none"),
}


@dataclass(frozen=True)
class Card:
    """A few bars at the head of the page: an error in percent a method."""

    title: str
    subtitle: str
    bars: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Section:
    """A part of the page, with its entry in the bar at the top.

    Attributes:
        id: Its anchor.
        title: Its heading.
        short: The entry in the bar.
        text: A sentence under the heading.
        tables: Shown as heat maps where they are wide, else as numbers.
        figures: Shown as they are.
        claims: Shown as a board.
        explorer: Whether the streams to watch are here.
        facts: Names and values at the end.
    """

    id: str
    title: str
    short: str
    text: str = ""
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    claims: tuple[Claim, ...] = ()
    explorer: bool = False
    facts: tuple[tuple[str, str], ...] = ()


def page(
    title: str,
    intro: str,
    sections: Sequence[Section],
    panels: Sequence[Panel] = (),
    cards: Sequence[Card] = (),
) -> str:
    """The page's HTML; the same for the same data, byte for byte.

    Args:
        title: The heading.
        intro: A sentence or two under it.
        sections: Top to bottom.
        panels: The streams to watch, shown in the section that has the explorer.
        cards: Shown at the head.
    """
    import jinja2
    from markupsafe import Markup

    folder = files("note_tta.report").joinpath("templates")
    css, js, html = (
        folder.joinpath(f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js", "html")
    )
    data = json.dumps(
        {"panels": [_panel(panel) for panel in panels]}, separators=(",", ":"), ensure_ascii=False
    )
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.from_string(html).render(
        title=title,
        intro=intro,
        css=Markup(css),
        js=Markup(js),
        data=Markup(data.replace("<", "\\u003c")),
        cards=[_card(card) for card in cards],
        sections=[_section(section) for section in sections],
    )


def demo_page(
    results: Mapping[str, Mapping[str, Result]],
    *,
    title: str,
    intro: str,
    classes: int,
    domain: str = "",
    tables: Sequence[Table] = (),
    stream_titles: Mapping[str, str] | None = None,
) -> str:
    """A page for results that are at hand, not in a folder: `{stream: {method: Result}}`.

    Args:
        results: By the stream's name, then by the method's name in `METHODS`, in the order to show them.
        title: The heading.
        intro: A sentence or two under it.
        classes: How many there are.
        domain: What the streams are of.
        tables: Shown after the curves.
        stream_titles: How to call the streams.
    """
    names = dict(stream_titles or {})
    panels, cards = [], []
    for stream, by_method in results.items():
        first = next(iter(by_method.values()))
        name = names.get(stream, stream)
        series = tuple(
            Series(key, _title(key), tuple(thinned(result.cumulative_error, PANEL_POINTS, 1)))
            for key, result in by_method.items()
        )
        labels = tuple(thinned(first.labels, POINTS))
        panels.append(Panel(title, name, domain or "all", first.samples, classes, labels, series))
        bars = tuple((key, result.error) for key, result in by_method.items())
        cards.append(Card(name, f"{first.samples:,} samples, error in percent", bars))
    sections = [Section("streams", "Watch the stream", "Streams", explorer=True)]
    if tables:
        sections.append(Section("table", "In numbers", "Numbers", tables=tuple(tables)))
    return page(title, intro, sections, panels, cards)


def _title(variant: str) -> str:
    return VARIANTS[variant].title if variant in VARIANTS else variant


def _card(card: Card) -> dict[str, Any]:
    highest = max((value for _, value in card.bars), default=1.0) or 1.0
    return {
        "title": card.title,
        "subtitle": card.subtitle,
        "bars": [
            {
                "name": _title(key),
                "value": f"{value:.1f}",
                "width": f"{100 * value / highest:.1f}",
                "colour": method_colour(key)[0],
            }
            for key, value in card.bars
        ],
    }


def _panel(panel: Panel) -> dict[str, Any]:
    series = []
    for one in panel.series:
        colour, dash = method_colour(one.key)
        series.append(
            {"key": one.key, "name": one.name, "colour": colour, "dash": dash, "values": one.values}
        )
    return {
        "title": panel.title,
        "stream": panel.stream,
        "domain": panel.domain,
        "samples": panel.samples,
        "labels": panel.labels,
        "colours": [class_colour(label, panel.classes) for label in range(panel.classes)],
        "series": series,
    }


def _section(section: Section) -> dict[str, Any]:
    from markupsafe import Markup

    return {
        "id": section.id,
        "title": section.title,
        "short": section.short,
        "text": section.text,
        "explorer": section.explorer,
        "claims": _board(section.claims) if section.claims else None,
        "tables": [_table(table) for table in section.tables],
        "figures": [{"title": figure.title, "svg": Markup(figure.svg)} for figure in section.figures],
        "facts": section.facts,
    }


def _board(claims: Sequence[Claim]) -> dict[str, Any]:
    subjects = list(dict.fromkeys(claim.subject for claim in claims))
    found = {(claim.id, claim.subject): claim for claim in claims}
    rows = []
    for name, text in CLAIMS.items():
        verdicts = []
        for subject in subjects:
            claim = found[name, subject]
            sign, kind = _SIGNS[claim.verdict]
            verdicts.append({"sign": sign, "kind": kind, "word": claim.verdict, "evidence": claim.evidence})
        rows.append({"id": name, "text": text, "verdicts": verdicts})
    return {"subjects": subjects, "rows": rows}


def _table(table: Table) -> dict[str, Any]:
    span = 1 if table.wide else 3
    named = [
        (name, span * len(list(part))) for name, part in groupby(column.group for column in table.columns)
    ]
    several = len({name for name, _ in named}) > 1
    return {
        "id": table.id,
        "title": table.caption or table.title,
        "heat": table.wide,
        "columns": table.columns,
        "groups": [{"title": name, "span": width} for name, width in named] if several else [],
        "footnotes": table.footnotes,
        "rows": [
            {
                "title": row.title,
                "strong": row.variant == "note",
                "entries": [_entry(entry, row.title) for entry in row.entries],
            }
            for row in table.rows
        ],
    }


def _entry(entry: Entry, row: str) -> dict[str, Any]:
    ours, paper = number(entry.ours), number(entry.paper)
    return {
        "ours": ours,
        "paper": paper,
        "difference": difference(entry),
        "ours_short": "" if entry.ours is None else f"{entry.ours.mean:.1f}",
        "tip": f"{row}: ours {ours}, the paper's {paper}, difference {difference(entry)}",
        "ours_value": "" if entry.ours is None else f"{entry.ours.mean:.3f}",
        "paper_value": "" if entry.paper is None else f"{entry.paper.mean:g}",
        "difference_value": "" if entry.difference is None else f"{entry.difference:g}",
        "best": entry.best,
        "worse": entry.worse,
        "note": entry.note,
    }
