"""The results folder: one file of JSON lines per dataset and network. Data that runs share is stored once.

| File | One line holds |
|---|---|
| `<dataset>-<network>.jsonl` | a run: its cell, its result, and the ids of the data that it shares with other runs |
| `streams.jsonl` | a stream: its configuration, length, mean run length and labels |
| `checkpoints.jsonl` | a source model: file name, fingerprint and card |
| `provenance.jsonl` | versions, commit and machine |

Each line is appended in one write and never changed. If a cell was run twice, the later run counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from ..files import append_line
from .cell import Cell, Job, Stream, job_from_config

SCHEMA = 2
"""The version of the result files that this version of the package writes and reads."""

MAX_BYTES = 4_000_000
"""The longest line that is read, in bytes; a usual line has about a kilobyte."""

POINTS = 200
"""How many labels of a stream are kept."""

STRETCHES = 100
"""The number of parts of a stream for which wrong answers are counted."""

_SHARED = ("streams", "checkpoints", "provenance")
_OF_STREAM = ("samples", "mean_run_length", "labels")


@dataclass(frozen=True)
class Record:
    """A cell or a stream with its result and its provenance.

    Attributes:
        job: The configuration.
        result: For a stream, `samples`, `mean_run_length` and `labels` (at `POINTS` places). For a cell also
            `error` (percent), `wrong` (wrong answers in each of `STRETCHES` parts of the stream),
            `per_class_error`, `counters`, `predictions_sha256`, `seconds`, `samples_per_second`,
            `latency_ms`, and for a protocol `visits`: by domain, the error of each visit.
        provenance: Versions, commit, machine, time, and the fingerprints of data and checkpoint.
    """

    job: Job
    result: dict[str, Any]
    provenance: dict[str, Any]


class Store:
    """A folder of results.

    Args:
        folder: The folder; it is created when the first result is saved.

    Example:
        >>> import tempfile
        >>> cell = Cell(Stream("cifar10", "fog", "iid"), "note", model="resnet20")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Store(folder).save(Record(cell, {"error": 21.1, "samples": 10}, {}))
        ...     Store(folder).load(cell).result["error"], len(Store(folder))
        (21.1, 1)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"the results must be in a folder, but {self.folder} is a file")
        self._read: dict[Path, tuple[int, int]] = {}  # bytes and lines read so far
        self._shared: dict[str, dict[str, Any]] = {}
        self._records: dict[Job, Record] = {}

    def path(self, cell: Cell) -> Path:
        """Return the file for the cell's result."""
        width = "" if cell.width is None else f"w{cell.width}"
        words = (re.sub(r"[^A-Za-z0-9_.]+", "_", word) for word in (cell.stream.dataset, cell.model, width))
        return self.folder / ("-".join(word.strip("_.")[-80:] for word in words if word) + ".jsonl")

    def files(self) -> list[Path]:
        """Return the files of runs, sorted by name."""
        return [path for path in sorted(self.folder.glob("*-*.jsonl")) if path.is_file()]

    def __contains__(self, job: Job) -> bool:
        self._refresh()
        return job in self._records

    def __len__(self) -> int:
        self._refresh()
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        self._refresh()
        return iter(list(self._records.values()))

    def load(self, job: Job) -> Record:
        """Return the result of a cell or stream.

        Raises:
            KeyError: There is no result.
            ValueError: A file holds something other than results. The message names the file and the line.
        """
        self._refresh()
        return self._records[job]

    def save(self, record: Record) -> None:
        """Append a result; first append the data that it shares with others, unless it is already stored."""
        self._refresh()
        result, origin = dict(record.result), dict(record.provenance)
        drawn: dict[str, Any] = {key: result.pop(key) for key in _OF_STREAM if key in result}
        if "data" in origin:
            drawn["data"] = origin.pop("data")
        own: dict[str, Any] = {key: origin.pop(key) for key in ("time", "wall_seconds") if key in origin}
        checkpoint = origin.pop("checkpoint", None)
        own["provenance"] = self._share("provenance", origin)
        job = record.job
        if isinstance(job, Stream):
            self._share("streams", {"stream": job.config(), **drawn, **own})
            return
        own["stream"] = self._share("streams", {"stream": job.stream.config(), **drawn})
        if checkpoint is not None:
            own["checkpoint"] = self._share("checkpoints", checkpoint)
        line = {"schema": SCHEMA, "cell": job.config(), "result": result, **own}
        append_line(self.path(job), _compact(line))

    def _share(self, kind: str, content: dict[str, Any]) -> str:
        """Return the id of a shared line; append the line unless it is already stored."""
        text = json.dumps(content, sort_keys=True, allow_nan=False)
        key = hashlib.sha256(text.encode()).hexdigest()[:12]
        if key not in self._shared:
            line = {"schema": SCHEMA, "id": key, **content}
            append_line(self.folder / f"{kind}.jsonl", _compact(line))
            self._shared[key] = line
        return key

    def _refresh(self) -> None:
        """Read what was appended since the last time. Runs are read first, so that all lines they refer to exist."""
        runs = [line for path in self.files() for line in self._new_lines(path)]
        drawn = []
        for kind in _SHARED:
            for where, line in self._new_lines(self.folder / f"{kind}.jsonl"):
                with _naming(where):
                    self._shared[line["id"]] = line
                if kind == "streams" and "provenance" in line:  # a stream that was drawn without a method
                    run = {"cell": line["stream"], "result": {}, **line, "stream": line["id"]}
                    drawn.append((where, run))
        for where, line in drawn + runs:
            with _naming(where):
                self._add(line["cell"], line["result"], line)

    def _add(self, config: Any, result: Any, line: dict[str, Any]) -> None:
        """Build a result from its line and the lines that it refers to."""
        job = job_from_config(config)
        drawn = self._shared[line["stream"]]
        result = {**result, **{key: drawn[key] for key in _OF_STREAM if key in drawn}}
        _check_result(job, result)
        origin = _without(self._shared[line["provenance"]], "schema", "id")
        if "checkpoint" in line:
            origin["checkpoint"] = _without(self._shared[line["checkpoint"]], "schema", "id")
        origin |= {key: value for key, value in line.items() if key in ("time", "wall_seconds")}
        origin |= {"data": drawn["data"]} if "data" in drawn else {}
        self._records.pop(job, None)
        self._records[job] = Record(job, result, origin)

    def _new_lines(self, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the new complete lines of a file, each with its position for messages."""
        start, number = self._read.get(path, (0, 0))
        if not path.is_file() or path.stat().st_size == start:
            return
        with path.open("rb") as file:
            file.seek(start)
            while line := file.readline(MAX_BYTES + 1):
                number += 1
                where = f"{path}, line {number}"
                if len(line) > MAX_BYTES:
                    problem = f"it is longer than {MAX_BYTES:,} bytes"
                    raise ValueError(f"{where} is not a result of note-tta: {problem}")
                if not line.endswith(b"\n"):  # still being written, or the writer was killed
                    return
                with _naming(where):
                    content = json.loads(line)
                    schema = content["schema"]
                if schema != SCHEMA:
                    raise ValueError(
                        f"{where} has result schema {schema!r}, but this version of note-tta reads {SCHEMA}: "
                        "read it with the version that wrote it, or run it again into another folder"
                    )
                start += len(line)
                self._read[path] = (start, number)
                yield where, content


def cumulative_error(result: dict[str, Any]) -> list[float]:
    """Return the error so far, in percent, at the end of each part of a run's stream.

    Example:
        >>> cumulative_error({"samples": 10, "wrong": [5, 1]})
        [100.0, 60.0]
    """
    wrong, samples = result.get("wrong", []), result["samples"]
    ends = [(i + 1) * samples // len(wrong) for i in range(len(wrong))]
    return [round(100 * n / end, 2) for n, end in zip(accumulate(wrong), ends, strict=True)]


def count_wrong(wrong: Any, stretches: int = STRETCHES) -> list[int]:
    """Count the wrong answers in each of `stretches` parts of a stream; in a short stream, per sample.

    Example:
        >>> count_wrong([True] * 5 + [False, True, False, False, False], 2)
        [5, 1]
    """
    flags = [bool(flag) for flag in wrong]
    stretches = min(stretches, len(flags))
    ends = [i * len(flags) // stretches for i in range(stretches + 1)]
    return [sum(flags[start:end]) for start, end in pairwise(ends)]


def thinned(values: Any, points: int = POINTS, digits: int = 2) -> list[Any]:
    """Return at most `points` evenly spaced values of a sequence, including the last one.

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


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Add to an error where the damaged line is, and what to do."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{where} is a damaged result: {reason}; delete the line and run again") from error


def _check_result(job: Job, result: dict[str, Any]) -> None:
    for name in ("samples",) if isinstance(job, Stream) else ("samples", "error"):
        value = result[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise ValueError(f"its {name} is {value!r}")
    for name in ("wrong", "labels"):
        values = result.get(name, [])
        if not isinstance(values, list) or not all(isinstance(value, int) for value in values):
            raise ValueError(f"its {name} is not a list of whole numbers")


def _without(line: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in names}


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
