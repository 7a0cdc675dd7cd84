"""NOTE's memory: a class-balanced sample of a stream."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from .memory import Memory


class PBRS(Memory):
    """Prediction-Balanced Reservoir Sampling (paper, Algorithm 1).

    Once the memory is full, there are two cases. If the predicted class of a new sample is not the most frequent one
    in memory, the sample replaces a random sample of the most frequent class(es). Otherwise it replaces a random
    sample of its own class with probability m/n, where m samples of the class are in memory and n have been seen.
    So the memory tends to hold the same number of samples of each class, and those of the majority class are drawn
    uniformly over time.

    With three or more classes, a new sample of a class below the majority always enters, so minority classes consist
    of more recent samples. This is a property of the algorithm, and we keep it.

    The memory keeps a list of slots per class, so that `add` takes the same time at any capacity. Counting the classes
    for each sample, as Algorithm 1 is written, takes one and a half times as long at a capacity of 64, and 30 times
    as long at 4,096 (`benchmarks/adaptation.py`).

    Example:
        >>> memory = PBRS(4, generator=torch.Generator().manual_seed(0))
        >>> for label in [0, 0, 0, 0, 0, 0, 1, 1]:
        ...     memory.add(torch.zeros(1), label)
        >>> sorted(memory.labels())
        [0, 0, 1, 1]
    """

    def __init__(
        self,
        capacity: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(capacity, generator, device)
        self._seen: Counter[int] = Counter()
        self._slots: dict[int, list[int]] = {}  # per class; the class whose size changed last comes last

    def _place(self, label: int, entropy: float | None) -> int | None:
        self._seen[label] += 1
        if len(self) < self.capacity:
            return self._give(len(self), label)
        most = max(map(len, self._slots.values()))
        own = self._slots.get(label, [])
        if len(own) < most:
            majority = [other for other, slots in self._slots.items() if len(slots) == most]
            drawn = int(self._uniform() * len(majority) * most)
            return self._give(self._take(majority[drawn // most], drawn % most), label)
        drawn = int(self._uniform() * self._seen[label])
        return own[drawn] if drawn < most else None

    def _give(self, slot: int, label: int) -> int:
        slots = self._slots.pop(label, [])
        self._slots[label] = slots
        slots.append(slot)
        return slot

    def _take(self, label: int, position: int) -> int:
        slots = self._slots.pop(label)
        slots[position], slots[-1] = slots[-1], slots[position]
        slot = slots.pop()
        if slots:
            self._slots[label] = slots
        return slot

    def _mend(self) -> None:
        self._slots = {label: [] for label in self._labels}
        for slot, label in enumerate(self._labels):
            self._slots[label].append(slot)

    def clear(self) -> None:
        """Discard the samples and the counts of every class."""
        super().clear()
        self._seen.clear()
        self._slots.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return samples, labels, the number seen and the slots of each class, and the generator's state."""
        slots = {label: list(own) for label, own in self._slots.items()}
        return super().state_dict() | {"seen": dict(self._seen), "slots": slots}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state. One whose slots contradict its labels is refused."""
        labels, slots, seen = (state.get("labels", []), state.get("slots", {}), state.get("seen", {}))
        places = sorted((slot, label) for label, own in slots.items() for slot in own)
        if places != list(enumerate(labels)) or not all(slots.values()):
            raise ValueError("not a state of PBRS: its slots contradict its labels")
        if not all(type(count) is int for count in seen.values()) or any(
            seen.get(label, 0) < len(own) for label, own in slots.items()
        ):
            raise ValueError("not a state of PBRS: it has seen fewer samples of a class than it holds")
        super().load_state_dict(state)
        self._seen = Counter(seen)
        self._slots = {label: list(own) for label, own in slots.items()}
