"""The whole report of a results folder: Markdown, LaTeX, SVG and the page."""

from __future__ import annotations

from pathlib import Path

from ..data.files import write_text
from ..experiments.catalog import EXPERIMENTS, TITLES
from ..experiments.store import Store
from .contents import Report, facts, make_report, row_text
from .document import results_markdown
from .figures import make_panels
from .page import Card, Section, page
from .results import Results
from .tables import coverage_text
from .text import latex, number

__all__ = ["build_report", "report_page"]

CARD_ROWS = ("source", "bn_stats", "tent", "lame", "note")


def build_report(folder: str | Path, out: str | Path) -> list[Path]:
    """Read a results folder and write `results.md`, `tables.tex`, `index.html` and `figures/*.svg`.

    A file `notes.md` in the results folder is taken into `results.md` as it is: words, no numbers.

    Returns:
        The files written.

    Raises:
        ValueError: The folder holds no results, or one that cannot be read.
    """
    store, out = Store(folder), Path(out)
    records = list(store)
    if not records:
        command = f"note-tta reproduce table1 --results {store.folder}"
        raise ValueError(f"no results in {store.folder}; make some with: {command}")
    report = make_report(records)
    notes = store.folder / "notes.md"
    texts = {
        out / "results.md": results_markdown(
            report, notes.read_text(encoding="utf-8") if notes.is_file() else ""
        ),
        out / "tables.tex": "\n".join(latex(table) for tables in report.tables.values() for table in tables),
        out / "index.html": report_page(report),
    }
    for figures in report.figures.values():
        texts |= {out / "figures" / f"{figure.id}.svg": figure.file() for figure in figures}
    for path, text in texts.items():
        write_text(path, text)
    return list(texts)


def report_page(report: Report) -> str:
    """The results as a page."""
    panels = make_panels(report.results)
    sections = []
    if report.claims:
        sections.append(Section("claims", "The paper's claims", "Claims", claims=tuple(report.claims)))
    if panels:
        sections.append(
            Section(
                "streams",
                "Watch a stream",
                "Streams",
                "Choose a stream; click a method to hide or show it.",
                explorer=True,
            )
        )
    for name, experiment in EXPERIMENTS.items():
        tables, figures = report.tables[name], report.figures[name]
        if experiment.kind == "curves":
            figures = []  # the explorer has every one of them
        if tables or figures:
            sections.append(
                Section(
                    name,
                    experiment.title,
                    experiment.title.partition(":")[0],
                    "",
                    tuple(tables),
                    tuple(figures),
                )
            )
    if report.others:
        others = [
            (row_text(row), f"{number(score.number)} %, {coverage_text(row.stream.dataset, score.coverage)}")
            for row, score, _ in report.others
        ]
        sections.append(Section("others", "Other runs", "Other runs", facts=tuple(others)))
    sections.append(Section("origin", "Where this comes from", "Origin", facts=tuple(facts(report.results))))
    intro = (
        "Test-time adaptation on time-correlated streams: our errors beside those of the NOTE paper "
        f"(NeurIPS 2022), from {len(report.results.records):,} runs."
    )
    return page("Results beside the paper's", intro, sections, panels, _cards(report.results))


def _cards(results: Results) -> list[Card]:
    cards = []
    for dataset in TITLES:
        for setup in results.setups(dataset):
            scores = {row: results.score(dataset, setup, row) for row in CARD_ROWS}
            bars = tuple((row, score.number.mean) for row, score in scores.items() if score)
            if len(bars) > 1:
                over = ", ".join(filter(None, [setup.label(dataset), "correlated stream, error in percent"]))
                cards.append(Card(TITLES[dataset], over, bars))
    return cards[:8]
