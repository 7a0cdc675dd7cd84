"""Tables as Markdown and LaTeX."""

from __future__ import annotations

from itertools import groupby

from ..experiments.paper import Number
from .tables import Entry, Table

__all__ = ["LEGEND", "difference", "latex", "markdown", "number"]

NONE = "–"
WORSE = "▲"
LEGEND = (
    "Error in percent: ours (the paper's, difference); **lowest** of ours in its column; "
    f"{WORSE} worse than Source. Only errors over the same samples are so compared."
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


def markdown(table: Table) -> str:
    """A table in GitHub's Markdown, its title in bold above it and its footnotes below."""
    double = any(column.group for column in table.columns)
    heads = [
        column.title + (f"<br>{column.group}" if double and column.group else "") for column in table.columns
    ]
    lines = [f"**{_escaped(table.title)}** · {table.caption}", "", "| Method | " + " | ".join(heads) + " |"]
    lines.append("|---|" + "---:|" * len(heads))
    for row in table.rows:
        lines.append(f"| {_escaped(row.title)} | " + " | ".join(map(_markdown_entry, row.entries)) + " |")
    for i, note in enumerate(table.footnotes, start=1):
        lines += ["", f"<sup>{i}</sup> {note}"]
    return "\n".join(lines) + "\n"


def latex(table: Table) -> str:
    r"""A table for a paper (booktabs): ours, the paper's and the difference side by side.

    Needs `\usepackage{booktabs,graphicx}`.
    """
    columns = len(table.columns)
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_tex(f'{table.title}, {table.caption}')}. Ours, the paper's, and the difference; "
        r"lowest in bold; $\uparrow$ is worse than Source.}",
        rf"\label{{tab:{table.id.replace('*', 'star')}}}",
        r"\resizebox{\textwidth}{!}{%",
        r"\begin{tabular}{l" + "rrr" * columns + "}",
        r"\toprule",
    ]
    groups = [(name, len(list(part))) for name, part in groupby(column.group for column in table.columns)]
    if any(name for name, _ in groups):
        lines.append(
            " & ".join(["", *(rf"\multicolumn{{{3 * n}}}{{c}}{{{_tex(g)}}}" for g, n in groups)]) + r" \\"
        )
    lines.append(
        "& " + " & ".join(rf"\multicolumn{{3}}{{c}}{{{_tex(c.title)}}}" for c in table.columns) + r" \\"
    )
    lines.append(r"Method & " + " & ".join([r"ours & paper & $\Delta$"] * columns) + r" \\")
    lines.append(r"\midrule")
    for row in table.rows:
        lines.append(" & ".join([_tex(row.title), *map(_latex_entry, row.entries)]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}}"]
    lines += [
        rf"\par\footnotesize $^{{{i}}}$ {_tex(note)}" for i, note in enumerate(table.footnotes, start=1)
    ]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _markdown_entry(entry: Entry) -> str:
    if entry.ours is None and entry.paper is None:
        return NONE
    ours = number(entry.ours)
    ours = f"**{ours}**" if entry.best else ours
    ours += f" {WORSE}" if entry.worse else ""
    ours += f"<sup>{entry.note}</sup>" if entry.note else ""
    return ours if entry.paper is None else f"{ours} ({number(entry.paper)}, {difference(entry)})"


def _latex_entry(entry: Entry) -> str:
    ours = _tex(number(entry.ours))
    ours = rf"\textbf{{{ours}}}" if entry.best else ours
    ours += r"$\uparrow$" if entry.worse else ""
    ours += f"$^{{{entry.note}}}$" if entry.note else ""
    return f"{ours} & {_tex(number(entry.paper))} & {_tex(difference(entry))}"


def _escaped(text: str) -> str:
    return text.replace("*", r"\*")


def _tex(text: str) -> str:
    for character in "&%_#$":
        text = text.replace(character, f"\\{character}")
    for character, command in {
        "±": r"$\pm$",
        "–": "--",
        "−": "$-$",
        "δ": r"$\delta$",
        "·": r"$\cdot$",
    }.items():
        text = text.replace(character, command)
    return text
