"""Updates that are computed beside the calls and take effect some samples later.

When an update takes effect is counted in samples, and its result does not depend on when it is computed. So
timing never changes an answer.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from .background import can_step_aside, come_back, compute_alone, give_way, step_aside
from .draft import Draft, Value

if TYPE_CHECKING:
    from .interval import IntervalMethod

EXECUTORS = {"thread": (give_way, compute_alone), "threads": (give_way,)}
"""The ways to compute a delayed update beside the calls, with what its thread does first."""
PATIENCE = 1.25
"""A call waits at most this many times as long as its share of the remaining work takes."""
PAUSE = 0.2
"""How long an update waits for a next call after an answer, in multiples of the time that the answer took."""
LONGEST = 1.0
"""The seconds after which an update no longer waits for an answer."""

Work = Callable[[Callable[[], None]], Value | None]
"""Computes an update, calling its argument after each piece of the work; returns None if it is not finite."""
Job = Callable[[Draft, Callable[[], None]], Value | None]
"""The same, on a draft."""


class Cancelled(Exception):
    """Raised inside an update that is no longer wanted, to end its thread."""


class Gate:
    """Where an update waits between two pieces, so that calls go first.

    A call enters while it computes its answer. A caller that never pauses makes its next call at once, which an update
    would slow down if it went on just then. So the update also waits for a moment after an answer.

    Attributes:
        changed: Notified after an answer, and by those who wait for an update.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._began = self._closed_until = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()
        self._closed_until = self._began + LONGEST

    def __exit__(self, *error: object) -> None:
        now = time.perf_counter()
        with self.changed:
            self._closed_until = now + PAUSE * (now - self._began)
            self.changed.notify_all()

    def pass_through(self, wanted: Callable[[], bool]) -> None:
        """Wait until calls leave time for an update, or until a call waits for this update."""
        with self.changed:
            while not wanted() and (closed := self._closed_until - time.perf_counter()) > 0:
                self.changed.wait(closed)


class Pending:
    """An update that was started and has not taken effect.

    Args:
        work: Computes the update.
        countdown: Accepted samples until it takes effect.
        executor: One of `EXECUTORS` computes it beside the calls; None computes it at once.
        pieces: The number of pieces of the work; 0 if it is not known.
        pace: The seconds from the start to the end of each piece, as they were at the last update; empty if they are
            not known.
        gate: Where the work gives way to calls between two pieces.
    """

    def __init__(
        self,
        work: Work,
        countdown: int,
        executor: str | None,
        pieces: int = 0,
        pace: Sequence[float] = (),
        gate: Gate | None = None,
    ) -> None:
        self.countdown = countdown
        self.done = False
        self._samples, self._pieces, self._pieces_done = countdown, pieces, 0
        self._pace, self._kept_up_to = pace, countdown
        self._gate = Gate() if gate is None else gate
        self._goal = 0.0
        self._cancelled = False
        self._value: Value | None = None
        self._error: BaseException | None = None
        self._aside: int | None = None
        self._thread: threading.Thread | None = None
        self._work: Work | None = None
        if executor is None:
            self._value = work(_nothing)
            self.done = True
        else:
            self._work = work
            self._start(partial(self._run, work), executor)

    @classmethod
    def of(cls, value: Value | None, countdown: int) -> Pending:
        """An update that has been computed already."""
        return Pending(lambda _: value, countdown, None)

    def result(self) -> tuple[Value | None, float]:
        """The update's result, and the seconds that this call waited for it."""
        waited = 0.0 if self.done else self._wait(math.inf)
        if self._error is not None:
            raise self._error
        return self._value, waited

    def keep_up(self) -> float:
        """Wait until the share of the work that is done equals the share of the samples; returns the seconds.

        A caller that never pauses is faster than the update. This way each call waits a little; otherwise the
        last one would wait for all that is left. If a piece is long, several calls wait for it.
        """
        if self.done or not self._pieces:
            return 0.0
        samples, self._kept_up_to = self._kept_up_to - self.countdown, self.countdown
        most = None
        if self._pace:
            left = self._pace[-1] * (1 - self._share_done())
            most = PATIENCE * left * samples / (self.countdown + samples)
        due = 1 - self.countdown / self._samples
        return 0.0 if self._share_done() >= due else self._wait(due, most)

    def cancel(self) -> None:
        """Let the thread end at the next piece."""
        with self._gate.changed:
            self._cancelled = True
            self._gate.changed.notify_all()
            self._let(come_back)

    def _start(self, work: Callable[[], None], executor: str) -> None:
        steps_aside = executor == "thread" and can_step_aside()
        self._thread = threading.Thread(target=run_prepared, args=(executor, work), name="note-tta update")
        self._thread.start()
        if steps_aside:
            self._aside = self._thread.native_id
            with self._gate.changed:
                self._let(step_aside)

    def _wait(self, goal: float, most: float | None = None) -> float:
        """Wait for a share of the work, or for `most` seconds; returns the seconds. Infinity waits for the result."""
        started = time.perf_counter()
        if self._is_orphan():
            self._gate = Gate()
            assert self._work is not None
            self._run(self._work)
        with self._gate.changed:
            self._goal = goal
            self._gate.changed.notify_all()
            self._let(come_back)
            try:
                self._gate.changed.wait_for(lambda: self.done or self._share_done() >= goal, most)
            finally:
                self._let(step_aside)
                self._goal = 0.0
        return time.perf_counter() - started

    def _is_orphan(self) -> bool:
        """Whether this process was forked while the update was computed: the thread exists only in the other one."""
        return self._thread is not None and not self._thread.is_alive() and not self.done

    def _let(self, move: Callable[[int], None]) -> None:
        """Let the thread step aside or come back, unless it is about to end. The caller holds the lock."""
        if self._aside is not None and not self.done:
            with contextlib.suppress(OSError):  # the process may have lost the right to
                move(self._aside)

    def _wanted(self) -> bool:
        """Whether to go on at once: a call waits for the work, or nobody wants it any more."""
        return self._cancelled or self._share_done() < self._goal

    def _piece_done(self) -> None:
        if self._cancelled:
            raise Cancelled
        self._count_piece()
        self._gate.pass_through(self._wanted)

    def _count_piece(self) -> None:
        with self._gate.changed:
            self._pieces_done += 1
            self._gate.changed.notify_all()

    def _share_done(self) -> float:
        """The share of the work that is done: by the time of each piece at the last update, or else by their number."""
        if not self._pace or self._pieces_done == 0:
            return min(self._pieces_done / max(self._pieces, 1), 1.0)
        return self._pace[min(self._pieces_done, len(self._pace)) - 1] / self._pace[-1]

    def _run(self, work: Work) -> None:
        try:
            self._value = work(self._piece_done)
        except Cancelled:
            pass
        except BaseException as error:  # raised again in the thread that asks for the result
            self._error = error
        self._work = None
        with self._gate.changed:
            self.done = True
            self._gate.changed.notify_all()


class Schedule:
    """Where a stream stands between two updates: the samples since the last one, and the update that is pending."""

    def __init__(self) -> None:
        self.progress = 0
        self.pending: Pending | None = None

    def clear(self) -> None:
        """Begin a new interval, with nothing pending."""
        self.progress, self.pending = 0, None

    def state_dict(self) -> dict[str, Any]:
        """The progress, and the result of the pending update, which is waited for."""
        if self.pending is None:
            return {"progress": self.progress, "pending": None}
        value, _ = self.pending.result()
        plain = None if value is None else {"tensors": value.tensors, "moments": value.moments}
        return {
            "progress": self.progress,
            "pending": {"countdown": self.pending.countdown, "value": plain},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        pending = state["pending"]
        self.progress = state["progress"]
        self.pending = None
        if pending is not None:
            value = None if pending["value"] is None else Value(**pending["value"])
            self.pending = Pending.of(value, pending["countdown"])

    def __getstate__(self) -> dict[str, Any]:
        return self.state_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.load_state_dict(state)


def run_prepared(executor: str, work: Callable[[], None]) -> None:
    """Work in this thread, prepared as the executor says; the work is done even if that fails."""
    with contextlib.suppress(Exception):
        for prepare in EXECUTORS[executor]:
            prepare()
    work()


class Workshop:
    """Where a method's updates are computed: on one draft, which is made at the first update.

    Attributes:
        gate: A call is in it while it computes its answer, so that the update gives way.
    """

    def __init__(self) -> None:
        self.draft: Draft | None = None
        self.gate = Gate()
        self._paces: dict[int, list[float]] = {}

    def start(self, method: IntervalMethod, job: Job, countdown: int, samples: int) -> Pending:
        """Start an update on so many samples: at once without a delay, otherwise on the method's `executor`."""
        if self.draft is None:
            self.draft = method.make_draft()
        executor = method.executor if countdown else None
        pieces = self.draft.count_pieces(samples)
        work = partial(self._timed, pieces, self._paces, partial(job, self.draft))
        return Pending(work, countdown, executor, pieces, self._paces.get(pieces, ()), self.gate)

    def clear(self) -> None:
        """Use a new draft from now on, since a thread may still use the old one or settings have changed."""
        self.draft, self._paces = None, {}

    @staticmethod
    def _timed(
        pieces: int, paces: dict[int, list[float]], work: Work, piece_done: Callable[[], None]
    ) -> Value | None:
        """Do the work, and remember for the next time how long its pieces took without interruptions."""
        started, pace = time.thread_time(), []

        def noted() -> None:
            pace.append(time.thread_time() - started)
            piece_done()

        value = work(noted)
        paces[pieces] = [*pace, time.thread_time() - started]
        return value

    def __deepcopy__(self, memo: dict[int, Any]) -> Workshop:
        return Workshop()

    def __reduce__(self) -> tuple[type[Workshop], tuple[()]]:
        return Workshop, ()


def _nothing() -> None:
    pass
