"""The whole report of a results folder: Markdown, LaTeX, figures and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..data import DATASETS
from ..experiments.catalog import EXPERIMENTS
from ..experiments.cell import Stream
from ..experiments.store import Record, Store
from ..files import write_text
from .claims import check_claims, orderings
from .figures import make_figures
from .html_page import report_page
from .latex import latex
from .markdown_pages import OWN_DATA, Report, details_file, details_page, filled_in, results_page
from .scores import Scores
from .tables import make_tables


def make_report(records: Sequence[Record]) -> Report:
    """Make every table, figure and claim that has results."""
    scores = Scores(records)
    tables = {name: make_tables(experiment, scores) for name, experiment in EXPERIMENTS.items()}
    figures = {name: make_figures(EXPERIMENTS[name], scores, tables[name]) for name in tables}
    return Report(scores, tables, figures, check_claims(scores), orderings(scores), scores.others())


def build_report(folder: str | Path, out: str | Path, archive: str | Path | None = None) -> list[Path]:
    """Read a results folder and write its report.

    The report is `results.md`, a page of details per dataset such as `details-cifar10.md`, `tables.tex`, `index.html`
    and `figures/*.svg` in the folder `out`; their paths are returned. A file `notes.md` in the results folder becomes
    part of `results.md`, and `notes-cifar10.md` of `details-cifar10.md`; their numbers are filled in from the results
    (see `filled_in`). The verdicts of an earlier version, whose results are in `archive`, get their own section.

    Raises:
        ValueError: A folder holds no results, or one that cannot be read.
    """
    out = Path(out)
    report = _read(folder)
    earlier = None if archive is None else _read(archive)
    parts = _by_dataset(report)
    texts = {
        out / "results.md": results_page(report, list(parts), _notes(folder, "notes.md", report), earlier),
        out / "tables.tex": "\n".join(latex(table) for tables in report.tables.values() for table in tables),
        out / "index.html": report_page(report),
    }
    for name, part in parts.items():
        words = _notes(folder, f"notes-{name}.md", report)
        texts[out / details_file(name)] = details_page(part, name, words)
    for figures in (figures for each in (report, *parts.values()) for figures in each.figures.values()):
        named = {out / "figures" / f"{figure.id}.svg": figure for figure in figures}
        texts |= {path: figure.file() for path, figure in named.items() if path not in texts}
    for path, text in texts.items():
        write_text(path, text)
    return list(texts)


def _by_dataset(report: Report) -> dict[str, Report]:
    """The report of each dataset alone."""
    records: dict[str, list[Record]] = {name: [] for name in DATASETS}
    for record in report.scores.records:
        stream = record.job if isinstance(record.job, Stream) else record.job.stream
        records.setdefault(stream.dataset if stream.dataset in DATASETS else OWN_DATA, []).append(record)
    return {name: make_report(own) for name, own in records.items() if own}


def _notes(folder: str | Path, name: str, report: Report) -> str:
    """The notes in a file of the results folder, with their numbers; empty if there is no such file."""
    file = Path(folder) / name
    return filled_in(file.read_text(encoding="utf-8"), report.scores) if file.is_file() else ""


def _read(folder: str | Path) -> Report:
    records = list(Store(folder))
    if not records:
        command = f"note-tta reproduce table1 --results {folder}"
        raise ValueError(f"no results in {folder}; make some with: {command}")
    return make_report(records)
