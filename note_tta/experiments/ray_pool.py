"""The Ray backend: workers as Ray actors, on this machine or on a cluster."""

from __future__ import annotations

import logging
import os
from typing import Any

from .cell import Job
from .schedule import Failure, Lost
from .store import Record
from .worker import Settings, Worker

LOCAL = "local"
"""The address that starts a cluster on this machine."""


class RayPool:
    """A pool of `lanes` Ray actors. Each runs one cell at a time. Results come back through Ray, not through files.

    Args:
        lanes: The number of actors; None for as many as the cluster has cores for.
        settings: The settings of each worker. The data root and the models folder must exist on every machine.
        address: The address of a cluster; `local` starts a cluster on this machine, `auto` finds a running one.
    """

    def __init__(self, lanes: int | None, settings: Settings, address: str = LOCAL) -> None:
        try:
            import ray
        except ImportError as error:
            raise ValueError("--ray needs Ray: pip install 'note-tta[ray]'") from error
        self._ray: Any = ray
        self._settings = settings
        self._started = not self._ray.is_initialized()
        if self._started:
            where: dict[str, Any] = {"address": address}
            if address == LOCAL:  # normal priority, as in the process pool; Ray's default is low
                where = {"num_cpus": lanes, "_system_config": {"worker_niceness": 0}}
            try:
                self._ray.init(
                    **where, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
                )
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise ValueError(f"no Ray cluster at {address!r}: {str(error).splitlines()[0]}") from error
        threads = settings.threads or 1
        cores = int(self._ray.cluster_resources().get("CPU", 1))
        self.lanes = lanes or max(1, cores // threads)
        self._actor = self._ray.remote(num_cpus=min(threads, cores))(_Actor)
        self._actors: dict[int, Any] = {}
        self._running: dict[Any, int] = {}

    def submit(self, lane: int, cell: Job) -> None:
        """Give a cell to a free lane. The actor of a lane starts with its first cell."""
        if lane not in self._actors:
            self._actors[lane] = self._actor.remote(self._settings)
        self._running[self._actors[lane].attempt.remote(cell)] = lane

    def wait(self) -> tuple[int, Record | Failure | Lost]:
        """Wait until a lane becomes free, and return the lane with its outcome."""
        reference = self._ray.wait(list(self._running), num_returns=1)[0][0]
        lane = self._running.pop(reference)
        try:
            outcome: Record | Failure = self._ray.get(reference)
            return lane, outcome
        except self._ray.exceptions.RayError as error:
            del self._actors[lane]
            return lane, Lost(type(error).__name__)

    def close(self) -> None:
        """Stop all actors, and the cluster if it was started here."""
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()
        if self._started:
            self._ray.shutdown()


class _Actor(Worker):
    """A worker as a Ray actor."""

    def process(self) -> int:
        """Return the process id of this actor."""
        return os.getpid()
