"""One place for the updates of many streams: a draft and a thread for all of them."""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from ..methods.delay import Job, Pending, Work, Workshop, run_behind
from ..methods.draft import Draft, Value
from ..methods.interval import IntervalMethod

DRAFTS = 4
"""Drafts kept, one for each combination of settings that streams have."""


class SharedWorkshop(Workshop):
    """Where the updates of many streams are worked out: on one draft, the delayed ones in one thread.

    The update that is due soonest comes first, so that a stream with many samples need not wait for the updates of
    others, which have more time. One that is waited for is due now.
    """

    def __init__(self) -> None:
        super().__init__()
        self._drafts: OrderedDict[tuple[Any, ...], Draft] = OrderedDict()
        self._at_work = threading.Lock()
        self._queue: OrderedDict[_Queued, Callable[[], None]] = OrderedDict()
        self._pending: weakref.WeakSet[_Queued] = weakref.WeakSet()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.waits = 0.0

    def start(self, method: IntervalMethod, job: Job, countdown: int) -> Pending:
        """Work an update out; in the thread where it takes effect later."""
        draft = self._draft_for(method)
        work = partial(self._work, job, draft)
        if countdown == 0 or method.executor is None:
            return Pending(work, countdown, None)
        pending = _Queued(self, work, countdown, draft.pieces)
        self._pending.add(pending)
        return pending

    def clear(self) -> None:
        """Nothing to do: drafts are kept by settings, and one update at a time is worked out."""

    def submit(self, pending: _Queued, work: Callable[[], None]) -> None:
        """Let the thread do some work after what it has to do already."""
        with self._changed:
            self._queue[pending] = work
            if self._thread is None:
                self._thread = threading.Thread(
                    target=run_behind, args=(self._work_off,), name="note-tta updates", daemon=True
                )
                self._thread.start()

    def keep_up(self) -> None:
        """Wait until as much of all updates is done as of the samples has come that they are due after.

        Callers that never pause are faster than the updates. So each call waits a little, instead of one for many.
        """
        pending = list(self._pending)
        due = sum(each.due for each in pending)
        if sum(each.progress for each in pending) < due:
            started = time.perf_counter()
            with self._changed:
                self._changed.wait_for(lambda: sum(each.progress for each in pending) >= due)
            self.waits += time.perf_counter() - started

    def tell(self) -> None:
        """Let who waits look at the progress."""
        with self._changed:
            self._changed.notify_all()

    def forget(self, pending: _Queued) -> None:
        """Leave out an update that nobody waits for."""
        with self._changed:
            self._queue.pop(pending, None)
            self._pending.discard(pending)

    def stop(self) -> None:
        """Leave out all updates and wait for the end of the one at work, so that no thread outlives the process."""
        with self._changed:
            self._queue.clear()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

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

    def _work_off(self) -> None:
        while True:
            with self._changed:
                if not self._queue:
                    self._thread = None
                    return
                work = self._queue.pop(max(self._queue, key=lambda pending: pending.due))
            work()
            self.tell()

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedWorkshop:
        return self


class _Queued(Pending):
    """A delayed update of one stream among many, worked out in the thread of all."""

    def __init__(self, workshop: SharedWorkshop, work: Work, countdown: int, pieces: int) -> None:
        self._workshop = workshop
        self.waited_for = False
        super().__init__(work, countdown, "thread", pieces)

    @property
    def due(self) -> float:
        """The share of the work that is to be done by now."""
        return 1.0 if self.waited_for else 1 - self.countdown / self._samples

    @property
    def progress(self) -> float:
        """The share of the work that is done."""
        return 1.0 if self.done else min(self._pieces_done / max(self._pieces, 1), 1.0)

    def keep_up(self) -> float:
        """The fleet waits for all together."""
        return 0.0

    def cancel(self) -> None:
        """Nobody is to wait for it, nor to work on it."""
        super().cancel()
        self._workshop.forget(self)

    def _start(self, work: Callable[[], None]) -> None:
        self._workshop.submit(self, work)

    def _wait(self, until: Callable[[], bool]) -> float:
        self.waited_for = True
        waited = super()._wait(until)
        self._workshop.waits += waited
        return waited

    def _piece_done(self) -> None:
        super()._piece_done()
        self._workshop.tell()
