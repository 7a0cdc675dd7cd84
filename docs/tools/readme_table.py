"""The results table of the README and the home page, from the result files.

`python docs/tools/readme_table.py` writes it into README.md and docs/index.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

from published import RESULTS

from note_tta.experiments.catalog import TITLES, VARIANTS, Point
from note_tta.experiments.store import Store
from note_tta.report.coverage import coverage_text
from note_tta.report.markdown import NONE, WORSE, escaped, number
from note_tta.report.scores import Score, Scores, Setup

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"README.md": "docs/results.md", "docs/index.md": "results.md"}
"""Where the table stands, and how each page links to all results."""

START, END = "<!-- results: written by docs/tools/readme_table.py -->", "<!-- end of results -->"
COLUMNS = {
    "images in runs of one class": ("cifar10", "correlated"),
    "the same, shuffled": ("cifar10", "iid"),
    "a real stream": ("hapt", "correlated"),
}
ROWS = ("source", "bn_stats", "tent", "lame", "note", "note_iid")
EMPTY = "No results are committed yet; `note-tta reproduce table1 --dataset cifar10` makes some."


def table(folder: Path, link: str = "docs/results.md") -> str:
    """The table in Markdown; a sentence in its place where there are no results.

    Each dataset has the setup that its results cover most of. A cell is a mean over target domains and seeds;
    a method that covers less than Source is left out of its column.
    """
    scores = Scores(Store(folder))
    columns: dict[str, dict[str, Score]] = {}
    notes: dict[str, None] = {}
    for words, (dataset, stream) in COLUMNS.items():
        setup = _fullest(scores, dataset)
        found = _column(scores, setup, Point(stream)) if setup else {}
        if setup and found:
            columns[f"{TITLES[dataset]}<br>{words}"] = found
            notes[f"{setup.title}, {coverage_text(dataset, found['source'].coverage)}"] = None
    if not columns:
        return EMPTY
    lines = ["| Method | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for row in ROWS:
        cells = [_cell(row, found) for found in columns.values()]
        if any(cell != NONE for cell in cells):
            lines.append(f"| {escaped(VARIANTS[row].title)} | " + " | ".join(cells) + " |")
    others = [f"{_best(found)} on {head.replace('<br>', ' (')})" for head, found in columns.items()]
    ahead = [text for text, found in zip(others, columns.values(), strict=True) if _lowest(found) != "note"]
    lines += [
        "",
        f"Error in percent; **lowest** of the column; {WORSE} worse than Source, the model left alone. "
        f"[All methods, datasets and settings]({link}).",
    ]
    if ahead:
        lines += ["", f"NOTE is not the best everywhere: {'; '.join(ahead)}."]
    lines += ["", f"<sub>{'; '.join(notes)}.</sub>"]
    return "\n".join(lines)


def fill(page: str, content: str) -> str:
    """A page with `content` between the two markers."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"the page must have the markers {START!r} and {END!r}")
    return f"{before}{START}\n\n{content}\n\n{END}{after}"


def _fullest(scores: Scores, dataset: str) -> Setup | None:
    """The setup, of data opened as the paper has it, whose Source row covers most."""
    found = {
        setup: score
        for setup in scores.setups(dataset)
        if not setup.data_options and (score := scores.of(setup.row("source")))
    }
    return max(found, key=lambda setup: _size(found[setup]), default=None)


def _size(score: Score) -> tuple[int, int, int]:
    samples, domains, seeds, _ = score.coverage
    return len(domains), sys.maxsize if samples is None else samples, len(seeds)


def _column(scores: Scores, setup: Setup, point: Point) -> dict[str, Score]:
    found = {row: score for row in ROWS if (score := scores.of(setup.row(row, point)))}
    if point.stream != "iid":
        found.pop("note_iid", None)
    source = found.get("source")
    return {row: score for row, score in found.items() if source and _size(score)[:2] == _size(source)[:2]}


def _cell(row: str, found: dict[str, Score]) -> str:
    if row not in found:
        return NONE
    text = number(found[row].number)
    worse = round(found[row].number.mean, 1) > round(found["source"].number.mean, 1)
    return (f"**{text}**" if row == _lowest(found) else text) + (f" {WORSE}" if worse else "")


def _lowest(found: dict[str, Score]) -> str:
    return min(found, key=lambda row: round(found[row].number.mean, 1))


def _best(found: dict[str, Score]) -> str:
    row = _lowest(found)
    return f"{escaped(VARIANTS[row].title)} has {number(found[row].number)}"


if __name__ == "__main__":
    for name, link in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        (ROOT / name).write_text(fill(text, table(RESULTS, link)), encoding="utf-8")
