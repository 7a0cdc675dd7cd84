"""The results table of the README, from the result files.

`python docs/tools/readme_table.py` writes it into README.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

from published import RESULTS

from note_tta.experiments.catalog import CORRELATED, METHOD_ROWS, TITLES, VARIANTS, Point
from note_tta.experiments.store import Store
from note_tta.report.coverage import coverage_text
from note_tta.report.markdown import NONE, WORSE, number
from note_tta.report.scores import Score, Scores, Setup

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
    scores = Scores(Store(folder))
    heads: list[str] = []
    columns: list[list[str]] = []
    notes: list[str] = []
    for dataset in DATASETS:
        setup = _fullest(scores, dataset)
        if setup is None:
            continue
        streams = ("correlated",) if CORRELATED[dataset] == "chronological" else ("correlated", "iid")
        over: dict[str, str] = {}
        for stream in streams:
            kind = "i.i.d." if stream == "iid" else "real stream" if len(streams) == 1 else "correlated"
            heads.append(f"{TITLES[dataset]}<br>{kind}")
            columns.append(_column(scores, setup, stream))
            usual = scores.of(setup.row("source", Point(stream)))
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


def _column(scores: Scores, setup: Setup, stream: str) -> list[str]:
    rows = [row for row in ROWS if row != "note_iid" or stream == "iid"]
    found = {row: score for row in rows if (score := scores.of(setup.row(row, Point(stream))))}
    source = found.get("source")
    less = {row for row, score in found.items() if source and _size(score)[:2] < _size(source)[:2]}
    means = {row: round(score.number.mean, 1) for row, score in found.items() if row not in less}
    cells = []
    for row in ROWS:
        if row not in found:
            cells.append(NONE)
            continue
        text = number(found[row].number)
        text = f"**{text}**" if means.get(row) == min(means.values(), default=None) else text
        text += LESS if row in less else ""
        pair = scores.pair(setup.row(row, Point(stream)), setup.row("source", Point(stream)))
        if pair and round(pair[0].number.mean, 1) > round(pair[1].number.mean, 1):
            text += f" {WORSE}"
        paper = setup.paper(stream, row)
        cells.append(text if paper is None else f"{text} ({paper.mean:.1f})")
    return cells


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(fill(readme.read_text(encoding="utf-8"), table(RESULTS)), encoding="utf-8")
