"""SoTTA's memory: a class-balanced memory that every new sample enters."""

from __future__ import annotations

from collections import Counter

from .memory import Memory


class HUS(Memory):
    """High-confidence Uniform-class Sampling, SoTTA's memory. `SoTTA` decides which samples are confident enough.

    A new sample always enters. If the memory is full, it replaces a random sample: of its own class, if this is one
    of the largest classes, and otherwise of a class drawn from the largest ones.

    Example:
        >>> import torch
        >>> memory = HUS(4, generator=torch.Generator().manual_seed(0))
        >>> for label in [0, 0, 0, 0, 0, 0, 1, 1]:
        ...     memory.add(torch.zeros(1), label)
        >>> sorted(memory.labels())
        [0, 0, 1, 1]
    """

    def _place(self, label: int, entropy: float | None) -> int:
        if len(self) < self.capacity:
            return len(self)
        held = Counter(self._labels)
        most = max(held.values())
        largest = [other for other, count in held.items() if count == most]
        victim = label if label in largest else self._one_of(largest)
        return self._one_of([slot for slot, other in enumerate(self._labels) if other == victim])

    def _one_of(self, choices: list[int]) -> int:
        return choices[int(self._uniform() * len(choices))]
