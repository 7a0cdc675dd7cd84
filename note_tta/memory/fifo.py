"""A memory of the latest samples."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .memory import Memory


class FIFO(Memory):
    """The latest `capacity` samples, oldest first.

    Example:
        >>> memory = FIFO(2)
        >>> for value in range(3):
        ...     memory.add(torch.tensor([float(value)]), label=value)
        >>> memory.labels(), memory.inputs().tolist()
        ([1, 2], [[1.0], [2.0]])
    """

    def __init__(self, capacity: int, device: torch.device | str | None = None) -> None:
        super().__init__(capacity, device=device)
        self._oldest = 0

    def _place(self, label: int, entropy: float | None) -> int:
        if len(self) < self.capacity:
            return len(self)
        slot, self._oldest = self._oldest, (self._oldest + 1) % self.capacity
        return slot

    def labels(self) -> list[int]:
        """Return the labels, oldest first."""
        return self._labels[self._oldest :] + self._labels[: self._oldest]

    def _held(self) -> Tensor:
        return super()._held().roll(-self._oldest, 0) if self._oldest else super()._held()

    def clear(self) -> None:
        """Discard the samples."""
        super().clear()
        self._oldest = 0

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state."""
        super().load_state_dict(state)
        self._oldest = 0
