"""What the dashboard shows of a stream: its confidence, how far it has adapted, and what happened to it."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..methods.method import Method

POINTS = 180
"""Points of a stream's history; the page draws them all."""
RECENT = 64
"""Samples over which the current expected error is computed."""
USUAL = 128
"""Samples over which a stream's lowest expected error is computed."""
MARGIN = 0.08
"""A stream counts as drifting if its expected error is larger than its lowest one by this much."""
EVENTS = 50
LEVELS = {"learning": 0, "steady": 0, "drifting": 1, "suspect": 2, "rolled back": 3}
"""The states of a stream, by how much trouble each means."""


class Record:
    """One stream as the page shows it. Only the thread that calls the fleet writes here.

    The expected error is one minus the mean of the largest probability. It needs neither labels nor source
    data, but it misses a model that is confident and wrong. `tta.Watch` is for that: if a stream is watched,
    its health is shown as well.
    """

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self.durable: int | None = None
        self.paused = False
        self.seen = 0.0
        self.distance = 0.0
        self.health: dict[str, Any] | None = None
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self.predictions: deque[int] = deque(maxlen=RECENT)
        self.times, self.errors, self.travelled = array("d"), array("f"), array("f")
        self.changed = False
        self._level = 0
        self.forget()

    def forget(self) -> None:
        """Forget the errors so far."""
        self._counted = 0
        self._now = self._usual = self._bad = 0.0
        self._best: float | None = None

    @property
    def samples(self) -> int:
        """How many samples the stream has had."""
        return self.counters.get("samples", 0)

    @property
    def expected_error(self) -> float | None:
        """The expected error of the latest answers, from 0 to 1; None before the first one."""
        return self._now if self._counted else None

    def count(self, classes: Sequence[int | None], confidences: Sequence[float]) -> None:
        """Add the answers to some samples: the class of each (None if it was not usable) and its probability."""
        self.seen, self.changed = time.time(), True
        good = [c for c in classes if c is not None]
        self.predictions.extend(good)
        self._bad += min(1.0, len(classes) / RECENT) * (1 - len(good) / len(classes) - self._bad)
        if not good:
            return
        error = 1 - sum(confidences) / len(good)
        self._counted += len(good)
        self._now += min(1.0, len(good) / min(self._counted, RECENT)) * (error - self._now)
        self._usual += min(1.0, len(good) / min(self._counted, USUAL)) * (error - self._usual)
        if self._counted >= USUAL:
            self._best = self._usual if self._best is None else min(self._best, self._usual)

    def look(self, method: Method, *, anew: bool = False) -> None:
        """Read a stream's method after a call; `anew` if it may have been replaced."""
        before, self.counters = {} if anew else self.counters, dict(method.counters)
        self.paused = bool(method.paused)
        if self.counters["updates"] != before.get("updates"):
            self.distance = distance(method.inner.tensors, method.backbone.source)
        if before and self.counters["rejected_updates"] > before["rejected_updates"]:
            self.tell("update undone", "an update would have produced numbers that are not finite")
        health = getattr(method, "health", None)
        if health is not None:
            error = (
                {} if health.error is None else {k: round(v, 2) for k, v in health.error._asdict().items()}
            )
            self.health = {"state": health.state, "why": "; ".join(health.reasons), "error": error or None}

    def tell(self, kind: str, cause: str) -> None:
        """Write down an event."""
        self.events.append({"time": time.time(), "samples": self.samples, "kind": kind, "cause": cause})
        self.changed = True

    def follow(self) -> tuple[str, str]:
        """Update the state and its reason; an event is recorded when the state changes."""
        state, why = self.judge()
        level = LEVELS.get(state, 0)
        if level != self._level:
            self._level = level
            self.tell(state, why)
        return state, why

    def mark(self, now: float) -> None:
        """Add a point to the history."""
        if not self._counted:
            return
        for values, value in ((self.times, now), (self.errors, self._now), (self.travelled, self.distance)):
            values.append(value)
            del values[:-POINTS]

    def judge(self) -> tuple[str, str]:
        """The stream's state and its reason: the watch's, unless the latest samples look worse."""
        state, why = self._seen_state()
        health = self.health  # another thread may write while this one reads
        if health is not None and LEVELS.get(health["state"], 0) >= LEVELS[state]:
            return health["state"], health["why"]
        return state, why

    def _seen_state(self) -> tuple[str, str]:
        if self._bad > 0.5:
            return "suspect", f"{100 * self._bad:.0f} % of the latest samples hold NaN or Inf"
        best = self._best
        if best is None:
            return "learning", f"{self._counted} answers so far"
        if self._now > best + MARGIN:
            return "drifting", (
                f"the expected error is {100 * self._now:.0f} %, at its best it was {100 * best:.0f} %"
            )
        return "steady", f"the expected error is {100 * self._now:.0f} %"

    @property
    def trouble(self) -> float:
        """The sort key of streams: the state first, then the expected error."""
        return LEVELS.get(self.judge()[0], 0) + self._now

    def summary(self, stream: str) -> dict[str, Any]:
        """What the wall shows of the stream."""
        state, why = self.judge()
        return {
            "id": stream,
            "state": state,
            "why": why,
            "trouble": round(self.trouble, 4),
            "paused": self.paused,
            "samples": self.samples,
            "updates": self.counters.get("updates", 0),
            "durable": self.durable,
            "expected_error": None if self.expected_error is None else round(self.expected_error, 4),
            "distance": round(self.distance, 4),
            "seen": round(self.seen, 3),
            "errors": [round(value, 3) for value in self.errors[-60:]],
            "predictions": list(self.predictions),
        }

    def page(self, stream: str) -> dict[str, Any]:
        """What a stream's own page shows."""
        history = {
            "times": [round(value, 2) for value in self.times],
            "expected_error": [round(value, 4) for value in self.errors],
            "distance": [round(value, 4) for value in self.travelled],
        }
        return {
            **self.summary(stream),
            "counters": dict(self.counters),
            "health": self.health,
            "history": history,
        }


def distance(tensors: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> float:
    """How far running means have moved from the source's, in standard deviations of the source, mean over channels."""
    moved = []
    for name, mean in source.items():
        if name.endswith("running_mean"):
            deviation = (source[name.removesuffix("mean") + "var"] + 1e-5).sqrt()
            moved.append(((tensors[name] - mean).abs() / deviation).mean())
    return float(torch.stack(moved).mean()) if moved else 0.0
