"""The watch around a method: looks at its signals, tells of trouble, and goes back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..memory import FIFO
from ..methods.method import Method
from ..methods.wrapper import Wrapper
from .bench import Bench
from .calibration import calibrated
from .compare import best_fit, compare
from .health import SUSPECT, Health, tell_health
from .journal import Event, Journal
from .look import CALM, Trouble, broad, look_at
from .page import write_page
from .reference import Known, Reference, Source, learn_reference
from .settings import CHECKED, check, check_state
from .signals import drift, effective_classes
from .snapshots import Snapshots, name_of
from .tally import Tally

CANARIES = 64
"""So many source samples are kept."""
TOGETHER = 16
"""So many of the samples that are put to the source model are put to it in one pass; half as many while there is reason
to look closely."""
REST = 2
"""Looks that learning rests after an alarm; twice as long after one that comes soon again."""
LONGEST_REST = 64
SOON = 8
"""An alarm within so many times the rest comes soon again; after so many times itself a rest ends in any case."""
FEW = 64
"""So few logits are taken in as Python's numbers, which is quicker."""
CLOSER = 4
"""So many times as often it is looked at a stream that is new, near to an alarm, or learns again after one, and as
many more of its samples are put to the source model."""


class Watch(Wrapper):
    """Watch a method: the same answers until adaptation goes wrong; then it is said, and undone.

    Every `sample`-th sample is put to the frozen source model as well, and every `look` samples all signals are
    looked at; both four times as often while there is reason to. What each means and how it was measured is in
    docs/watch.md.

    - **Forgetting** (with `source`): samples of the source, kept with the state, lose the probability that the
      source model gave to its answers. Allowed is `tolerance`, and less where what is learned from is narrow.
    - **Collapse**: the answers amount to less than half the classes that the source model's do.
    - **Unsteady answers**: neighbouring samples get the same answer less often than by the source model.
    - **Copies**: half the memory's samples are copies of others for long, as from a camera that hangs.
    - **Dead input** (with `source`): a tenth of what varied on the source does not vary in the memory for long.
    - **Narrow memory** (without `source`): learning from one class for long.
    - **Misfit**: the source's statistics, or those of a snapshot, fit the stream better than the adapted ones.

    All but the last are alarms: the adapted tensors and the optimizer go back to the last good snapshot, the memory
    is emptied, and learning rests until the signals are quiet. Misfit is no alarm: the stream has become
    what it was, and the method returns to what fits it.

    Args:
        method: Any method.
        source: Batches of source inputs, held out from training if possible, alone or with labels; or a file that
            `watch.reference.save` wrote.
        expected_run: Samples between two false alarms on streams like the source's: `calibrate` sees to it.
        tolerance: How much of their probability source samples may lose while what is learned from is varied.
        look: Samples between two looks; a multiple of `sample`.
        sample: One sample in so many is put to the source model too.
        snapshots: How many states are kept to go back to; each is older than the next by a factor of four.
        rollback: Go back and rest at an alarm; False only tells.
        on_event: Called with every `Event`; an error in it is logged.

    Example:
        >>> import note_tta as tta
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3))
        >>> watch = tta.Watch(tta.NOTE(tta.convert_iabn(model)), source=[torch.rand(64, 1, 8, 8)])
        >>> watch(torch.rand(2, 1, 8, 8)).shape
        torch.Size([2, 3])
        >>> print(watch.health)
        learning: 2 samples so far, the first look is at 256
    """

    def __init__(
        self,
        method: Method,
        source: Source | None = None,
        *,
        expected_run: int = 100_000,
        tolerance: float = 0.15,
        look: int = 1024,
        sample: int = 64,
        snapshots: int = 2,
        rollback: bool = True,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        super().__init__(method)
        check(expected_run, tolerance, look, sample, snapshots)
        self.expected_run, self.tolerance, self.look, self.sample = expected_run, tolerance, look, sample
        self.snapshots, self.rollback, self.on_event = snapshots, rollback, on_event
        self._bench: Bench | None = None
        self._batch_free = self.inner.batch_free
        self.tally = self.part("tally", Tally())
        self.journal = self.part("journal", Journal())
        self.ring = self.part("snapshots", Snapshots())
        self.recent = self.part("recent", FIFO(TOGETHER))
        reference = (
            None if source is None else learn_reference(self.inner, source, self.bench, CANARIES, tolerance)
        )
        self._known = self.part("reference", Known(reference))

    @property
    def health(self) -> Health:
        """How the stream is doing, as a small value that prints as a sentence."""
        with self._lock:
            return tell_health(self.tally, self.journal, look=self.look, first_look=self._closer)

    @property
    def events(self) -> list[Event]:
        """What happened, the latest last."""
        return list(self.journal.events)

    @property
    def alarms(self) -> list[Event]:
        """The events that are alarms."""
        return [event for event in self.journal.events if event.kind == "alarm"]

    @property
    def reference(self) -> Reference | None:
        """What is known of the source; None without `source`."""
        return self._known.reference

    @property
    def bench(self) -> Bench:
        """Answers with the source's tensors, or any others; shared by forks."""
        if self._bench is None or self._bench.backbone is not self.backbone:
            self._bench = Bench(self.backbone)
        return self._bench

    @property
    def paused(self) -> bool:
        """Whether the caller has paused the stream; learning that rests after an alarm is no pause."""
        return self.tally.paused

    def room(self) -> int:
        """How many good samples can be answered together before something changes."""
        return min(self.sample - self.tally.samples % self.sample, self.method.room())

    def pause(self) -> None:
        """From now on answer and count samples, but learn, store and watch nothing."""
        self.tally.paused = True
        super().pause()

    def resume(self) -> None:
        """Watch again, and learn again unless learning rests after an alarm."""
        self.tally.paused = False
        if self.tally.resting_since is None:
            super().resume()

    def fork(self) -> Watch:
        """A second stream from this state on: it shares the backbone, what is known of the source, and nothing else."""
        with self._lock:
            twin = super().fork()
            assert isinstance(twin, Watch)
            twin._bench, twin.on_event = self._bench, self.on_event
            return twin

    def roll_back(self, snapshot: dict[str, Any] | None = None) -> None:
        """Go back to the last good snapshot, to the source where there is none, or to a given one; learning goes on."""
        with self._lock:
            target = next(iter(self.ring.newest_first()), None) if snapshot is None else None
            self.inner.roll_back(snapshot if target is None else target.learned)
            self.tally.start_over()
            self.tally.counts["rollbacks"] += 1
            name = "a given snapshot" if snapshot is not None else name_of(target)
            self._tell("rollback", f"back to {name}, as was asked for", {})

    def calibrate(self, source: Iterable[Any], samples: int = 8192) -> dict[str, float]:
        """Measure the limits of alarms on streams of the source itself, so that `expected_run` holds on them.

        Class runs of mean length 1, 16, 64 and 256 are drawn from the source and put to a twin of this watch. A limit
        under which too many of its looks fall is raised; none is lowered, for adapting to another domain is no
        trouble. It takes as long as answering and learning from so many samples, and is saved with the
        state and with `watch.reference.save`.

        Args:
            source: As at construction, but no file.
            samples: Of all these streams together.

        Returns:
            The limit of each trouble as a multiple of its default.

        Raises:
            ValueError: The watch was made without `source`.
        """
        with self._lock:
            if self.reference is None:
                raise ValueError("calibrate needs a watch that knows its source: Watch(method, source=...)")
            self._know(replace(self.reference, levels={}))
            levels = calibrated(self, source, samples)
            self._know(replace(self.reference, levels=levels))
            return levels

    def _know(self, reference: Reference) -> None:
        self._known.reference = reference
        self.part("reference", self._known)

    def report(self, path: str | Path) -> Path:
        """Write one HTML page to `path` and return it: health, signals, answers and drift over time, memory, events."""
        with self._lock:
            return write_page(self, Path(path))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; see `Method`. What it knows of the source comes with it."""
        check_state(state, {name: getattr(self, name) for name in CHECKED})
        super().load_state_dict(state)

    def after(self, x: Tensor, logits: Tensor) -> Tensor:
        """The same answers; looks where a look is due."""
        tally = self.tally
        if tally.paused:
            return logits
        few = logits.numel() <= FEW
        rows = logits.tolist() if few else logits.clone()  # the caller may change the answers in place
        if not math.isfinite(sum(map(sum, rows)) if few else logits.sum().item()):
            good = torch.isfinite(logits).all(dim=1)
            x, rows = x[good.to(x.device)], logits[good]
        before, step = tally.samples, self._step
        tally.wait(rows)
        if before // step != tally.samples // step:
            for row in range(-(before + 1) % step, tally.samples - before, step):
                self._keep(x[row], int(torch.as_tensor(rows[row]).argmax()))
        if before // self.sample != tally.samples // self.sample:
            self._see_what_is_due(step)
        return logits

    def _see_what_is_due(self, step: int) -> None:
        """Count, compare and look where that is due."""
        tally = self.tally
        compares = tally.unasked >= (TOGETHER if step == self.sample else TOGETHER // 2)
        if compares or self._look_is_due or tally.is_full:
            tally.count(torch.inf if self.reference is None else self.reference.threshold, self.look)
        if compares:
            self._compare()
        if self._look_is_due:
            self._look_at_all()

    @property
    def _look_is_due(self) -> bool:
        return self.tally.samples >= (self.tally.next_look or self._closer)

    def _keep(self, sample: Tensor, answer: int) -> None:
        """Keep a sample to put it to the source model with some others."""
        sample = sample.detach().to(self.backbone.dtype or sample.dtype)
        if self.recent.sample_shape not in (None, tuple(sample.shape)):
            self.recent.clear()
            self.tally.unasked = 0
        self.recent.add(sample, answer)
        self.tally.unasked += 1

    def _compare(self) -> None:
        """Put the samples that were kept to the source model; return to what fits them where it fits better."""
        tally, new = self.tally, min(self.tally.unasked, len(self.recent))
        tally.unasked = 0
        found = compare(
            self.recent.inputs()[-new:],
            self.recent.labels()[-new:],
            self.inner.tensors if self.inner.batch_free and tally.resting_since is None else None,
            bench=self.bench,
            tally=tally,
            reference=self.reference,
            patience=self._patience,
        )
        if found.drifts and not tally.drifting:
            self._drift(begins=True)
        if found.worse_by is not None:
            self._return(found.worse_by)
        elif tally.doubted and not tally.close:
            tally.close, tally.next_look = True, min(tally.next_look, tally.samples + self._closer)
        if tally.unsteady.sum >= self._patience:
            tally.next_look = min(tally.next_look, tally.samples) or self._closer

    def _return(self, worse_by: float) -> None:
        """Go back to what fits the latest samples best: a snapshot or the source."""
        best, found = best_fit(self.recent.inputs(), self.ring.newest_first(), self.bench)
        self.tally.misfit.clear()
        if self.rollback:
            self.inner.roll_back(None if best is None else best.learned)
            self.tally.counts["returns"] += 1
            cause = f"the statistics of {name_of(best)} fit the stream better than the adapted ones"
            self._tell("return", cause, {"misfit": round(found, 4), "worse_by": round(worse_by, 2)})

    def _look_at_all(self) -> None:
        tally = self.tally
        signals, troubles = look_at(
            self.inner, tally, self.reference, self.bench, self.tolerance, self.look, self._patience
        )
        worst = max(troubles, default=Trouble(0.0, "", ""))
        tally.strain, tally.trouble = max(0.0, worst.strain), worst.words
        tally.looks += 1
        signals["strain"] = round(tally.strain, 3)
        signals |= {f"strain:{each.name}": round(max(0.0, each.strain), 4) for each in troubles}
        layers = drift(self.inner.tensors, self.backbone.source)
        self._follow_drift(layers)
        self.journal.note(signals | {f"layer:{name}": far for name, far in layers.items()} | tally.shares())
        if tally.resting_since is not None:
            self._wake()
        elif tally.strain < 1:
            tally.alarmed = False
            if tally.strain <= CALM:
                self.ring.add(tally.samples, self.inner.snapshot(), self.snapshots)
        elif not tally.alarmed:
            self._alarm(worst.words, signals)
        fresh = tally.samples < self.look or self._woken_within(SOON)
        tally.close = tally.resting_since is None and (fresh or tally.strain >= SUSPECT or tally.doubted)
        tally.next_look = tally.samples + (self._closer if tally.close else self.look)

    @property
    def _closer(self) -> int:
        """Samples between two looks while there is reason to look closely."""
        return max(1, self.look // CLOSER // self.sample) * self.sample

    @property
    def _step(self) -> int:
        """Samples between two that go to the source model; answers by the batch's statistics can spoil at once."""
        often = self.tally.close or not self._batch_free
        return max(1, self.sample // CLOSER) if often else self.sample

    @property
    def _patience(self) -> float:
        """How many samples are put to the source model in an expected run, if that is done closely."""
        return self.expected_run * CLOSER / self.sample

    def _woken_within(self, looks: int) -> bool:
        return self.tally.woken is not None and self.tally.samples - self.tally.woken < looks * self.look

    def _alarm(self, cause: str, signals: dict[str, float]) -> None:
        tally = self.tally
        tally.counts["alarms"] += 1
        tally.alarmed = True
        self._tell("alarm", cause, signals)
        if not self.rollback:
            return
        soon = self._woken_within(SOON * tally.rest)
        if soon and tally.target is not None:
            self.ring.drop_from(tally.target)  # what was gone back to led here again
        target = next(iter(self.ring.newest_first()), None)
        self.inner.roll_back(None if target is None else target.learned)
        tally.target = None if target is None else target.samples
        tally.rest = min(2 * tally.rest, LONGEST_REST) if soon else REST
        tally.resting_since = tally.samples
        tally.start_over()
        tally.counts["rollbacks"] += 1
        super().pause()
        self._tell("rollback", f"back to {name_of(target)}; learning rests", {"rest": tally.rest * self.look})

    def _wake(self) -> None:
        """Let learning begin again after a rest, when the answers are varied, or after a rest of many times that."""
        tally = self.tally
        assert tally.resting_since is not None
        rested, rest = tally.samples - tally.resting_since, tally.rest * self.look
        quiet = effective_classes(tally.answers) >= broad(tally.classes) / 2
        if rested >= rest and (quiet or rested >= SOON * rest):
            tally.resting_since, tally.woken, tally.alarmed = None, tally.samples, False
            tally.unsteady.clear()
            tally.counts["resting_samples"] += rested
            super().resume()
            self._tell("resume", "the signals are quiet" if quiet else "trying again after a long rest", {})

    def _follow_drift(self, layers: dict[str, float]) -> None:
        """See whether a drift has begun or ended without a bet."""
        tally = self.tally
        drifts = tally.drifts(None if self.reference is not None else max(layers.values(), default=0.0))
        if drifts != tally.drifting:
            self._drift(begins=drifts)

    def _drift(self, *, begins: bool) -> None:
        self.tally.drifting = begins
        if not begins:
            self.tally.forget_bets()
        words = "the input is not like the source's" if begins else "the input is like the source's again"
        self._tell("drift" if begins else "drift over", words, {"rank": round(self.tally.rank, 4)})

    def _tell(self, kind: str, cause: str, numbers: dict[str, float]) -> None:
        self.journal.tell(self.tally.samples, kind, cause, numbers, self.on_event)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_bench": None, "on_event": None}
