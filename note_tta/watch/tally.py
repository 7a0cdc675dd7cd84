"""The counts of a watch: windows over the answers, evidence, and the state of the watch."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ..methods.objectives import entropies
from .estimate import Estimate, wilson
from .signals import Detector, Wager, persistence

HALF_LIFE_IN_PAIRS = 64
UNSTEADY = 0.15
"""How much less often than the source model's answers may repeat before this counts as evidence."""
STAKE = 0.7
"""The share of the evidence that is risked on the repeated answers of each sample."""
LONGER = 4
"""The length of the long window over the answers, in short windows."""
DRIFTED = 0.1
"""The input counts as drifting while the mean rank of entropies is this far from a half. Without a source, it does if
the statistics of a layer have moved by more than this many standard deviations."""
DOUBT = 64
"""The evidence of misfit or of unsteady answers that is a reason for close checks. If both models are alike, the
evidence stays at 11 and 9."""
MOST_WAITING = 2**14
"""Logits are counted when this many values wait. With ten classes, those of a whole look are fewer."""
SILENCE = 64
"""Answers of NaN in a row after which the watch asks why."""
SHOWN_CLASSES = 32
"""Up to this many classes, the history has the share of each class."""


class Tally:
    """The counts of one stream, as a part of a watch: plain values, and a few numbers per class.

    Windows have a half-life of one look (over the answers), or of 64 comparisons with the source model.

    Attributes:
        samples: The number of watched samples.
        unasked: How many of the kept samples the source model has not answered yet.
        next_look: The sample of the next look; 0 before the first look.
        last_look: The sample of the last look.
        looks: The number of looks.
        close: Whether the stream is watched closely: it is new, near an alarm, or learning again after one.
        strain: How near the stream was to an alarm at the last look; 1 is an alarm.
        lasting: For how many looks the memory has been too narrow, full of copies, or full of dead input.
        paused: Whether the caller has paused the stream.
        alarmed: Whether an alarm was reported that has not ended yet.
        drifting: Whether the input was found to differ from the source's.
        resting_since: The sample since which learning rests after an alarm.
        woken: The sample at which learning began again.
        target: The sample of the snapshot of the last rollback.
        trouble: What was nearest to an alarm at the last look, in words.
        rest: The minimum number of looks of the last rest.
        answers: The weight of each class among the latest answers.
        long: The same over a window that is four times as long.
        waiting: The logits of answers that are not counted in any window yet.
        ours: The weight of each class among the answers that were compared with the source model's.
        theirs: The same among the source model's.
        unsteady: Evidence that the answers repeat themselves less often than the source model's.
        before_ours: The latest answer that was compared with the source model's.
        before_theirs: The source model's to the same sample.
        unanswered: How many samples in a row were answered with NaN.
        silent: How many of these are finite themselves, since the last look at why.
    """

    def __init__(self) -> None:
        self.misfit, self.surprise, self.wager = Detector(), Detector(), Wager()
        self.unsteady = Detector()
        self.before_ours = self.before_theirs = -1
        self.next_look = self.last_look = 0
        self.samples = self.classes = self.pairs = self.unasked = 0
        self.looks, self.strain = 0, 0.0
        self.unanswered = self.silent = 0
        self.lasting = {"narrow": 0.0, "copies": 0.0, "dead": 0.0}
        self.paused = self.alarmed = self.drifting = False
        self.close = True
        self.resting_since: int | None = None
        self.woken: int | None = None
        self.target: int | None = None
        self.trouble = ""
        self.rest = 0
        self.last = -1
        self.waiting: list[Tensor | list[list[float]]] = []
        self.weight = self.entropy = self.beyond = self.changes = 0.0
        self.differ, self.rank = 0.0, 0.5
        self.answers = self.long = self.ours = self.theirs = torch.zeros(0, dtype=torch.float64)
        self.counts = {"alarms": 0, "rollbacks": 0, "returns": 0, "resting_samples": 0}
        self.counters = {"unlearned_samples": 0, "updates": 0, "rejected_updates": 0}

    def wait(self, logits: Tensor | list[list[float]]) -> None:
        """Take over logits `[B, K]`. They are counted together later, which is faster."""
        rows = len(logits)
        if rows:
            self.waiting.append(logits)
            self.samples += rows

    def count_unanswered(self, x: Tensor, good: Tensor) -> None:
        """Count samples that were answered with NaN since the last good answer."""
        tail = len(good) - int(good.nonzero().max()) - 1 if good.any() else len(good)
        if tail < len(good):
            self.unanswered = self.silent = 0
        self.unanswered += tail
        self.silent += int(torch.isfinite(x[len(x) - tail :]).flatten(1).all(dim=1).sum())

    @property
    def is_full(self) -> bool:
        """Whether enough answers wait to be counted now."""
        return sum(len(part) * len(part[0]) for part in self.waiting) >= MOST_WAITING

    def _take_waiting(self) -> Tensor:
        """The waiting logits, in single precision."""
        parts = [
            torch.tensor(part) if isinstance(part, list) else part.float().cpu() for part in self.waiting
        ]
        return torch.cat(parts) if parts else torch.zeros(0, 0)

    def count(self, limit: float, window: int) -> None:
        """Count the answers that wait.

        Args:
            limit: The entropy above which an answer counts as wrong.
            window: The half-life of the windows over the answers, in samples.
        """
        logits, self.waiting = self._take_waiting(), []
        n, classes = logits.shape
        self._grow(classes)
        answers, entropy = logits.argmax(dim=1), entropies(logits).double()
        weights, slow, total, faded = _weights(n, window)
        changed = answers != torch.cat([torch.tensor([self.last]), answers[:-1]])
        sums = torch.stack([entropy, (entropy > limit).double(), changed.double()]) @ weights
        self.answers = self.answers * faded + torch.bincount(answers, weights, classes)
        self.long = self.long * faded ** (1 / LONGER) + torch.bincount(answers, slow, classes)
        self.weight = self.weight * faded + total
        was = (self.entropy, self.beyond, self.changes)
        self.entropy, self.beyond, self.changes = (
            old * faded + new for old, new in zip(was, sums.tolist(), strict=True)
        )
        self.last = int(answers[-1])

    def pair(self, ours: int, theirs: int) -> None:
        """Take in an answer and the source model's answer to the same sample; call it in the order of the stream."""
        if self.pairs:
            steady = persistence(theirs, self.before_theirs, self.theirs)
            gap = steady - persistence(ours, self.before_ours, self.ours)
            self.unsteady.add(1 + STAKE * (min(1.0, max(-1.0, gap)) - UNSTEADY), math.inf)
        self.before_ours, self.before_theirs = ours, theirs
        keep = 0.5 ** (1 / HALF_LIFE_IN_PAIRS)
        self.ours, self.theirs = self.ours * keep, self.theirs * keep
        self.ours[ours] += 1
        self.theirs[theirs] += 1
        step = max(1 - keep, 1 / (self.pairs + 1))
        self.differ += step * ((ours != theirs) - self.differ)
        self.pairs += 1

    @property
    def doubted(self) -> bool:
        """Whether the comparisons with the source model are a reason for close checks."""
        return max(self.misfit.sum, self.unsteady.sum) >= DOUBT

    def unsteadiness(self, patience: float) -> float:
        """How near the answers are to being called unsteady: 0 without evidence, 1 if they are.

        Args:
            patience: The expected number of comparisons between two false calls.
        """
        even = (1 - STAKE * UNSTEADY) / (STAKE * UNSTEADY)  # the recursion stays here if no answers differ
        return max(
            0.0, math.log(max(self.unsteady.sum, even) / even) / math.log(max(patience, 2 * even) / even)
        )

    def bet(self, rank: float, patience: float) -> bool:
        """Take in the rank of the source model's entropy among the source's; returns whether the input has drifted."""
        keep = 0.5 ** (1 / HALF_LIFE_IN_PAIRS)
        self.rank += (1 - keep) * (rank - self.rank)
        return self.surprise.add(self.wager.play(rank), patience)

    def drifts(self, moved: float | None) -> bool:
        """Whether the input still drifts.

        Args:
            moved: How far the statistics have moved; this decides if no source is known. None if one is known: then a
                bet starts the drift, and it ends when the ranks are even again.
        """
        if moved is not None:
            return moved > DRIFTED
        return self.drifting and abs(self.rank - 0.5) >= DRIFTED

    def shares(self) -> dict[str, float]:
        """The share of each class among the latest answers; empty if there are too many classes to show."""
        if self.classes > SHOWN_CLASSES:
            return {}
        shares = self.answers / self.answers.sum().clamp(min=1e-9)
        return {f"class:{label}": round(share, 4) for label, share in enumerate(shares.tolist())}

    def last_for(self, trouble: str, looks: float) -> float:
        """Add looks to how long a trouble has lasted (0 ends it); returns how many looks it has lasted."""
        self.lasting[trouble] = self.lasting[trouble] + looks if looks else 0.0
        return self.lasting[trouble]

    def refused(self, counters: dict[str, int]) -> dict[str, float]:
        """The samples since the last look, the share of them not learned from, and the share of updates undone."""
        now = {name: counters[name] for name in self.counters}
        new = {name: now[name] - before for name, before in self.counters.items()}
        self.counters = now
        watched, self.last_look = self.samples - self.last_look, self.samples
        tried = new["updates"] + new["rejected_updates"]
        return {
            "watched": watched,
            "unlearned": round(min(1.0, new["unlearned_samples"] / max(watched, 1)), 4),
            "undone": round(new["rejected_updates"] / max(tried, 1), 4),
        }

    def start_over(self) -> None:
        """Discard what was gathered about a state that is no longer in use."""
        self.misfit.clear()
        self.unsteady.clear()
        self.clear_pairs()
        self.lasting = dict.fromkeys(self.lasting, 0.0)

    def clear_pairs(self) -> None:
        """Discard the comparisons with the source model's answers."""
        self.ours, self.theirs = torch.zeros_like(self.ours), torch.zeros_like(self.theirs)
        self.pairs = 0

    def forget_bets(self) -> None:
        """Restart the bet on a drift."""
        self.surprise.clear()
        self.wager.clear()

    def signals(self) -> dict[str, float]:
        """The signals of the windows."""
        weight = max(self.weight, 1e-9)
        return {
            "entropy": round(self.entropy / weight, 4),
            "disagreement": round(self.differ, 4),
            "runs": round(self.changes, 1),
        }

    def error(self) -> Estimate:
        """The share of answers that are less certain than the source's threshold, as an estimate of the error.

        On a correlated stream the samples of a run are not independent, so the interval counts runs.
        """
        share = self.beyond / max(self.weight, 1e-9)
        return Estimate(*(round(100 * end, 2) for end in (share, *wilson(share, self.changes))))

    @property
    def _detectors(self) -> tuple[Detector, ...]:
        return self.misfit, self.surprise, self.unsteady

    def state_dict(self) -> dict[str, Any]:
        """All counts."""
        plain = {name: value for name, value in vars(self).items() if not isinstance(value, Detector | Wager)}
        return {
            **{name: value.clone() if isinstance(value, Tensor) else value for name, value in plain.items()},
            "waiting": self._take_waiting(),
            "evidence": [each.sum for each in self._detectors] + [self.wager.bet, self.wager.squares],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the counts of a state."""
        own, state = self.state_dict(), {"unanswered": 0, "silent": 0, **state}  # 0.2.0 did not count these
        if state.keys() != own.keys():
            raise ValueError("its tally has other entries than this version's")
        for name, value in state.items():
            kinds = (int, type(None)) if name in ("resting_since", "woken", "target") else (type(own[name]),)
            if type(value) not in kinds:
                raise ValueError(f"its {name} is a {type(value).__name__}")
            if name == "waiting":
                self.waiting = [state[name]] if len(state[name]) else []
            elif name != "evidence":
                setattr(self, name, dict(value) if isinstance(value, dict) else value)
        if {len(w) for w in (self.answers, self.long, self.ours, self.theirs)} != {self.classes}:
            raise ValueError("its windows have different numbers of classes")
        waiting = state["waiting"]
        if waiting.ndim != 2 or (len(waiting) and self.classes not in (0, waiting.shape[1])):
            raise ValueError("its waiting answers have another number of classes")
        if not -1 <= self.last < max(self.classes, 1):
            raise ValueError(f"its last answer is {self.last}, beyond its {self.classes} classes")
        *sums, self.wager.bet, self.wager.squares = map(float, state["evidence"])
        for detector, evidence in zip(self._detectors, sums, strict=True):
            detector.sum = evidence

    def _grow(self, classes: int) -> None:
        if self.classes != classes:
            self.classes = classes
            self.answers, self.long, self.ours, self.theirs = (
                torch.zeros(classes, dtype=torch.float64) for _ in range(4)
            )


@lru_cache(maxsize=16)
def _weights(n: int, window: int) -> tuple[Tensor, Tensor, float, float]:
    """The latest samples' weights in the short and the long window, the sum of the first, and what older ones keep."""
    age = torch.arange(n - 1, -1, -1, dtype=torch.float64)
    weights = 0.5 ** (age / window)
    return weights, 0.5 ** (age / (LONGER * window)), float(weights.sum()), 0.5 ** (n / window)
