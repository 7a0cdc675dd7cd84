"""Numbers and tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from .paper_numbers import Number
from .tables import Entry, Table

NONE = "–"
WORSE = "▲"
LEGEND = (
    "Error in percent: ours (the paper's, difference); **lowest** of ours in its column; "
    f"{WORSE} worse than Source. Only errors over the same samples are compared."
)


def number(value: Number | None) -> str:
    """An error with its spread, or a dash.

    Example:
        >>> number(Number(21.06, 0.61)), number(Number(49.6)), number(None)
        ('21.1 ± 0.6', '49.6', '–')
    """
    if value is None:
        return NONE
    return f"{value.mean:.1f}" + ("" if value.std is None else f" ± {value.std:.1f}")


def difference(entry: Entry) -> str:
    """Ours less the paper's, with its sign, or a dash.

    Example:
        >>> difference(Entry(Number(21.0), Number(20.0))), difference(Entry(Number(21.0)))
        ('+1.0', '–')
    """
    value = entry.difference
    if value is None:
        return NONE
    return f"{value:+.1f}".replace("-", "−") if value else "0.0"


def escaped(text: str) -> str:
    """Text whose stars are stars, such as NOTE*."""
    return text.replace("*", r"\*")


def table_line(cells: Iterable[str]) -> str:
    """A line of a table in Markdown."""
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def markdown(table: Table) -> str:
    """A table in GitHub's Markdown, its title in bold above it and its footnotes below."""
    heads = ["<br>".join(filter(None, (c.title, c.group, c.run_text))) for c in table.columns]
    lines = [f"**{escaped(table.title)}** · {table.caption}", "", table_line(["Method", *heads])]
    lines.append("|---|" + "---:|" * len(heads))
    for row, title in table.rows.items():
        lines.append(table_line([escaped(title), *map(_entry, table.entries(row))]))
    for i, note in enumerate(table.footnotes, start=1):
        lines += ["", f"<sup>{i}</sup> {note}"]
    return "\n".join(lines) + "\n"


def _entry(entry: Entry) -> str:
    if entry.ours is None and entry.paper is None:
        return NONE
    ours = number(entry.ours)
    ours = f"**{ours}**" if entry.best else ours
    ours += f" {WORSE}" if entry.worse else ""
    ours += f"<sup>{entry.note}</sup>" if entry.note else ""
    return ours if entry.paper is None else f"{ours} ({number(entry.paper)}, {difference(entry)})"
