"""What a report tells: every table, figure and claim there are results for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..experiments.catalog import EXPERIMENTS
from ..experiments.cell import Cell
from ..experiments.store import Record
from .claims import Claim, Ordering, check_claims, orderings
from .figures import Figure, make_figures
from .layouts import make_tables
from .results import Other, Results
from .tables import Table

__all__ = ["Report", "facts", "make_report", "row_text"]


@dataclass(frozen=True)
class Report:
    """Everything that is told of some results.

    Attributes:
        results: What it is made from.
        tables: By experiment.
        figures: By experiment.
        claims: On every dataset and setup.
        orders: Of every column.
        others: Runs that are part of no experiment.
    """

    results: Results
    tables: dict[str, list[Table]]
    figures: dict[str, list[Figure]]
    claims: list[Claim]
    orders: list[Ordering]
    others: list[Other]


def make_report(records: Sequence[Record]) -> Report:
    """Work out every table, figure and claim there are results for."""
    results = Results(records)
    tables = {name: make_tables(experiment, results) for name, experiment in EXPERIMENTS.items()}
    figures = {
        name: make_figures(experiment, results, tables[name]) for name, experiment in EXPERIMENTS.items()
    }
    return Report(results, tables, figures, check_claims(results), orderings(results), results.others())


def row_text(row: Cell) -> str:
    """A row of no experiment in words.

    Example:
        >>> from note_tta.experiments.cell import Stream
        >>> row_text(Cell(Stream("hapt", "", "iid"), "note", model="sensor_cnn4"))
        'hapt note on sensor_cnn4 (bn), iid'
    """
    return row.describe().replace("/ ", " ").rpartition(", seed")[0]


def facts(results: Results) -> list[tuple[str, str]]:
    """Where results come from: versions, commits, machines, data and the time they took."""

    def seen(*path: str) -> str:
        values = []
        for record in results.records:
            value: object = record.provenance
            for key in path:
                value = value.get(key) if isinstance(value, dict) else None
            values.append(value)
        return ", ".join(sorted({str(value) for value in values if value is not None})) or "–"

    dirty = sum(bool(record.provenance.get("dirty")) for record in results.records)
    hours = sum(float(record.provenance.get("wall_seconds", 0.0)) for record in results.records) / 3600
    runs = sum(isinstance(record.job, Cell) for record in results.records)
    drawn = f" and {len(results.streams)} streams drawn" if results.streams else ""
    return [
        ("Runs", f"{runs:,}{drawn}, {hours:.1f} hours of computing"),
        ("Versions", f"note-tta {seen('version')}; torch {seen('torch')}; Python {seen('python')}"),
        ("Commits", seen("commit") + (f" ({dirty:,} runs from a changed tree)" if dirty else "")),
        ("Machines", seen("machine")),
        ("Data", seen("data", "origin")),
    ]
