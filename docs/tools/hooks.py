"""Hooks for MkDocs: pages made from result files, and a nav without missing pages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))

from benchmark_page import benchmarks
from code_blocks import include_files
from costs import reproduce_table
from filter_tables import cost, gains, layers, variants
from live_tables import fleet_table, picture, separate_line, serve_table, size_table
from published import RESULTS
from record_tables import dataset_table, family_sections, method_entries, method_table
from watch_tables import (
    attack_table,
    collapse_table,
    cost_line,
    estimate_table,
    honest_table,
    published_table,
)

from note_tta.experiments.store import Store
from note_tta.report.build import make_report
from note_tta.report.html_page import report_page

ROOT = Path(__file__).resolve().parents[2]
REPORT = "report/index.html"
TABLES = {
    "<!-- experiments -->": reproduce_table,
    "<!-- methods -->": method_table,
    "<!-- datasets -->": dataset_table,
    "<!-- watch attacks -->": attack_table,
    "<!-- watch collapses -->": collapse_table,
    "<!-- watch cost -->": cost_line,
    "<!-- watch estimates -->": estimate_table,
    "<!-- watch honest -->": honest_table,
    "<!-- watch published -->": published_table,
    "<!-- families -->": family_sections,
    "<!-- method entries -->": method_entries,
    "<!-- filter gains -->": gains,
    "<!-- filter settings -->": variants,
    "<!-- adapt choices -->": layers,
    "<!-- filter cost -->": cost,
    "<!-- fleet figures -->": fleet_table,
    "<!-- fleet sizes -->": size_table,
    "<!-- fleet picture -->": picture,
    "<!-- fleet and separate methods -->": separate_line,
    "<!-- serve figures -->": serve_table,
}
"""What a page's comment stands for."""


def on_config(config: Any) -> Any:
    """Leave generated pages that do not exist yet out of the nav."""
    config.nav = _present(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the benchmarks page and, where there are results, the interactive report."""
    files.append(File.generated(config, "benchmarks.md", content=benchmarks(ROOT / "results" / "benchmarks")))
    records = list(Store(RESULTS))
    if records:
        files.append(File.generated(config, REPORT, content=report_page(make_report(records))))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Fill in files and tables, and point from the results to the interactive report."""
    markdown = include_files(markdown)
    for mark, make in TABLES.items():
        if mark in markdown:
            markdown = markdown.replace(mark, make())
    if page.file.src_uri == "results.md" and files.get_file_from_path(REPORT) is not None:
        title, _, rest = markdown.partition("\n")
        link = f"[Sort the tables and watch the streams on the interactive page]({REPORT})."
        return f"{title}\n\n{link}\n{rest}"
    return markdown


def _present(nav: list[Any], docs: Path) -> list[Any]:
    kept: list[Any] = []
    for entry in nav:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            kept.append({title: _present(target, docs)})
        elif target == "benchmarks.md" or (docs / target).is_file():
            kept.append(entry)
    return kept
