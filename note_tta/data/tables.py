"""Strict reading of text tables: errors name the file and the line."""

from __future__ import annotations

import csv
import gzip
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt

from .base import BadData, Floats
from .windows import Doubles

MOST_ROWS = 5_000_000  # ten times the longest published recording
LONGEST_LINE = 1 << 16


def read_numbers(file: Path, columns: int) -> Floats:
    """Rows of `columns` numbers separated by blanks, float32 `[rows, columns]`; every one finite."""
    try:
        table = np.loadtxt(file, dtype=np.float32, ndmin=2)
    except ValueError:
        table = np.zeros((0, 0), np.float32)
    if table.shape[1] != columns or not len(table) or not np.isfinite(table).all():
        _explain_numbers(file, columns)
    return table


def _explain_numbers(file: Path, columns: int) -> None:
    """Find the first line that is not `columns` finite numbers and raise about it."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        number = 0
        for number, line in enumerate(lines, start=1):
            words = line.split()
            try:
                fine = len(words) == columns and bool(np.isfinite([float(word) for word in words]).all())
            except ValueError:
                fine = False
            if not fine:
                raise BadData(file, f"expected {columns} numbers, found {line.strip()[:60]!r}", line=number)
    raise BadData(file, "the file is empty" if not number else "unreadable table of numbers")


def read_columns(
    file: Path, columns: Sequence[str], *, text: Sequence[str] = (), blank: bool = False
) -> tuple[Doubles, list[list[str]]]:
    """Named columns of a CSV file (`.gz` or plain); other columns, such as an extra index, are ignored.

    Returns the numbers `[rows, len(columns)]` as float64, in which timestamps stay exact, and for each row the cells
    of the `text` columns. An empty or `nan` cell becomes NaN if `blank` cells are allowed, and is refused otherwise.
    """
    rows: list[list[float]] = []
    texts: list[list[str]] = []
    try:
        opener = gzip.open if file.suffix == ".gz" else open
        with opener(file, "rt", encoding="utf-8", newline="") as stream:
            reader = csv.reader(_lines(file, stream))
            header = next(reader, None)
            if header is None:
                raise BadData(file, "the file is empty")
            places, text_places = _places(file, header, columns), _places(file, header, text)
            for row in reader:
                if len(row) != len(header):
                    raise BadData(file, f"{len(row)} cells for {len(header)} columns", line=reader.line_num)
                try:
                    rows.append([float(row[place] or "nan") for place in places])
                except ValueError:
                    bad = next(place for place in places if not _is_number(row[place]))
                    problem = f"column {header[bad]}: not a number: {row[bad][:40]!r}"
                    raise BadData(file, problem, line=reader.line_num) from None
                if not blank and not np.isfinite(rows[-1]).all():
                    raise BadData(file, "a cell is empty, NaN or infinite", line=reader.line_num)
                texts.append([row[place] for place in text_places])
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError, csv.Error) as error:
        problem = f"truncated or damaged after {len(rows)} rows ({error}); fetch it again"
        raise BadData(file, problem) from error
    return np.asarray(rows, dtype=np.float64).reshape(len(rows), len(columns)), texts


def time_order(file: Path, timestamps: Doubles) -> npt.NDArray[np.int64]:
    """The order of the rows by time; a recording whose timestamps step back is sorted, with a warning."""
    backwards = np.flatnonzero(np.diff(timestamps) < 0)
    if len(backwards):
        line = int(backwards[0]) + 3
        warnings.warn(f"{file}, line {line}: timestamps step back; the rows are sorted by time", stacklevel=2)
    return np.argsort(timestamps, kind="stable")


def _lines(file: Path, stream: TextIO) -> Iterator[str]:
    """The lines of a file, with limits on their length and number, against crafted files."""
    for number in range(1, MOST_ROWS + 2):
        line = stream.readline(LONGEST_LINE)
        if not line:
            return
        if len(line) == LONGEST_LINE:
            raise BadData(file, f"a line of {LONGEST_LINE} characters or more", line=number)
        yield line
    raise BadData(file, f"more than {MOST_ROWS:,} rows")


def _places(file: Path, header: list[str], names: Sequence[str]) -> list[int]:
    absent = [name for name in names if name not in header]
    if absent:
        raise BadData(file, f"column {', '.join(absent)} is missing", line=1)
    return [header.index(name) for name in names]


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True
