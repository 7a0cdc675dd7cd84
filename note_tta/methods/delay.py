"""Updates that take effect later than they are read, and are computed meanwhile.

Timing changes nothing but time: when an update takes effect is counted in samples, and what it comes to
does not depend on when it is computed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from .draft import Draft, Value

if TYPE_CHECKING:
    from .interval import IntervalMethod

EXECUTORS = ("thread",)
"""The ways to compute a delayed update beside the calls."""
NICENESS = 10
"""The scheduling priority of threads that compute updates, where 0 is usual and 19 the lowest."""

Work = Callable[[Callable[[], None]], Value | None]
"""Works an update out, and calls the function it is given after each piece of the work; None is a non-finite one."""
Job = Callable[[Draft, Callable[[], None]], Value | None]
"""The same, on a draft that is given to it."""


class Cancelled(Exception):
    """Raised inside an update that nobody waits for any more, so that its thread ends."""


class Pending:
    """An update that was read and has not taken effect.

    Args:
        work: Works the update out.
        countdown: Accepted samples until it takes effect.
        executor: "thread" computes it beside the calls; None at once.
        pieces: How many pieces the work has, as far as it is known.
    """

    def __init__(self, work: Work, countdown: int, executor: str | None, pieces: int = 0) -> None:
        self.countdown = countdown
        self.done = False
        self._samples, self._pieces, self._pieces_done = countdown, pieces, 0
        self._cancelled = False
        self._value: Value | None = None
        self._error: BaseException | None = None
        self._progress = threading.Condition()
        if executor is None:
            self._value = work(_nothing)
            self.done = True
        else:
            self._start(partial(self._run, work))

    @classmethod
    def of(cls, value: Value | None, countdown: int) -> Pending:
        """An update that has been computed already."""
        return Pending(lambda _: value, countdown, None)

    def result(self) -> tuple[Value | None, float]:
        """What the update came to, and the seconds waited for it."""
        waited = 0.0 if self.done else self._wait(lambda: self.done)
        if self._error is not None:
            raise self._error
        return self._value, waited

    def keep_up(self) -> float:
        """Wait until as large a share of the work is done as of the samples has come; the seconds waited.

        A caller that never pauses is faster than the update. So each call waits a little, instead of the last
        one for all that is left.
        """
        if self.done or not self._pieces:
            return 0.0
        due = self._pieces * (1 - self.countdown / self._samples)
        return self._wait(lambda: self.done or self._pieces_done >= due)

    def cancel(self) -> None:
        """Let the thread end at the next piece."""
        self._cancelled = True

    def _start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=run_behind, args=(work,), name="note-tta update").start()

    def _wait(self, until: Callable[[], bool]) -> float:
        started = time.perf_counter()
        with self._progress:
            self._progress.wait_for(until)
        return time.perf_counter() - started

    def _piece_done(self) -> None:
        if self._cancelled:
            raise Cancelled
        with self._progress:
            self._pieces_done += 1
            self._progress.notify_all()

    def _run(self, work: Work) -> None:
        try:
            self._value = work(self._piece_done)
        except Cancelled:
            pass
        except BaseException as error:  # raised again in the thread that asks for the result
            self._error = error
        with self._progress:
            self.done = True
            self._progress.notify_all()


def run_behind(work: Callable[[], None]) -> None:
    """Work in this thread with what time the callers' threads leave. Linux schedules threads; elsewhere as usual."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            niceness = max(os.getpriority(os.PRIO_PROCESS, thread), NICENESS)
            os.setpriority(os.PRIO_PROCESS, thread, niceness)
    work()


class Workshop:
    """Where a method's updates are worked out: on a draft of its own."""

    def __init__(self) -> None:
        self.draft: Draft | None = None

    def start(self, method: IntervalMethod, job: Job, countdown: int) -> Pending:
        """Work an update out: now where it takes effect at once, else as the method's `executor` says."""
        if self.draft is None:
            self.draft = method.make_draft()
        executor = method.executor if countdown else None
        return Pending(partial(job, self.draft), countdown, executor, self.draft.pieces)

    def clear(self) -> None:
        """Take another draft from now on: a thread may be at work on this one, or settings have changed."""
        self.draft = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Workshop:
        return Workshop()

    def __reduce__(self) -> tuple[type[Workshop], tuple[()]]:
        return Workshop, ()


def _nothing() -> None:
    pass
