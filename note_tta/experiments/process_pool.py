"""The local backend: worker processes that keep their data and models."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING

from .cell import Job
from .schedule import Failure, Lost
from .store import Record

if TYPE_CHECKING:
    from .worker import Settings


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class ProcessPool:
    """A pool of `lanes` processes (spawned, not forked). Each runs one cell at a time.

    A worker ends when its parent has ended. A worker that dies is replaced, and its cell is reported as lost.
    """

    def __init__(self, lanes: int, settings: Settings) -> None:
        if lanes < 1:
            raise ValueError(f"workers must be at least 1, got {lanes}")
        self.lanes = lanes
        self._settings = settings
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[int, tuple[BaseProcess, Connection]] = {}
        self._busy: set[int] = set()

    def submit(self, lane: int, cell: Job) -> None:
        """Give a cell to a free lane. The process of a lane starts with its first cell."""
        if lane not in self._workers:
            self._workers[lane] = self._start()
        self._busy.add(lane)
        with suppress(OSError):  # the worker died while idle: `wait` finds the closed pipe and reports it
            self._workers[lane][1].send(cell)

    def wait(self) -> tuple[int, Record | Failure | Lost]:
        """Wait until a lane becomes free, and return the lane with its outcome."""
        lanes = {self._workers[lane][1]: lane for lane in self._busy}
        connection = wait(list(lanes))[0]
        lane = lanes[connection]  # type: ignore[index]
        self._busy.remove(lane)
        process, pipe = self._workers[lane]
        try:
            outcome: Record | Failure = pipe.recv()
            return lane, outcome
        except (EOFError, OSError):
            process.join()
            pipe.close()
            del self._workers[lane]
            return lane, Lost(_reason(process.exitcode))

    def close(self) -> None:
        """Stop all workers at once."""
        for process, pipe in self._workers.values():
            pipe.close()
            process.terminate()
        for process, _ in self._workers.values():
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()
        self._workers.clear()
        self._busy.clear()

    def _start(self) -> tuple[BaseProcess, Connection]:
        here, there = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(there, self._settings, os.getpid()), daemon=True)
        with _interrupts_blocked():
            process.start()
        there.close()
        return process, here


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Hide Ctrl-C from a process that is started inside the block; in this process it takes effect after the block."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, settings: Settings, parent: int) -> None:
    """Run the cells that arrive through `pipe` until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if settings.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(settings.threads)
    from .worker import Worker

    worker = Worker(settings)
    with suppress(EOFError, OSError):  # the pipe is closed
        while True:
            pipe.send(worker.attempt(pipe.recv()))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _reason(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by signal {-code}"
    return f"exit code {code}"
