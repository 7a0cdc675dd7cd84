"""Requests of many streams gathered into calls of a fleet, by one thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from .desk import Desk, Request
from .limits import Limits, Refused

TOGETHER = 64
"""The samples of one call; a request with more samples gets its own call."""
WAIT = 0.003
"""Seconds that a call waits for requests that are just arriving."""


class _Job(NamedTuple):
    future: Future[Any]
    work: Request | Callable[[Desk], Any]


class Gathering:
    """The thread that owns the desk. It answers samples together and in order, and runs tasks in between.

    A call of the fleet takes all waiting samples, up to 64. It starts at once, unless other requests are just
    arriving: then it waits for them, for at most three milliseconds. A task waits for at most one call, however
    many samples are waiting.

    Args:
        desk: What does the work.
        limits: How many samples may wait.
        on_call: Called after requests were answered together, with their results and the seconds.
    """

    def __init__(
        self,
        desk: Desk,
        limits: Limits,
        on_call: Callable[[Sequence[Any], float], None] = lambda results, seconds: None,
    ) -> None:
        self.desk = desk
        self.arriving = 0
        self._limits = limits
        self._on_call = on_call
        self._samples: deque[_Job] = deque()
        self._tasks: deque[_Job] = deque()
        self._did_task = False
        self._waiting = 0
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="note-tta fleet", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of waiting samples."""
        return self._waiting

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def samples(self, request: Request) -> Future[Any]:
        """Queue samples to be answered; `Refused` if too many are waiting already."""
        count = len(request.x)
        with self._changed:
            if self._waiting and self._waiting + count > self._limits.queue:
                raise Refused(
                    429, f"{self._waiting} samples wait, the limit is {self._limits.queue}: send them later"
                )
            future = self._put(self._samples, request)
            self._waiting += count
            return future

    def ask(self, task: Callable[[Desk], Any]) -> Future[Any]:
        """Queue a task to be run between two calls of the fleet."""
        with self._changed:
            if len(self._tasks) >= self._limits.queue:
                raise Refused(429, "too many requests wait: send them later")
            return self._put(self._tasks, task)

    def close(self) -> None:
        """Finish what is queued, then stop."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _put(self, queue: deque[_Job], work: Request | Callable[[Desk], Any]) -> Future[Any]:
        if self._closing:
            raise Refused(503, "the service is being shut down")
        future: Future[Any] = Future()
        queue.append(_Job(future, work))
        self._changed.notify_all()
        return future

    def _work(self) -> None:
        while (jobs := self._next()) is not None:
            jobs = [job for job in jobs if job.future.set_running_or_notify_cancel()]
            if jobs and not isinstance(jobs[0].work, Request):
                self._do(jobs[0], jobs[0].work)
            elif jobs:
                self._answer(jobs, [job.work for job in jobs])  # type: ignore[misc]

    def _do(self, job: _Job, task: Callable[[Desk], Any]) -> None:
        try:
            job.future.set_result(task(self.desk))
        except Exception as error:  # the caller gets it; the thread continues
            job.future.set_exception(error)

    def _answer(self, jobs: list[_Job], requests: list[Request]) -> None:
        start = time.perf_counter()
        try:
            results = self.desk.answer(requests)
        except Exception as error:  # the caller gets it; the thread continues
            results = [error] * len(jobs)
        self._on_call(results, time.perf_counter() - start)
        for job, result in zip(jobs, results, strict=True):
            if isinstance(result, Exception):
                job.future.set_exception(result)
            else:
                job.future.set_result(result)

    def _next(self) -> list[_Job] | None:
        """What to do next: one task, or requests for samples of one shape; None at the end."""
        with self._changed:
            while not (self._samples or self._tasks):
                if self._closing:
                    return None
                self._changed.wait()
            if self._tasks and not (self._did_task and self._samples):
                self._did_task = True
                return [self._tasks.popleft()]
            self._did_task = False
            until = time.monotonic() + WAIT
            while self.arriving and self._waiting < TOGETHER and not self._closing:
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return self._alike()

    def _alike(self) -> list[_Job]:
        """The next requests for samples that go into one call."""
        jobs = [self._samples.popleft()]
        shape, count = jobs[0].work.x.shape[1:], len(jobs[0].work.x)  # type: ignore[union-attr]
        while self._samples:
            x = self._samples[0].work.x  # type: ignore[union-attr]
            if x.shape[1:] != shape or count + len(x) > TOGETHER:
                break
            jobs.append(self._samples.popleft())
            count += len(x)
        self._waiting -= count
        return jobs
