"""Tables for a paper, in LaTeX."""

from __future__ import annotations

from .markdown_tables import difference, number
from .tables import Entry, Table

_SIGNS = {"±": r"$\pm$", "–": "--", "−": "$-$", "δ": r"$\delta$", "·": r"$\cdot$"}
_ESCAPES = str.maketrans({**{character: f"\\{character}" for character in "&%_#$"}, **_SIGNS})


def latex(table: Table) -> str:
    r"""A table for a paper (booktabs): ours, the paper's and the difference side by side.

    Needs `\usepackage{booktabs,graphicx}`.
    """
    columns = len(table.columns)
    names = [", ".join(filter(None, (column.title, column.run_text))) for column in table.columns]
    heads = [rf"\multicolumn{{3}}{{c}}{{{_tex(name)}}}" for name in names]
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
    if any(name for name, _ in table.groups):
        spans = [rf"\multicolumn{{{3 * width}}}{{c}}{{{_tex(name)}}}" for name, width in table.groups]
        lines.append(" & ".join(["", *spans]) + r" \\")
    lines += [
        "& " + " & ".join(heads) + r" \\",
        r"Method & " + " & ".join([r"ours & paper & $\Delta$"] * columns) + r" \\",
        r"\midrule",
    ]
    for row, title in table.rows.items():
        lines.append(" & ".join([_tex(title), *map(_entry, table.entries(row))]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}}"]
    lines += [
        rf"\par\footnotesize $^{{{i}}}$ {_tex(note)}" for i, note in enumerate(table.footnotes, start=1)
    ]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _entry(entry: Entry) -> str:
    ours = _tex(number(entry.ours))
    ours = rf"\textbf{{{ours}}}" if entry.best else ours
    ours += r"$\uparrow$" if entry.worse else ""
    ours += f"$^{{{entry.note}}}$" if entry.note else ""
    return f"{ours} & {_tex(number(entry.paper))} & {_tex(difference(entry))}"


def _tex(text: str) -> str:
    return text.translate(_ESCAPES)
