"""The watch: a wrapper that checks the signals of a method, reports trouble, and rolls back."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..memory import FIFO
from ..methods.backbone import Tensors
from ..methods.method import Method
from ..methods.settings import check_count
from ..methods.wrapper import Wrapper
from .bench import Bench
from .calibration import calibrated
from .compare import best_fit, compare
from .health import SUSPECT, Health, tell_health
from .journal import Event, Journal
from .look import CALM, Trouble, broad, look_at
from .page import write_page
from .reference import Known, Reference, SourceData, learn_reference
from .signals import drift, effective_classes
from .snapshots import Snapshots, name_of
from .tally import SILENCE, Tally

if TYPE_CHECKING:
    from typing_extensions import Self

LOG = logging.getLogger("note_tta.watch")

CANARIES = 64
"""How many source samples are kept."""
TOGETHER = 8
"""How many samples the source model answers in one pass; so many show a clear misfit."""
FITTED = 16
"""To how many of the latest compared samples each state is fitted before one of them is returned to."""
REST = 2
"""For how many looks learning rests after an alarm; the rest doubles if the next alarm comes soon."""
LONGEST_REST = 64
SOON = 8
"""An alarm within this many rests comes "soon"; a rest ends at the latest after this many times its length."""
FEW = 64
"""Up to this many logits are kept as Python numbers, which is faster."""
CLOSER = 4
"""How many times as often a closely watched stream is looked at and compared with the source model. A stream is watched
closely if it is new, near an alarm, or learning again after one."""


class Watch(Wrapper):
    """Watch a method. Answers stay the same until adaptation goes wrong; then the watch reports it and undoes it.

    The frozen source model also answers every `sample`-th sample, and all signals are checked every `look` samples;
    both happen four times as often while there is a reason. docs/watch.md explains and measures each signal.

    - **Forgetting** (with `source`): on source samples, which are kept with the state, the source model's answers lose
      probability. The limit is `tolerance`, and less if the method learns from few classes.
    - **Collapse**: the answers use fewer than half as many classes as those of the source model.
    - **Unsteady answers**: neighbouring samples get the same answer less often than from the source model.
    - **Copies**: for a long time, half of the memory are copies of other samples, as from a frozen camera.
    - **Dead input** (with `source`): for a long time, a tenth of what varied on the source does not vary in the memory.
    - **Narrow memory** (without `source`): the method learns from one class for a long time.
    - **NaN**: many answers in a row are NaN where the source model has one.
    - **Misfit**: the source's statistics, or those of a snapshot, fit the stream better than the adapted ones.

    All except the last are alarms: the adapted tensors and the optimizer return to the last good snapshot, the memory
    is emptied, and learning rests until the signals are quiet. Misfit is not an alarm: the stream has returned to an
    earlier condition, and the method returns to the statistics that fit it.

    Args:
        method: Any method.
        source: Batches of source inputs, held out from training if possible, alone or with labels; or a file that
            `watch.reference.save` wrote.
        expected_run: Samples between two false alarms on streams like the source; `calibrate` makes this hold.
        tolerance: How much probability source samples may lose while the method learns from varied samples.
        look: Samples between two looks; a multiple of `sample`.
        sample: The source model also answers one sample in this many.
        snapshots: How many snapshots are kept; each is older than the next by a factor of four.
        rollback: Roll back and rest after an alarm; False only reports it.
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
        source: SourceData | None = None,
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
        check_count("sample", sample, 1)
        check_count("look", look, 1)
        check_count("expected_run", expected_run, 2 * look)
        check_count("snapshots", snapshots, 1)
        if look % sample:
            raise ValueError(f"look must be a multiple of sample ({sample}), got {look}")
        if not 0 < tolerance < 1:
            raise ValueError(f"tolerance must be between 0 and 1, got {tolerance}")
        self.expected_run, self.tolerance, self.look, self.sample = expected_run, tolerance, look, sample
        self.snapshots, self.rollback, self.on_event = snapshots, rollback, on_event
        self._bench: Bench | None = None
        self._batch_free = self.inner.batch_free
        self.tally = self.part("tally", Tally())
        self.journal = self.part("journal", Journal())
        self.ring = self.part("snapshots", Snapshots())
        self.recent = self.part("recent", FIFO(FITTED))
        self._known = self.part("reference", Known())
        if source is not None:
            self._know(learn_reference(self.inner, source, self.bench, CANARIES, tolerance))

    @property
    def health(self) -> Health:
        """The health of the stream, which prints as a sentence."""
        with self._lock:
            return tell_health(self.tally, self.journal, look=self.look, first_look=self._closer)

    @property
    def events(self) -> list[Event]:
        """The events, latest last."""
        return list(self.journal.events)

    @property
    def alarms(self) -> list[Event]:
        """The events that are alarms."""
        return [event for event in self.journal.events if event.kind == "alarm"]

    @property
    def reference(self) -> Reference | None:
        """The reference of the source; None without `source`."""
        return self._known.reference

    @property
    def bench(self) -> Bench:
        """The module that answers with the source's tensors, or any others; forks share it."""
        if self._bench is None or self._bench.backbone is not self.backbone:
            with torch.inference_mode(False):
                self._bench = Bench(self.backbone)
        return self._bench

    @property
    def paused(self) -> bool:  # type: ignore[override]
        """Whether the caller has paused the stream; a rest after an alarm is not a pause."""
        return self.tally.paused

    def room(self) -> int:
        """Return how many good samples can be answered together before the state changes."""
        silence = max(1, SILENCE - self.tally.silent)
        return min(self.sample - self.tally.samples % self.sample, silence, self.method.room())

    def pause(self) -> None:
        """Stop learning and watching: samples are still answered and counted, but not stored."""
        self.tally.paused = True
        self.method.pause()

    def resume(self) -> None:
        """Watch again, and learn again unless learning is paused after an alarm."""
        self.tally.paused = False
        if self.tally.resting_since is None:
            self.method.resume()

    def fork(self) -> Self:
        """Return a copy that continues independently from this state; only backbone and reference are shared."""
        with self._lock:
            twin = super().fork()
            twin._bench, twin.on_event = self.bench, self.on_event
            return twin

    def roll_back(self, snapshot: dict[str, Any] | None = None) -> None:
        """Return to the last good snapshot (or the source if there is none), or to a given one.

        Learning continues, or rests on if it rests after an alarm.
        """
        with self._lock, torch.inference_mode(False):
            target = next(iter(self.ring.newest_first()), None) if snapshot is None else None
            self.inner.roll_back(snapshot if target is None else target.learned)
            self.tally.start_over()
            self.tally.counts["rollbacks"] += 1
            name = "a given snapshot" if snapshot is not None else name_of(target)
            self._tell("rollback", f"back to {name}, as requested", {})

    def calibrate(self, source: Iterable[Any], samples: int = 8192) -> dict[str, float]:
        """Measure the alarm limits on streams of source samples, so that `expected_run` holds on them.

        Streams with class runs of mean length 1, 16, 64 and 256 are drawn from the source and given to a copy of this
        watch. A limit that too many looks exceed is raised. No limit is lowered, because adapting to another domain is
        not trouble. This takes as long as answering and learning from this many samples. The limits are saved with the
        state and with `watch.reference.save`.

        Args:
            source: As for the constructor, but not a file.
            samples: The total number of samples of these streams.

        Returns:
            The limit of each kind of trouble as a multiple of its default.

        Raises:
            ValueError: The watch was made without `source`, or there is nothing to calibrate with.
        """
        with self._lock, torch.inference_mode(False):
            before = self.reference
            if before is None:
                raise ValueError("calibrate needs a watch that knows its source: Watch(method, source=...)")
            self._know(replace(before, levels={}))
            try:
                levels = calibrated(self, source, samples)
            except BaseException:
                self._know(before)
                raise
            self._know(replace(before, levels=levels))
            return levels

    def _know(self, reference: Reference) -> None:
        self._known.reference = reference
        self.part("reference", self._known)

    def report(self, path: str | Path) -> Path:
        """Write one HTML page to `path` and return it: health, signals, answers and drift over time, memory, events."""
        with self._lock:
            return write_page(self, Path(path))

    def after(self, x: Tensor, logits: Tensor) -> Tensor:
        """Return the answers unchanged; look at the signals if a look is due."""
        tally = self.tally
        if tally.paused:
            return logits
        few = logits.numel() <= FEW
        rows = logits.tolist() if few else logits.clone()  # the caller may change the answers in place
        if not math.isfinite(sum(map(sum, rows)) if few else logits.sum().item()):
            good = torch.isfinite(logits).all(dim=1)
            tally.count_unanswered(x, good)
            if tally.silent >= SILENCE:
                self._ask_about(x)
            x, rows = x[good.to(x.device)], logits[good]
        else:
            tally.unanswered = tally.silent = 0
        before, step = tally.samples, self._step
        tally.wait(rows)
        if before // step != tally.samples // step:
            for row in range(-(before + 1) % step, tally.samples - before, step):
                self._keep(x[row], int(torch.as_tensor(rows[row]).argmax()))
        if before // self.sample != tally.samples // self.sample:
            self._see_what_is_due()
        return logits

    def _ask_about(self, x: Tensor) -> None:
        """Raise an alarm if the source model can answer what the adapted one answers with NaN."""
        tally = self.tally
        tally.silent = 0
        finite = x[torch.isfinite(x).flatten(1).all(dim=1)][-1:].to(self.backbone.dtype or x.dtype)
        if (
            tally.resting_since is None
            and not tally.alarmed
            and self._can_answer(self.backbone.source, finite)
        ):
            for kept in self.ring.newest_first():
                if not self._can_answer(kept.learned["model"], finite):
                    self.ring.drop_from(kept.samples)
            self._alarm(f"the last {SILENCE} answers are NaN, but not the source model's", {})

    def _can_answer(self, tensors: Tensors, x: Tensor) -> bool:
        return bool(torch.isfinite(self.bench.answer(tensors, x)).all())

    def _see_what_is_due(self) -> None:
        """Count and compare answers, and look at the signals if a look is due."""
        tally = self.tally
        compares = tally.unasked >= TOGETHER
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
        """Keep a sample until the source model answers it together with others."""
        sample = sample.detach().to(self.backbone.dtype or sample.dtype)
        if self.recent.sample_shape not in (None, tuple(sample.shape)):
            self.recent.clear()
            self.tally.unasked = 0
        self.recent.add(sample, answer)
        self.tally.unasked += 1

    def _compare(self) -> None:
        """Let the source model answer the kept samples; return to other statistics if they fit better."""
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
        """Return to the state that fits the latest samples best: a snapshot or the source."""
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
        """Samples between two looks while the stream is watched closely."""
        return max(1, self.look // CLOSER // self.sample) * self.sample

    @property
    def _step(self) -> int:
        """Samples between two for the source model; answers that use the batch's statistics can go wrong at once."""
        often = self.tally.close or not self._batch_free
        return max(1, self.sample // CLOSER) if often else self.sample

    @property
    def _patience(self) -> float:
        """How many samples the source model answers in an expected run while the stream is watched closely."""
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
            self.ring.drop_from(tally.target)  # this snapshot led to the same trouble again
        target = next(iter(self.ring.newest_first()), None)
        self.inner.roll_back(None if target is None else target.learned)
        tally.target = None if target is None else target.samples
        tally.rest = min(2 * tally.rest, LONGEST_REST) if soon else REST
        tally.resting_since = tally.samples
        tally.start_over()
        tally.counts["rollbacks"] += 1
        self.method.pause()
        words = f"back to {name_of(target)}; learning is paused"
        self._tell("rollback", words, {"rest": tally.rest * self.look})

    def _wake(self) -> None:
        """Let learning begin again after a rest if the answers are varied, or in any case after a long rest."""
        tally = self.tally
        assert tally.resting_since is not None
        rested, rest = tally.samples - tally.resting_since, tally.rest * self.look
        quiet = effective_classes(tally.answers) >= broad(tally.classes) / 2
        if rested >= rest and (quiet or rested >= SOON * rest):
            tally.resting_since, tally.woken, tally.alarmed = None, tally.samples, False
            tally.unsteady.clear()
            tally.counts["resting_samples"] += rested
            self.method.resume()
            self._tell("resume", "the signals are quiet" if quiet else "trying again after a long pause", {})

    def _follow_drift(self, layers: dict[str, float]) -> None:
        """Check whether a drift has begun or ended, without a bet."""
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
        self.announce(self.journal.tell(self.tally.samples, kind, cause, numbers))

    def announce(self, event: Event) -> None:
        """Log an event and pass it to `on_event`."""
        LOG.log(logging.WARNING if event.kind in ("alarm", "rollback") else logging.INFO, "%s", event)
        if self.on_event is not None:
            try:
                self.on_event(event)
            except Exception:  # the sample has been answered and learned from: its caller must get the answer
                LOG.exception("on_event failed")

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_bench": None, "on_event": None}
