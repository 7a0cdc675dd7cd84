"""RoTTA's memory: class-balanced, recent and confident samples."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import torch

from .memory import Memory, put


class CSTU(Memory):
    """Category-balanced Sampling with Timeliness and Uncertainty: RoTTA's memory (its section 3.3).

    A sample has a penalty that grows with its age and with the uncertainty of its prediction:
    `1 / (1 + exp(-age / capacity)) + entropy / ln(classes)`. If the class of a new sample already has its share,
    capacity / classes, the sample competes with its own class. Otherwise it enters while there is room; if there is
    none, it competes with the largest class(es). In a competition the sample with the highest penalty leaves, which
    may be the new one.

    Args:
        capacity: How many samples to hold.
        classes: The number of classes; with None, the method sets it at its first sample.
        device: Where the samples are kept; None means the device of the first sample.

    Example:
        >>> memory = CSTU(2, classes=2)
        >>> for label, entropy in [(0, 0.6), (0, 0.1), (1, 0.6)]:
        ...     memory.add(torch.zeros(1), label, entropy)
        >>> memory.labels(), memory.ages()
        ([0, 1], [2, 1])
    """

    needs_entropy = True

    def __init__(
        self, capacity: int, classes: int | None = None, device: torch.device | str | None = None
    ) -> None:
        super().__init__(capacity, device=device)
        if classes is not None and classes < 2:
            raise ValueError(f"classes must be at least 2, got {classes}")
        self.classes = classes
        self._entropies: list[float] = []
        self._born: list[int] = []
        self._clock = 0

    def ages(self) -> list[int]:
        """Return the age of each sample in the order of `inputs()`: the samples offered since then, with itself."""
        return [self._clock - born for born in self._born]

    def _place(self, label: int, entropy: float | None) -> int | None:
        if entropy is None or self.classes is None:
            raise ValueError(
                "CSTU needs the entropy of each prediction: CSTU(64, classes=10).add(x, label, entropy)"
            )
        slot = self._choose(label, entropy)
        if slot is not None:
            put(self._entropies, slot, entropy)
            put(self._born, slot, self._clock)
        self._clock += 1
        return slot

    def _choose(self, label: int, entropy: float) -> int | None:
        assert self.classes is not None
        held = Counter(self._labels)
        if held[label] < self.capacity / self.classes:
            if len(self) < self.capacity:
                return len(self)
            most = max(held.values())
            pool = {other for other, count in held.items() if count == most}
        else:
            pool = {label}
        against, _, _, victim = max(
            (self._against(self._clock - born, own), other, born, slot)
            for slot, (other, own, born) in enumerate(
                zip(self._labels, self._entropies, self._born, strict=True)
            )
            if other in pool
        )
        return victim if against > self._against(0, entropy) else None

    def _against(self, age: int, entropy: float) -> float:
        return 1 / (1 + math.exp(-age / self.capacity)) + entropy / math.log(max(self.classes or 2, 2))

    def _mend(self) -> None:
        self._entropies, self._born = self._entropies[: len(self)], self._born[: len(self)]
        self._clock = max([self._clock, *(born + 1 for born in self._born)])

    def clear(self) -> None:
        """Discard the samples and their ages."""
        super().clear()
        self._entropies, self._born, self._clock = [], [], 0

    def state_dict(self) -> dict[str, Any]:
        """Return samples, labels, entropies and ages."""
        return super().state_dict() | {
            "classes": self.classes,
            "entropies": list(self._entropies),
            "ages": self.ages(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state."""
        labels, ages, entropies = (state.get(key, []) for key in ("labels", "ages", "entropies"))
        if (
            not len(ages) == len(entropies) == len(labels)
            or not all(type(age) is int and age > 0 for age in ages)
            or not all(type(entropy) is float and math.isfinite(entropy) for entropy in entropies)
        ):
            raise ValueError(f"not a state of CSTU: ages {ages!r:.40} and entropies {entropies!r:.40}")
        classes = state.get("classes")
        if classes is not None and (type(classes) is not int or classes < 1):
            raise ValueError(f"not a state of CSTU: it is for {classes!r:.40} classes")
        super().load_state_dict(state)
        self.classes, self._entropies = classes, list(entropies)
        self._clock = max(ages, default=0)
        self._born = [self._clock - age for age in ages]
