"""Computes the updates of many streams, on drafts and in one thread that they share."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..methods.delay import Job, Pending, Work, Workshop, run_prepared
from ..methods.draft import Draft, Value
from ..methods.interval import IntervalMethod

EXECUTOR = "threads"
"""How the shared thread computes: on all processors, since the updates of many streams leave none idle."""
DRAFTS = 4
"""How many drafts are kept. There is one per combination of settings among the streams."""
GUESS = 8
"""Weight, in samples, of the initial guess that all streams send equally often."""


class SharedWorkshop(Workshop):
    """Computes the updates of many streams on a shared draft, and the delayed updates in one shared thread.

    The update that is due soonest is computed first. Time is counted in samples of all streams. So a new update of a
    stream that sends half of all samples can be due before an almost finished countdown of a stream that sends few.
    An update that a call waits for is due now.

    Attributes:
        rows: How many samples all streams have had so far; the fleet counts them.
        waits: How many seconds calls have waited.
    """

    def __init__(self) -> None:
        super().__init__()
        self._drafts: OrderedDict[tuple[Any, ...], Draft] = OrderedDict()
        self._at_work = threading.Lock()
        self._queue: OrderedDict[_Queued, Callable[[], None]] = OrderedDict()
        self._pending: weakref.WeakSet[_Queued] = weakref.WeakSet()
        self._changed = self.gate.changed
        self._thread: threading.Thread | None = None
        self._process = 0
        self._worked = self._goal = 0.0
        self._taking_in = False
        self._began: weakref.WeakKeyDictionary[IntervalMethod, int] = weakref.WeakKeyDictionary()
        self.rows = 0
        self.waits = 0.0

    def start(self, method: IntervalMethod, job: Job, countdown: int, samples: int) -> Pending:
        """Start an update; one that takes effect later is computed in the thread."""
        self._check_process()
        draft = self._draft_for(method)
        work = partial(self._work, job, draft)
        if countdown == 0:
            return Pending(work, countdown, None)
        last = self._began.get(method)
        since = (self.rows, 0) if last is None else (last, method.interval)
        self._began[method] = self.rows
        pending = _Queued(self, work, countdown, draft.count_pieces(samples), *since)
        self._pending.add(pending)
        return pending

    def clear(self) -> None:
        """Do nothing: drafts are kept by settings, and only one update is computed at a time."""

    def submit(self, pending: _Queued, work: Callable[[], None]) -> None:
        """Add work to the queue of the thread."""
        with self._changed:
            self._queue[pending] = work
            if self._thread is None:
                self._process = os.getpid()
                self._thread = threading.Thread(
                    target=run_prepared, args=(EXECUTOR, self._work_off), name="note-tta updates", daemon=True
                )
                self._thread.start()

    @contextmanager
    def taking_in(self) -> Iterator[None]:
        """While streams take in samples, begin only updates that a call waits for.

        Taking in samples adds new updates to the queue. The most urgent of them may come last, and should not have to
        wait for another one that the thread began just before.
        """
        self._taking_in = True
        try:
            yield
        finally:
            with self._changed:
                self._taking_in = False
                self._changed.notify_all()

    def keep_up(self) -> None:
        """Wait until the updates have progressed as far as their countdowns have.

        Callers that never pause are faster than the updates. Therefore each call waits a little, so that no single
        call has to wait for many updates.
        """
        pending = list(self._pending)
        goal = self._worked + sum(each.due - each.progress for each in pending)
        if self._worked < goal:
            self._check_process()
            started = time.perf_counter()
            with self._changed:
                self._goal = goal
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._worked >= goal or self._thread is None)
            self.waits += time.perf_counter() - started

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While a call waits for an update, let the thread go on at once after each piece."""
        self._check_process()
        with self._changed:
            self._goal = math.inf
            self._changed.notify_all()
        try:
            yield
        finally:
            self._goal = 0.0

    def is_waited_for(self) -> bool:
        """Whether a call waits for updates."""
        return self._worked < self._goal

    def advance(self, share: float) -> None:
        """Count a share of an update as done, and notify waiting calls."""
        with self._changed:
            self._worked += share
            self._changed.notify_all()

    def forget(self, pending: _Queued) -> None:
        """Drop an update that is no longer needed."""
        with self._changed:
            self._queue.pop(pending, None)
            self._pending.discard(pending)

    def stop(self) -> None:
        """Drop all queued updates and wait until the current one ends, so that no thread outlives the fleet."""
        with self._changed:
            self._queue.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _check_process(self) -> None:
        """Refuse to go on in a process that was forked while updates were computed."""
        if self._thread is not None and self._process != os.getpid():
            raise RuntimeError(
                "this process was forked while a fleet computed updates, and their thread exists only in the other "
                "process: make the fleet after the fork, or start processes by spawning"
            )

    def _draft_for(self, method: IntervalMethod) -> Draft:
        settings = tuple(method.settings().values())
        if settings not in self._drafts:
            self._drafts[settings] = method.make_draft()
            if len(self._drafts) > DRAFTS:
                self._drafts.popitem(last=False)
        self._drafts.move_to_end(settings)
        return self._drafts[settings]

    def _work(self, job: Job, draft: Draft, piece_done: Callable[[], None]) -> Value | None:
        with self._at_work:
            return job(draft, piece_done)

    def _may_begin(self) -> bool:
        return not self._taking_in or not self._queue or any(pending.waited_for for pending in self._queue)

    def _work_off(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._may_begin)
                if not self._queue:
                    self._thread = None
                    self._changed.notify_all()
                    return
                guess = GUESS * len(self._pending)
                work = self._queue.pop(min(self._queue, key=lambda pending: pending.rows_left(guess)))
            work()

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedWorkshop:
        return self


class _Queued(Pending):
    """A delayed update of one stream, computed in the shared thread.

    Args:
        workshop: The workshop that computes it.
        work: Computes the update.
        countdown: How many accepted samples of the stream remain until the update takes effect.
        pieces: The number of pieces of the work.
        since: The workshop's `rows` when the stream's previous update began, or now if there was none.
        samples: How many samples the stream has had since then.
    """

    def __init__(
        self, workshop: SharedWorkshop, work: Work, countdown: int, pieces: int, since: int, samples: int
    ) -> None:
        self._workshop = workshop
        self._since, self._samples_before = since, samples
        self.waited_for = False
        super().__init__(work, countdown, EXECUTOR, pieces, gate=workshop.gate)

    @property
    def due(self) -> float:
        """The share of the work that should be done by now."""
        return 1.0 if self.waited_for else 1 - self.countdown / self._samples

    @property
    def progress(self) -> float:
        """The share of the work that is done."""
        return 1.0 if self.done else self._share_done()

    def rows_left(self, guess: float) -> float:
        """Estimate how many samples of all streams will come before this update takes effect.

        Args:
            guess: Samples of all streams among which a stream has `GUESS` samples if all send equally often.
        """
        if self.waited_for:
            return 0.0
        rows = self._workshop.rows - self._since + guess
        samples = self._samples_before + self._samples - self.countdown + GUESS
        return self.countdown * rows / samples

    def keep_up(self) -> float:
        """Do not wait here: the workshop waits for all streams together."""
        return 0.0

    def cancel(self) -> None:
        """Cancel the update: it is not computed, and no call waits for it."""
        super().cancel()
        self._workshop.forget(self)

    def _start(self, work: Callable[[], None], executor: str) -> None:
        self._workshop.submit(self, work)

    def _wait(self, goal: float, most: float | None = None) -> float:
        self.waited_for = True
        with self._workshop.waiting():
            waited = super()._wait(goal, most)
        self._workshop.waits += waited
        return waited

    def _wanted(self) -> bool:
        return self._cancelled or self._workshop.is_waited_for()

    def _count_piece(self) -> None:
        before = self._share_done()
        super()._count_piece()
        self._workshop.advance(self._share_done() - before)

    def _run(self, work: Work) -> None:
        super()._run(work)
        self._workshop.advance(1 - self._share_done())
