"""The results table of the README, from the result files.

`python docs/tools/readme_table.py` writes it into README.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

from published import RESULTS

from note_tta.experiments.catalog import CORRELATED, METHOD_ROWS, TITLES, VARIANTS, Point
from note_tta.experiments.store import Store
from note_tta.report.results import Results, Score, Setup
from note_tta.report.tables import coverage_text
from note_tta.report.text import NONE, WORSE, number

ROOT = Path(__file__).resolve().parents[2]
START, END = "<!-- results: written by docs/tools/readme_table.py -->", "<!-- end of results -->"
DATASETS = ("cifar10", "mnist", "hapt", "extrasensory")
ROWS = (*METHOD_ROWS, "note_iid")
LESS = "°"
EMPTY = "No results are committed yet; `note-tta reproduce table1 --dataset cifar10` makes some."


def table(folder: Path) -> str:
    """The table in Markdown; a sentence in its place where there are no results.

    Each dataset has the setup that its results cover most of. A cell is our mean over the target domains
    and seeds, the paper's number in brackets where it has one.
    """
    results = Results(Store(folder))
    heads: list[str] = []
    columns: list[list[str]] = []
    notes: list[str] = []
    for dataset in DATASETS:
        chosen = _fullest(results, dataset)
        if chosen is None:
            continue
        setup = chosen[0]
        streams = ("correlated",) if CORRELATED[dataset] == "chronological" else ("correlated", "iid")
        over: dict[str, str] = {}
        for stream in streams:
            kind = "i.i.d." if stream == "iid" else "real stream" if len(streams) == 1 else "correlated"
            heads.append(f"{TITLES[dataset]}<br>{kind}")
            columns.append(_column(results, dataset, setup, stream))
            usual = results.score(dataset, setup, "source", Point(stream))
            if usual is not None:
                over[kind] = coverage_text(dataset, usual.coverage)
        backbone = ", ".join(filter(None, [setup.model, f"width {setup.width}" if setup.width else ""]))
        alike = len(set(over.values())) == 1
        words = next(iter(over.values())) if alike else ", ".join(f"{k} {text}" for k, text in over.items())
        notes.append(f"{TITLES[dataset]}: {backbone}, {words}")
    if not columns:
        return EMPTY
    lines = ["| Method | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    for i, row in enumerate(ROWS):
        title = VARIANTS[row].title.replace("*", r"\*")
        lines.append(f"| {title} | " + " | ".join(column[i] for column in columns) + " |")
    lines += [
        "",
        f"Error in percent (the paper's in brackets); **lowest** of the column; {WORSE} worse than Source "
        f"over the same samples. {'; '.join(notes)}. {LESS} over less than its column's Source; over what, "
        "say [the results](docs/results.md).",
    ]
    return "\n".join(lines)


def fill(readme: str, content: str) -> str:
    """The README with `content` between the two markers."""
    before, start, rest = readme.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"the README must have the markers {START!r} and {END!r}")
    return f"{before}{START}\n\n{content}\n\n{END}{after}"


def _fullest(results: Results, dataset: str) -> tuple[Setup, Score] | None:
    """The setup, of data opened as the paper has it, whose Source row covers most; with that row's score."""
    best: tuple[Setup, Score] | None = None
    for setup in results.setups(dataset):
        score = results.score(dataset, setup, "source")
        if score is None or setup.data_options:
            continue
        if best is None or _size(score) > _size(best[1]):
            best = (setup, score)
    return best


def _size(score: Score) -> tuple[int, int, int]:
    samples = score.coverage.samples
    return len(score.coverage.domains), sys.maxsize if samples is None else samples, len(score.coverage.seeds)


def _column(results: Results, dataset: str, setup: Setup, stream: str) -> list[str]:
    scores = {
        row: None
        if row == "note_iid" and stream != "iid"
        else results.score(dataset, setup, row, Point(stream))
        for row in ROWS
    }
    source = scores["source"]
    less = {row for row, score in scores.items() if score and source and _size(score)[:2] < _size(source)[:2]}
    means = {row: round(score.number.mean, 1) for row, score in scores.items() if score and row not in less}
    lowest = min(means.values(), default=None)
    cells = []
    for row, score in scores.items():
        text = number(score.number) if score else NONE
        if score and means.get(row) == lowest:
            text = f"**{text}**"
        if row in less:
            text += LESS
        pair = (
            results.pair(dataset, setup, (row, Point(stream)), ("source", Point(stream))) if score else None
        )
        if pair and round(pair[0].number.mean, 1) > round(pair[1].number.mean, 1):
            text += f" {WORSE}"
        paper = setup.paper(dataset, stream, row) if score else None
        cells.append(text if paper is None else f"{text} ({paper.mean:.1f})")
    return cells


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(fill(readme.read_text(encoding="utf-8"), table(RESULTS)), encoding="utf-8")
