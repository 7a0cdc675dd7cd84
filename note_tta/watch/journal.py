"""The history of a watch: events, and signals over time."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, NamedTuple

import torch
from torch import Tensor

EVENTS = 200
"""The number of latest events that are kept."""
LOOKS = 256
"""The number of looks that are kept; beyond it, every second one of the older half is dropped."""
UNKNOWN = -1.0
"""Marks a signal that a look did not have; signals are never negative."""


class Event(NamedTuple):
    """Something that happened.

    Attributes:
        samples: The number of samples watched before it.
        time: The time in UTC.
        kind: "alarm", "rollback", "resume", "return", "drift" or "drift over".
        cause: The cause, in words.
        numbers: The signals at that time.
    """

    samples: int
    time: str
    kind: str
    cause: str
    numbers: dict[str, float]

    def __str__(self) -> str:
        return f"{self.kind} at sample {self.samples:,}: {self.cause}"


class Journal:
    """The events and the signals over time of one stream, a part of a watch."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.names: list[str] = []
        self.looks = torch.zeros(0, 0, dtype=torch.float64)

    def tell(self, samples: int, kind: str, cause: str, numbers: dict[str, float]) -> Event:
        """Record an event and return it."""
        event = Event(samples, _now(), kind, cause, dict(numbers))
        self.events = [*self.events[1 - EVENTS :], event]
        return event

    def note(self, values: dict[str, float]) -> None:
        """Record a look as one row of numbers."""
        new = [name for name in values if name not in self.names]
        if new:
            self.names = self.names + new
            wide = torch.full((len(self.looks), len(self.names)), UNKNOWN, dtype=torch.float64)
            wide[:, : self.looks.shape[1]] = self.looks
            self.looks = wide
        row = torch.tensor([[values.get(name, UNKNOWN) for name in self.names]], dtype=torch.float64)
        kept = self.looks
        if len(kept) == LOOKS:
            kept = torch.cat([kept[: LOOKS // 2 : 2], kept[LOOKS // 2 :]])
        self.looks = torch.cat([kept, row])

    def latest(self) -> dict[str, float]:
        """The last look; empty before the first one."""
        if not len(self.looks):
            return {}
        values = zip(self.names, self.looks[-1].tolist(), strict=True)
        return {name: value for name, value in values if value != UNKNOWN}

    def column(self, name: str) -> list[float | None]:
        """A signal over time."""
        if name not in self.names:
            return [None] * len(self.looks)
        values = self.looks[:, self.names.index(name)].tolist()
        return [None if value == UNKNOWN else value for value in values]

    def last_cause(self, kind: str) -> str:
        """The cause of the latest event of a kind; its name if it is too long ago to be kept."""
        return next((event.cause for event in reversed(self.events) if event.kind == kind), kind)

    def state_dict(self) -> dict[str, Any]:
        """Events and looks."""
        return {
            "events": [list(event) for event in self.events],
            "names": list(self.names),
            "looks": self.looks,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        events = [Event(*event) for event in state["events"]]
        names, looks = state["names"], state["looks"]
        if not all(isinstance(e.kind, str) and isinstance(e.numbers, dict) for e in events):
            raise ValueError("its events have other fields than an Event")
        if not isinstance(looks, Tensor) or looks.ndim != 2 or looks.shape[1] != len(names):
            raise ValueError("its looks have another number of columns than names")
        self.events, self.names, self.looks = events, [str(name) for name in names], looks.double()


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
