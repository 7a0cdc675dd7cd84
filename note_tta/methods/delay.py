"""Updates that take effect later than they are read, and are computed meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .draft import Value

EXECUTORS = ("thread",)
"""The ways to compute a delayed update beside the calls."""


class Pending:
    """An update that was read and has not taken effect.

    Args:
        job: Works the update out; None is one that came out non-finite.
        countdown: Accepted samples until it takes effect.
        executor: "thread" computes it beside the calls; None at once.
    """

    def __init__(self, job: Callable[[], Value | None], countdown: int, executor: str | None) -> None:
        self.countdown = countdown
        self._job = job
        self._value: Value | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        if executor is None:
            self._value = job()
        else:
            self._thread = threading.Thread(target=self._work, name="note-tta update", daemon=True)
            self._thread.start()

    @classmethod
    def of(cls, value: Value | None, countdown: int) -> Pending:
        """An update that has been computed already."""
        return cls(lambda: value, countdown, None)

    def result(self) -> tuple[Value | None, float]:
        """What the update came to, and the seconds waited for it."""
        waited = 0.0
        if self._thread is not None:
            started = time.perf_counter()
            self._thread.join()
            waited = time.perf_counter() - started
        if self._error is not None:
            raise self._error
        return self._value, waited

    def _work(self) -> None:
        try:
            self._value = self._job()
        except BaseException as error:  # raised again in the thread that asks for the result
            self._error = error
