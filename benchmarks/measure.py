"""Timing side by side: contenders take turns in one process, so that whatever slows one slows all."""

from __future__ import annotations

import dataclasses
import json
import math
import socket
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from note_tta.files import write_text
from note_tta.provenance import provenance

Contender = Callable[[], object]


@dataclass(frozen=True)
class Figure:
    """A measured number with its spread and the bar it is held to.

    Attributes:
        name: What was measured.
        value: The median (for several shapes, the geometric mean of medians).
        low: First quartile.
        high: Third quartile.
        bar: The limit; None where the number is only reported.
        at_most: Whether the bar is an upper limit.
        unit: Empty for a ratio.
        detail: The numbers behind it, for the JSON.
    """

    name: str
    value: float
    low: float
    high: float
    bar: float | None = None
    at_most: bool = True
    unit: str = ""
    detail: dict[str, object] | None = None

    @property
    def kept(self) -> bool:
        """Whether the bar is kept; always where there is none."""
        return self.bar is None or (self.value <= self.bar if self.at_most else self.value >= self.bar)


def take_turns(
    contenders: dict[str, Contender], repeats: int, *, least: float = 2e-3
) -> dict[str, list[float]]:
    """Seconds a call of each contender, `repeats` times, in turns and in alternating order.

    Each turn begins with a call that is not timed, so that no contender pays for the memory and the caches that the one
    before it left.

    Args:
        contenders: What to time, by name.
        repeats: How many rounds.
        least: A measurement lasts at least so many seconds: short calls are made several times in a row.
    """
    loops = {}
    for name, call in contenders.items():
        call()
        once = min(_seconds(call, 1) for _ in range(3))
        loops[name] = max(1, math.ceil(least / max(once, 1e-9)))
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(repeats):
        for name in in_turn(contenders, repeat):
            contenders[name]()
            seconds[name].append(_seconds(contenders[name], loops[name]))
    return seconds


def side_by_side(
    contenders: dict[str, Callable[..., object]], stream: Iterable[tuple[Any, ...]]
) -> dict[str, list[float]]:
    """Seconds of each contender's calls, one for each item of the stream, in turns and in alternating order."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number, arguments in enumerate(stream):
        for name in in_turn(contenders, number):
            start = time.perf_counter()
            contenders[name](*arguments)
            seconds[name].append(time.perf_counter() - start)
    return seconds


def in_turn(names: Iterable[str], number: int) -> list[str]:
    """The names in the order of a round: every second round turns it around."""
    return list(names)[:: -1 if number % 2 else 1]


def _seconds(call: Contender, loops: int) -> float:
    start = time.perf_counter()
    for _ in range(loops):
        call()
    return (time.perf_counter() - start) / loops


def quartiles(values: Iterable[float]) -> tuple[float, float, float]:
    """First quartile, median and third quartile."""
    ordered = sorted(values)
    if len(ordered) == 1:
        return ordered[0], ordered[0], ordered[0]
    low, middle, high = statistics.quantiles(ordered, n=4, method="inclusive")
    return low, middle, high


def ratios(above: list[float], below: list[float]) -> list[float]:
    """Ratios of measurements taken in the same round."""
    return [a / b for a, b in zip(above, below, strict=True)]


def ratio_figure(
    name: str,
    rounds: list[list[float]],
    bar: float | None,
    *,
    at_most: bool = True,
    detail: dict[str, object] | None = None,
) -> Figure:
    """A figure from ratios in rounds, one list for each case; several cases become their geometric mean."""
    low, value, high = map(statistics.geometric_mean, zip(*map(quartiles, rounds), strict=True))
    return Figure(name, value, low, high, bar, at_most, detail=detail)


def write_figures(path: Path, figures: Iterable[Figure], *, keep: bool = False, **more: Any) -> None:
    """Write figures as JSON, each with the commit at which it was measured.

    Args:
        path: The file.
        figures: What was measured.
        keep: Keep figures of other names that the file has.
        **more: What else is to be told of the run.
    """
    source = provenance()
    measured = {
        figure.name: dataclasses.asdict(figure) | {"kept": figure.kept, "commit": source["commit"]}
        for figure in figures
    }
    if keep and path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        old = {"commit": before["provenance"]["commit"]}
        measured = {figure["name"]: old | figure for figure in before["figures"]} | measured
    content = {"provenance": source, **more, "figures": [*measured.values()]}
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
