"""Gives cells to workers: a free lane gets the next cell; if a worker dies, its cell is tried again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol

from .cell import Job, unfiltered
from .store import Record

TRIES = 3
"""How many times a cell is tried before it counts as failed."""


@dataclass(frozen=True)
class Failure:
    """A cell that raised an error. It is not tried again."""

    message: str


@dataclass(frozen=True)
class Lost:
    """A cell whose worker died. It is tried again."""

    reason: str


class Backend(Protocol):
    """A number of workers (`lanes`). Each runs one cell at a time."""

    lanes: int

    def submit(self, lane: int, cell: Job) -> None:
        """Give a cell to a free lane."""

    def wait(self) -> tuple[int, Record | Failure | Lost]:
        """Wait until a lane becomes free, and return the lane with its outcome. A dead worker has been replaced."""

    def close(self) -> None:
        """Stop all workers at once."""


@dataclass
class Tally:
    """How many cells were done, and which failed."""

    done: int = 0
    failed: list[tuple[Job, str]] = field(default_factory=list)


def schedule(
    cells: Iterable[Job], backend: Backend, save: Callable[[Record], None], report: Callable[[str], None]
) -> Tally:
    """Run cells on a backend's lanes in this order, and save each result at once.

    A cell with a filter that comes right after the same cell without it runs on the same lane, whose worker still has
    the answers. The workers are stopped at the end, even after an error. `report` is called with one line if a worker
    died or a cell failed.
    """
    waiting = deque(deque((cell, 1) for cell in group) for _, group in groupby(cells, unfiltered))
    mine: dict[int, deque[tuple[Job, int]]] = {}
    running: dict[int, tuple[Job, int]] = {}
    tally = Tally()
    try:
        while waiting or running or any(mine.values()):
            for lane in range(backend.lanes):
                if lane not in running and (mine.get(lane) or waiting):
                    mine[lane] = mine.get(lane) or waiting.popleft()
                    running[lane] = mine[lane].popleft()
                    backend.submit(lane, running[lane][0])
            lane, outcome = backend.wait()
            cell, tries = running.pop(lane)
            if isinstance(outcome, Record):
                save(outcome)
                tally.done += 1
            elif isinstance(outcome, Lost) and tries < TRIES:
                report(f"a worker died ({outcome.reason}); trying again: {cell.describe()}")
                mine[lane].appendleft((cell, tries + 1))
            else:
                died = f"its worker died {TRIES} times"
                message = outcome.message if isinstance(outcome, Failure) else died
                report(f"failed: {cell.describe()}: {message}")
                tally.failed.append((cell, message))
    finally:
        backend.close()
    return tally
