"""Updates that take effect later than they are read, and are computed meanwhile.

Timing changes nothing but time: when an update takes effect is counted in samples, and what it comes to
does not depend on when it is computed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .draft import Value

EXECUTORS = ("thread",)
"""The ways to compute a delayed update beside the calls."""


class Cancelled(Exception):
    """Raised inside an update that nobody waits for any more, so that its thread ends."""


class Pending:
    """An update that was read and has not taken effect.

    Args:
        job: Works the update out, and calls the function it is given after each piece of the work; returns
            None where the update came out non-finite.
        countdown: Accepted samples until it takes effect.
        executor: "thread" computes it beside the calls; None at once.
        pieces: How many pieces the work has, as far as it is known.
    """

    def __init__(
        self,
        job: Callable[[Callable[[], None]], Value | None],
        countdown: int,
        executor: str | None,
        pieces: int = 0,
    ) -> None:
        self.countdown = countdown
        self._samples, self._pieces, self._done = countdown, pieces, 0
        self._cancelled = False
        self._value: Value | None = None
        self._error: BaseException | None = None
        self._progress = threading.Condition()
        self._thread: threading.Thread | None = None
        if executor is None:
            self._value = job(_nothing)
        else:
            self._thread = threading.Thread(target=self._work, args=(job,), name="note-tta update")
            self._thread.start()

    @classmethod
    def of(cls, value: Value | None, countdown: int) -> Pending:
        """An update that has been computed already."""
        return cls(lambda _: value, countdown, None)

    def result(self) -> tuple[Value | None, float]:
        """What the update came to, and the seconds waited for it."""
        started = time.perf_counter()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value, time.perf_counter() - started

    def keep_up(self) -> float:
        """Wait until as large a share of the work is done as of the samples has come; the seconds waited.

        A caller that never pauses is faster than the update. So each call waits a little, instead of the last
        one for all that is left.
        """
        if self._thread is None or not self._pieces:
            return 0.0
        started = time.perf_counter()
        due = self._pieces * (1 - self.countdown / self._samples)
        with self._progress:
            self._progress.wait_for(lambda: self._done >= due or not self._running())
        return time.perf_counter() - started

    def cancel(self) -> None:
        """Let the thread end at the next piece."""
        self._cancelled = True

    def _running(self) -> bool:
        return self._value is None and self._error is None and self._done >= 0

    def _piece_done(self) -> None:
        if self._cancelled:
            raise Cancelled
        with self._progress:
            self._done += 1
            self._progress.notify_all()

    def _work(self, job: Callable[[Callable[[], None]], Value | None]) -> None:
        try:
            self._value = job(self._piece_done)
        except Cancelled:
            pass
        except BaseException as error:  # raised again in the thread that asks for the result
            self._error = error
        with self._progress:
            self._done = -1 if self._value is None else self._pieces
            self._progress.notify_all()


def _nothing() -> None:
    pass
