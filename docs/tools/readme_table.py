"""The measured parts of the README and the home page: the results table, and how fast the demonstration starts.

`python docs/tools/readme_table.py` writes them into both pages.
"""

from __future__ import annotations

from pathlib import Path

from live_tables import demo_line
from markdown_table import markdown_table
from published import RESULTS

from note_tta.data import DATASETS
from note_tta.experiments.store import Store
from note_tta.experiments.variants import FILTER_ROWS, VARIANTS
from note_tta.report.markdown_tables import NONE, WORSE, number
from note_tta.report.scores import Scores, Setup
from note_tta.report.tables import mean_run

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"README.md": "docs/results.md", "docs/index.md": "results.md"}
"""The pages with the table, and the link to all results on each page."""

DEMO = ("<!-- demo: written by docs/tools/readme_table.py -->", "<!-- end of demo -->")
START, END = "<!-- results: written by docs/tools/readme_table.py -->", "<!-- end of results -->"
SHOWN = {"cifar10": "images", "hapt": "phone sensors", "extrasensory": "phone sensors"}
"""The datasets of the table, and what their samples are."""
OURS = tuple(row for row in FILTER_ROWS if "(ours)" in VARIANTS[row].title)
ROWS = ("source", "tent", "lame", "note", *OURS)
EMPTY = "No results are committed yet; `note-tta reproduce table1 --dataset cifar10` makes some."


def table(folder: Path, link: str = "docs/results.md") -> str:
    """Return the table in Markdown, or a sentence if there are no results.

    For each dataset the setup with the most results is shown. A cell is the mean over the samples and target domains
    that Source has, and the seeds that all methods have; a method with fewer samples or domains is left out.
    """
    scores = Scores(Store(folder))
    setups = [setup for name in SHOWN if (setup := scores.main_setup(name))]
    columns = [_column(scores, setup) for setup in setups]
    if not columns:
        return EMPTY
    rows = [
        (VARIANTS[row].title, *(column.get(row, NONE) for column in columns))
        for row in ROWS
        if any(row in column for column in columns)
    ]
    legend = (
        "Error in percent on correlated streams (runs of *n*: on average *n* samples of one class in a row). Lowest in "
        f"**bold**; {WORSE} worse than Source, the model without adaptation. {_behind(setups, columns)}"
        f"[All results]({link})."
    )
    heads = ["Method", *(_head(scores, setup) for setup in setups)]
    return f"{markdown_table(heads, rows)}\n\n{legend}"


def fill(page: str, content: str, start: str = START, end: str = END) -> str:
    """Put `content` between two markers of a page."""
    before, found_start, rest = page.partition(start)
    _, found_end, after = rest.partition(end)
    if not found_start or not found_end:
        raise ValueError(f"the page must have the markers {start!r} and {end!r}")
    return f"{before}{start}\n\n{content}\n\n{end}{after}"


def _head(scores: Scores, setup: Setup) -> str:
    run = mean_run([scores.of(setup.row("source"))])
    runs = "" if run is None else f"<br>runs of {run:.0f}"
    return f"{DATASETS[setup.dataset].title}<br>{SHOWN[setup.dataset]}{runs}"


def _behind(setups: list[Setup], columns: list[dict[str, str]]) -> str:
    """Say where NOTE alone is not the best method."""
    lowest = [next(row for row, cell in column.items() if cell.startswith("**")) for column in columns]
    behind = [
        DATASETS[setup.dataset].title for setup, row in zip(setups, lowest, strict=True) if row != "note"
    ]
    where = "any of them" if len(behind) == len(setups) else " and ".join(behind)
    return f"NOTE alone is not the best method on {where}. " if behind else ""


def _column(scores: Scores, setup: Setup) -> dict[str, str]:
    scored = scores.together({row: setup.row(row) for row in ROWS})
    source = scored["source"]
    found = {
        row: each for row, each in scored.items() if each and source and each.coverage == source.coverage
    }
    means = {row: round(score.number.mean, 1) for row, score in found.items()}
    cells = {}
    for row, score in found.items():
        text = number(score.number)
        text = f"**{text}**" if means[row] == min(means.values()) else text
        cells[row] = text + (f" {WORSE}" if means[row] > means["source"] else "")
    return cells


if __name__ == "__main__":
    for name, link in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        (ROOT / name).write_text(fill(text, table(RESULTS, link)), encoding="utf-8")
    readme = ROOT / "README.md"
    readme.write_text(fill(readme.read_text(encoding="utf-8"), demo_line(), *DEMO), encoding="utf-8")
