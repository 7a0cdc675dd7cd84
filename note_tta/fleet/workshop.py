"""One place for the updates of many streams: a draft and a thread for all of them."""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..methods.delay import Job, Pending, Work, Workshop, run_behind
from ..methods.draft import Draft, Value
from ..methods.interval import IntervalMethod

DRAFTS = 4
"""Drafts kept, one for each combination of settings that streams have."""
GUESS = 8
"""How many samples of its own count as much as the guess that a stream has as many as the others."""


class SharedWorkshop(Workshop):
    """Where the updates of many streams are worked out: on one draft, the delayed ones in one thread.

    The update that is due soonest comes first. Time is counted in rows of all streams: the update of a stream that
    sends half of the rows, begun just now, is due before one that is almost due in a stream that sends few. One that
    is waited for is due now.

    Attributes:
        rows: The samples of all streams so far, which the fleet counts.
        waits: The seconds that calls have waited.
    """

    def __init__(self) -> None:
        super().__init__()
        self._drafts: OrderedDict[tuple[Any, ...], Draft] = OrderedDict()
        self._at_work = threading.Lock()
        self._queue: OrderedDict[_Queued, Callable[[], None]] = OrderedDict()
        self._pending: weakref.WeakSet[_Queued] = weakref.WeakSet()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._worked = 0.0
        self._taking_in = False
        self._began: weakref.WeakKeyDictionary[IntervalMethod, int] = weakref.WeakKeyDictionary()
        self.rows = 0
        self.waits = 0.0

    def start(self, method: IntervalMethod, job: Job, countdown: int) -> Pending:
        """Work an update out; in the thread where it takes effect later."""
        draft = self._draft_for(method)
        work = partial(self._work, job, draft)
        if countdown == 0 or method.executor is None:
            return Pending(work, countdown, None)
        last = self._began.get(method)
        since = (self.rows, 0) if last is None else (last, method.interval)
        self._began[method] = self.rows
        pending = _Queued(self, work, countdown, draft.pieces, *since)
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

    @contextmanager
    def taking_in(self) -> Iterator[None]:
        """While streams take in samples, begin no update but one that is waited for.

        Updates begin meanwhile, and the one of a stream that waited for its last is the most urgent: it is not to
        find the thread at another that was begun just before.
        """
        self._taking_in = True
        try:
            yield
        finally:
            with self._changed:
                self._taking_in = False
                self._changed.notify_all()

    def keep_up(self) -> None:
        """Wait until as much of all updates is done as of the samples has come that they are due after.

        Callers that never pause are faster than the updates. So each call waits a little, instead of one for many.
        """
        pending = list(self._pending)
        goal = self._worked + sum(each.due - each.progress for each in pending)
        if self._worked < goal:
            started = time.perf_counter()
            with self._changed:
                self._changed.wait_for(lambda: self._worked >= goal or self._thread is None)
            self.waits += time.perf_counter() - started

    def advance(self, share: float) -> None:
        """Count a share of an update as done, and let who waits know."""
        with self._changed:
            self._worked += share
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
            self._changed.notify_all()
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
    """A delayed update of one stream among many, worked out in the thread of all.

    Args:
        workshop: Where it is worked out.
        work: Computes the update.
        countdown: Accepted samples of the stream until it takes effect.
        pieces: The number of pieces of the work.
        since: The number of rows of all streams when the stream's last update began, or else this one.
        samples: The samples that the stream has had since then.
    """

    def __init__(
        self, workshop: SharedWorkshop, work: Work, countdown: int, pieces: int, since: int, samples: int
    ) -> None:
        self._workshop = workshop
        self._since, self._samples_before = since, samples
        self.waited_for = False
        super().__init__(work, countdown, "thread", pieces)

    @property
    def due(self) -> float:
        """The share of the work that is to be done by now."""
        return 1.0 if self.waited_for else 1 - self.countdown / self._samples

    @property
    def progress(self) -> float:
        """The share of the work that is done."""
        return 1.0 if self.done else self._share_done()

    def rows_left(self, guess: float) -> float:
        """How many rows of all streams will come before it takes effect, if the stream goes on as it did.

        Args:
            guess: Rows in which a stream has `GUESS` samples if nothing is known of it.
        """
        if self.waited_for:
            return 0.0
        rows = self._workshop.rows - self._since + guess
        samples = self._samples_before + self._samples - self.countdown + GUESS
        return self.countdown * rows / samples

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
        self._workshop.advance(0.0)
        waited = super()._wait(until)
        self._workshop.waits += waited
        return waited

    def _piece_done(self) -> None:
        before = self._share_done()
        super()._piece_done()
        self._workshop.advance(self._share_done() - before)

    def _run(self, work: Work) -> None:
        super()._run(work)
        self._workshop.advance(1 - self._share_done())

    def _share_done(self) -> float:
        return min(self._pieces_done / max(self._pieces, 1), 1.0)
