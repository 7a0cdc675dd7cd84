"""The result store: a folder with one JSON file a cell, each written whole or not at all."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.files import write_text
from .cell import Cell

__all__ = ["SCHEMA", "Record", "Store", "parse_record", "thinned"]

SCHEMA = 1
"""The version of the result files that this version of the package writes and reads."""

MAX_BYTES = 4_000_000
"""A result file larger than this is refused unread; a real one has a few kilobytes."""

POINTS = 200
"""Points kept of a curve over a stream."""

_NAME = re.compile(r".*-[0-9a-f]{16}\.json")


@dataclass(frozen=True)
class Record:
    """A cell, what came out, and where it came from.

    Attributes:
        cell: The configuration.
        result: `error` (percent), `samples`, `seconds`, `cumulative_error` and `labels` (thinned to `POINTS`
            places of the stream), `mean_run_length`, `per_class_error`, `counters`, `predictions_sha256`,
            `samples_per_second`, `latency_ms`. Of a cell that records the stream alone: what needs no model.
        provenance: Versions, commit, machine, and the fingerprints of data and checkpoint.
    """

    cell: Cell
    result: dict[str, Any]
    provenance: dict[str, Any]

    def to_json(self) -> str:
        """The file's text: one line a value, keys sorted, so that it can be read and diffed."""
        sections = {
            "schema": SCHEMA,
            "id": self.cell.id,
            "cell": self.cell.config(),
            "result": self.result,
            "provenance": self.provenance,
        }
        lines = []
        for name, value in sections.items():
            if isinstance(value, dict):
                inner = ",\n".join(f'  "{key}": {_compact(value[key])}' for key in sorted(value))
                lines.append(f' "{name}": {{\n{inner}\n }}')
            else:
                lines.append(f' "{name}": {_compact(value)}')
        return "{\n" + ",\n".join(lines) + "\n}\n"


class Store:
    """A folder of results.

    Args:
        folder: Made when the first result is saved.

    Example:
        >>> import tempfile
        >>> cell = Cell("cifar10", "fog", "note", "iid")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = Store(folder)
        ...     store.save(Record(cell, {"error": 21.1, "samples": 10}, {}))
        ...     store.load(cell).result["error"], len(store)
        (21.1, 1)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"the results must be in a folder, but {self.folder} is a file")

    def path(self, cell: Cell) -> Path:
        """Where the cell's result is or will be."""
        return self.folder / cell.file_name

    def __contains__(self, cell: Cell) -> bool:
        return self.path(cell).is_file()

    def __len__(self) -> int:
        return len(self.files())

    def __iter__(self) -> Iterator[Record]:
        for path in self.files():
            yield parse_record(path)

    def files(self) -> list[Path]:
        """The result files, by name; other files in the folder are left alone."""
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.glob("*.json") if _NAME.fullmatch(path.name))

    def load(self, cell: Cell) -> Record:
        """Read a cell's result.

        Raises:
            ValueError: The file is not a result of this version, or of another cell.
        """
        record = parse_record(self.path(cell))
        if record.cell != cell:
            raise ValueError(f"{self.path(cell)} holds the result of another cell; delete it and run again")
        return record

    def save(self, record: Record) -> None:
        """Write a result: a reader sees the old file, or the new one, never a part of it."""
        write_text(self.path(record.cell), record.to_json(), mark=str(os.getpid()))

    def sweep(self) -> None:
        """Remove what killed runs of this machine left half-written."""
        if self.folder.is_dir():
            for path in self.folder.glob(".*.json.*.part"):
                process = path.name.split(".")[-2]
                if process.isdigit() and not _alive(int(process)):
                    path.unlink(missing_ok=True)


def parse_record(path: Path) -> Record:
    """Read a result file.

    Raises:
        ValueError: The file, which the message names, is damaged, of another version or no result at all.
    """
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ValueError(
            f"{path} is not a result of note-tta: it has {size:,} bytes, a result at most {MAX_BYTES:,}"
        )
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a result of note-tta: {error}; delete it and run again") from error
    if not isinstance(data, dict) or "schema" not in data:
        raise ValueError(f"{path} is not a result of note-tta: it has no schema version")
    if data["schema"] != SCHEMA:
        raise ValueError(
            f"{path} is of result schema {data['schema']!r}, this version of note-tta reads {SCHEMA}: "
            "read it with the version that wrote it, or run it again into another folder"
        )
    try:
        cell, result, provenance = Cell.from_config(data["cell"]), data["result"], data["provenance"]
        _check_result(cell, result)
        if data["id"] != cell.id or not isinstance(provenance, dict):
            raise ValueError("its id does not fit its configuration")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} is a damaged result: {error}; delete it and run again") from error
    return Record(cell, result, provenance)


def thinned(values: Any, points: int = POINTS, digits: int = 2) -> list[Any]:
    """At most `points` of a sequence's values at even distances, the last one always among them.

    Example:
        >>> thinned([float(i) for i in range(10)], points=3)
        [2.0, 5.0, 9.0]
        >>> thinned([1, 2], points=3)
        [1, 2]
    """
    values = values.tolist() if hasattr(values, "tolist") else list(values)
    if len(values) > points:
        values = [values[(i + 1) * len(values) // points - 1] for i in range(points)]
    return [round(value, digits) if isinstance(value, float) else value for value in values]


def _check_result(cell: Cell, result: Any) -> None:
    numbers = ["samples"] if cell.method == "stream" else ["samples", "error"]
    for name in numbers:
        value = result[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise ValueError(f"its {name} is {value!r}")
    for name in ("cumulative_error", "labels"):
        values = result.get(name, [])
        if not isinstance(values, list) or not all(isinstance(value, int | float) for value in values):
            raise ValueError(f"its {name} is not a list of numbers")


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OSError):
        return True
    return True
