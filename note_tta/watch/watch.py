"""The watch around a method: looks at its signals, tells of trouble, and goes back."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..memory import FIFO
from ..methods.backbone import Tensors
from ..methods.method import Method
from ..methods.objectives import entropies
from ..methods.settings import check_count
from ..methods.wrapper import Wrapper
from .bench import Bench
from .health import SUSPECT, Estimate, Health, judge
from .journal import Event, Journal
from .page import write_page
from .reference import Known, Reference, Source, learn_reference, lost
from .signals import copies, drift, effective_classes, rank
from .snapshots import Snapshot, Snapshots
from .tally import Tally

LOG = logging.getLogger("note_tta.watch")

CANARIES = 64
RECENT, TOGETHER = 8, 4
"""So many of the samples that are put to the source model are kept, and so many are put to it in one pass."""
CALM = 0.25
"""A state this near to an alarm, as a share of it, is still good enough to go back to."""

MARGIN = 0.1
"""A source that fits better by a factor of 2 to this power is not worth going back to."""
STAKE = 0.9
"""How much of the evidence is risked on each sample's misfit."""
ENOUGH_CLASSES = 10
"""A stream of so many effective classes, or of all the model has, counts as broad."""
NARROW = 1.5
"""A memory of fewer effective classes than this is too narrow to learn from for long."""
COPIED = 0.5
"""So large a share of copies in the memory is too large to learn from for long."""
LONG = 2
"""A memory that is too narrow, or holds copies, for as many samples as so many looks have is an alarm."""
ENOUGH_PAIRS = 64
"""Comparisons with the source model until collapse can be told."""

REST = 2
"""Looks that learning rests after an alarm; twice as long after one that comes soon again."""
LONGEST_REST = 64
SOON = 8
"""An alarm within so many times the rest comes soon again; after so many times itself a rest ends in any case."""
DRIFTED = 0.1
"""How far the mean rank of entropies is from a half while the input counts as drifting; and, where no source is
known, how many standard deviations a layer's statistics have moved."""
CLOSER = 4
"""So many times as often it is looked at a stream that is new, near to an alarm, or learns again after one."""
SHOWN_CLASSES = 32
"""Up to so many classes the history has the share of each."""


class Watch(Wrapper):
    """Watch a method: the same answers until adaptation goes wrong; then it is said, and undone.

    Every `sample`-th sample is put to the frozen source model as well, and every `look` samples all signals are
    looked at, four times as often while there is reason to. What each means and how it was measured is in
    docs/watch.md.

    - **Forgetting** (with `source`): samples of the source, kept with the state, lose the probability that the
      source model gave to its answers. Allowed is `tolerance`, and less where what is learned from is narrow.
    - **Collapse**: the answers amount to less than half the classes that the source model's do.
    - **Copies**: half the memory's samples are copies of others for long, as from a camera that hangs.
    - **Narrow memory** (without `source`): learning from one class for long.
    - **Misfit**: the source's statistics, or those of a snapshot, fit the stream better than the adapted ones.

    All but the last are alarms: the adapted tensors and the optimizer go back to the last good snapshot, the memory
    is emptied, and learning rests until the signals are quiet. Misfit is no alarm: the stream has become
    what it was, and the method returns to what fits it.

    Args:
        method: Any method.
        source: Batches of source inputs, held out from training if possible, alone or with labels; or a file that
            `watch.reference.save` wrote.
        expected_run: Samples between two false alarms.
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
        _check(expected_run, tolerance, look, sample, snapshots)
        self.expected_run, self.tolerance, self.look, self.sample = expected_run, tolerance, look, sample
        self.snapshots, self.rollback, self.on_event = snapshots, rollback, on_event
        self._bench: Bench | None = None
        self.tally = self.part("tally", Tally())
        self.journal = self.part("journal", Journal())
        self.ring = self.part("snapshots", Snapshots())
        self.recent = self.part("recent", FIFO(RECENT))
        reference = (
            None if source is None else learn_reference(self.inner, source, self.bench, CANARIES, tolerance)
        )
        self._known = self.part("reference", Known(reference))

    @property
    def health(self) -> Health:
        """How the stream is doing, as a small value that prints as a sentence."""
        with self._lock:
            tally, signals = self.tally, self.journal.latest()
            if not signals:
                reason = f"{tally.samples:,} samples so far, the first look is at {self._closer:,}"
                return Health("learning", (reason,), tally.samples, None, {})
            alarm = self.journal.last("alarm").cause if tally.resting_since is not None else ""
            state, reasons = judge(
                signals,
                alarm=alarm,
                trouble=tally.trouble,
                resting=tally.resting_since is not None,
                drifting=tally.drifting,
                looks=tally.samples / self.look,
            )
            error = (
                Estimate(*(signals[end] for end in ("error", "error_low", "error_high")))
                if "error" in signals
                else None
            )
            shown = {name: value for name, value in signals.items() if ":" not in name}
            return Health(state, reasons, tally.samples, error, shown)

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
            self.tally.misfit.clear()
            self.tally.clear_pairs()
            self.tally.counts["rollbacks"] += 1
            name = "a given snapshot" if snapshot is not None else _name(target)
            self._tell("rollback", f"back to {name}, as was asked for", {})

    def report(self, path: str | Path) -> Path:
        """Write one self-contained page: health, signals, answers and drift over time, the memory, events.

        Args:
            path: The HTML file.

        Returns:
            The same.
        """
        with self._lock:
            return write_page(self, Path(path))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; see `Method`. What it knows of the source comes with it."""
        settings = state.get("settings") if isinstance(state, dict) else None
        if isinstance(settings, dict):
            given = {name: settings.get(name, getattr(self, name)) for name in _CHECKED}
            try:
                _check(**given)
            except TypeError as error:
                raise ValueError(f"not a state of Watch: {error}") from error
        super().load_state_dict(state)

    def after(self, x: Tensor, logits: Tensor) -> Tensor:
        """The same answers; looks where a look is due."""
        if self.tally.paused or len(x) == 0:
            return logits
        if not torch.isfinite(logits.sum()):
            good = torch.isfinite(logits).all(dim=1)
            x, rows = x[good.to(x.device)], logits[good]
        else:
            rows = logits
        tally = self.tally
        asked = list(range(-(tally.samples + 1) % self.sample, len(rows), self.sample))
        tally.wait(rows)
        if asked:
            limit = torch.inf if self.reference is None else self.reference.threshold
            tally.count(limit, self.look)
            for row in asked:
                self._keep(x[row], int(rows[row].argmax()))
            if tally.samples >= (tally.next_look or self._closer):
                self._look_at_all()
        return logits

    def _keep(self, sample: Tensor, answer: int) -> None:
        """Keep a sample to put it to the source model with some others."""
        sample = sample.detach().to(self.backbone.dtype or sample.dtype)
        if self.recent.sample_shape not in (None, tuple(sample.shape)):
            self.recent.clear()
            self.tally.unasked = 0
        self.recent.add(sample, answer)
        self.tally.unasked += 1
        if self.tally.unasked == TOGETHER:
            self.tally.unasked = 0
            self._compare(self.recent.inputs()[-TOGETHER:], self.recent.labels()[-TOGETHER:])

    def _compare(self, x: Tensor, ours: list[int]) -> None:
        """Put samples to the source model, and to the adapted one where both have statistics to be looked at."""
        tally, source = self.tally, self.backbone.source
        patience = self.expected_run / self.sample
        theirs, fit = self.bench.ask(source, x)
        learns = tally.resting_since is None and fit is not None
        now = self.bench.ask(self.inner.tensors, x)[1] if learns else None
        gaps = None
        if now is not None and fit is not None:
            gaps = torch.log2((now + 1e-9) / (fit + 1e-9)).nan_to_num().clamp(-1, 1).tolist()
        surprise, finite = entropies(theirs).tolist(), torch.isfinite(theirs).all(dim=1).tolist()
        for row, answer in enumerate(theirs.argmax(dim=1).tolist()):
            if not finite[row]:
                continue
            tally.pair(ours[row], answer)
            if self.reference is not None:
                place = rank(surprise[row], self.reference.quantiles(answer))
                if tally.bet(place, patience) and not tally.drifting:
                    self._drift(begins=True)
            if gaps is not None and tally.misfit.add(
                1 + STAKE * (gaps[row] - MARGIN) / (1 + MARGIN), patience
            ):
                self._return(gaps[row])
                gaps = None  # the others were asked of what has just been left

    def _return(self, gap: float) -> None:
        """Go back to what fits the latest samples best: a snapshot or the source."""
        x = self.recent.inputs()
        best, found = None, self._misfit(self.backbone.source, x)
        for snapshot in self.ring.newest_first():
            far = self._misfit(snapshot.learned["model"], x)
            if far < found:
                best, found = snapshot, far
        self.tally.misfit.clear()
        if self.rollback:
            self.inner.roll_back(None if best is None else best.learned)
            self.tally.counts["returns"] += 1
            cause = f"the statistics of {_name(best)} fit the stream better than the adapted ones"
            self._tell("return", cause, {"misfit": round(found, 4), "worse_by": round(2**gap, 2)})

    def _misfit(self, tensors: Tensors, x: Tensor) -> float:
        far = self.bench.ask(tensors, x)[1]
        return 0.0 if far is None else float(far.mean())

    def _look_at_all(self) -> None:
        tally = self.tally
        signals, troubles = self._signals()
        strain, trouble = max(troubles, default=(0.0, ""))
        signals["strain"], tally.trouble = round(max(0.0, strain), 3), trouble
        layers = drift(self.inner.tensors, self.backbone.source)
        self._end_of_drift(layers)
        self.journal.note(signals | {f"layer:{name}": far for name, far in layers.items()} | self._shares())
        if tally.resting_since is not None:
            self._wake()
        elif strain < 1:
            tally.alarmed = False
            if strain <= CALM:
                self.ring.add(tally.samples, self.inner.snapshot(), self.snapshots)
        elif not tally.alarmed:
            self._alarm(trouble, signals)
        fresh = tally.samples < self.look or self._woken_within(SOON)
        closely = tally.resting_since is None and (fresh or strain >= SUSPECT)
        tally.next_look = tally.samples + (self._closer if closely else self.look)

    @property
    def _closer(self) -> int:
        """Samples between two looks while there is reason to look closely."""
        return max(1, self.look // CLOSER // self.sample) * self.sample

    def _woken_within(self, looks: int) -> bool:
        return self.tally.woken is not None and self.tally.samples - self.tally.woken < looks * self.look

    def _shares(self) -> dict[str, float]:
        if self.tally.classes > SHOWN_CLASSES:
            return {}
        shares = self.tally.answers / self.tally.answers.sum().clamp(min=1e-9)
        return {f"class:{label}": round(share, 4) for label, share in enumerate(shares.tolist())}

    def _signals(self) -> tuple[dict[str, float], list[tuple[float, str]]]:
        """Every signal by name, and for each trouble how near it is to an alarm, 1 being one, and what to say.

        What is learned from is as varied as the memory and the answers over a long time are: the geometric mean
        of both. The labels in the memory are predicted, so they alone look varied where a model is merely often
        wrong; the answers alone look narrow on a stream that is sorted by class.
        """
        tally = self.tally
        memory: Any = getattr(self.inner, "memory", None)
        held = memory is not None and len(memory) > 0
        weights = torch.bincount(torch.tensor(memory.labels() if held else [], dtype=torch.long))
        told = effective_classes(tally.long)
        signals = {
            "samples": float(tally.samples),
            "classes": math.sqrt(effective_classes(weights) * told) if held else told,
            **tally.signals(),
            **self._refused(),
        }
        troubles: list[tuple[float, str]] = []
        if self.reference is not None:
            error = tally.error()
            signals |= {"error": error.value, "error_low": error.low, "error_high": error.high}
        if self.reference is not None and self.backbone.source:
            troubles.append(self._forgetting(self.reference, signals))
        if held and tally.resting_since is None:
            signals["copies"] = copies(memory.inputs())
            troubles += self._poor_memory(signals)
        ours, theirs = effective_classes(tally.ours), effective_classes(tally.theirs)
        signals["classes_of_source"] = theirs
        if tally.pairs >= ENOUGH_PAIRS:
            words = (
                f"the answers amount to {ours:.1f} classes where the source model's amount to {theirs:.1f}"
            )
            troubles.append((theirs / max(ours, 1e-9) - 1, words))
        return signals, troubles

    def _forgetting(self, reference: Reference, signals: dict[str, float]) -> tuple[float, str]:
        each = lost(reference, self.bench, self.inner.tensors)
        mean = float(each.mean())
        broad = min(self.tally.classes, ENOUGH_CLASSES)
        allowed = self.tolerance * min(1.0, max(signals["classes"] / broad, 1 / ENOUGH_CLASSES))
        signals |= {"forgetting": round(mean, 4), "allowed": round(allowed, 4)}
        return mean / allowed, (
            f"source samples have lost {100 * mean:.1f} points of their probability; {100 * allowed:.1f} are "
            f"allowed while the model learns from {signals['classes']:.1f} classes"
        )

    def _poor_memory(self, signals: dict[str, float]) -> list[tuple[float, str]]:
        tally = self.tally
        least = min(NARROW, 0.6 * tally.classes) if self.reference is None else 0.0
        looks = signals["watched"] / self.look
        tally.narrow = tally.narrow + looks if signals["classes"] < least else 0.0
        tally.copied = tally.copied + looks if signals["copies"] > COPIED else 0.0
        narrow = f"the memory has held {signals['classes']:.1f} classes for long"
        copied = f"{100 * signals['copies']:.0f} % of the memory's samples are copies of others"
        return [(tally.narrow / LONG, narrow), (tally.copied / LONG, copied)]

    def _refused(self) -> dict[str, float]:
        """Samples since the last look, and the shares of those not learned from and of updates that were undone."""
        tally = self.tally
        now = {name: self.counters[name] for name in tally.counters}
        new = {name: now[name] - before for name, before in tally.counters.items()}
        tally.counters = now
        watched, tally.last_look = tally.samples - tally.last_look, tally.samples
        tried = new["updates"] + new["rejected_updates"]
        return {
            "watched": watched,
            "unlearned": round(min(1.0, new["unlearned_samples"] / max(watched, 1)), 4),
            "undone": round(new["rejected_updates"] / max(tried, 1), 4),
        }

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
        tally.narrow = tally.copied = 0.0
        tally.misfit.clear()
        tally.clear_pairs()
        tally.counts["rollbacks"] += 1
        super().pause()
        self._tell("rollback", f"back to {_name(target)}; learning rests", {"rest": tally.rest * self.look})

    def _wake(self) -> None:
        """Let learning begin again after a rest, when the answers are varied, or after a rest of many times that."""
        tally = self.tally
        assert tally.resting_since is not None
        rested, rest = tally.samples - tally.resting_since, tally.rest * self.look
        quiet = effective_classes(tally.answers) >= min(tally.classes, ENOUGH_CLASSES) / 2
        if rested >= rest and (quiet or rested >= SOON * rest):
            tally.resting_since, tally.woken, tally.alarmed = None, tally.samples, False
            tally.counts["resting_samples"] += rested
            super().resume()
            self._tell("resume", "the signals are quiet" if quiet else "trying again after a long rest", {})

    def _end_of_drift(self, layers: dict[str, float]) -> None:
        """Without a source, drift begins and ends with the statistics; with one, it ends when ranks are even again."""
        tally = self.tally
        if self.reference is None:
            drifts = max(layers.values(), default=0.0) > DRIFTED
        else:
            drifts = tally.drifting and abs(tally.rank - 0.5) >= DRIFTED
        if drifts != tally.drifting:
            self._drift(begins=drifts)

    def _drift(self, *, begins: bool) -> None:
        self.tally.drifting = begins
        if not begins:
            self.tally.forget_bets()
        words = "the input is not like the source's" if begins else "the input is like the source's again"
        self._tell("drift" if begins else "drift over", words, {"rank": round(self.tally.rank, 4)})

    def _tell(self, kind: str, cause: str, numbers: dict[str, float]) -> None:
        event = self.journal.tell(self.tally.samples, kind, cause, numbers)
        LOG.log(logging.WARNING if kind in ("alarm", "rollback") else logging.INFO, "%s", event)
        if self.on_event is not None:
            try:
                self.on_event(event)
            except Exception:  # the sample has been answered and learned from: its caller must get the answer
                LOG.exception("on_event failed")

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_bench": None, "on_event": None}


_CHECKED = ("expected_run", "tolerance", "look", "sample", "snapshots")


def _check(expected_run: int, tolerance: float, look: int, sample: int, snapshots: int) -> None:
    check_count("sample", sample, 1)
    check_count("look", look, 1)
    check_count("expected_run", expected_run, 2 * look)
    check_count("snapshots", snapshots, 1)
    if look % sample:
        raise ValueError(f"look must be a multiple of sample ({sample}), got {look}")
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must be between 0 and 1, got {tolerance}")


def _name(snapshot: Snapshot | None) -> str:
    return "the source" if snapshot is None else f"sample {snapshot.samples:,}"
