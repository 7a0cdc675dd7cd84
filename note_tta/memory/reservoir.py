"""A uniform sample of a stream."""

from __future__ import annotations

from typing import Any

import torch

from .memory import Memory


class Reservoir(Memory):
    """A uniform sample of all samples offered so far (reservoir sampling).

    Example:
        >>> memory = Reservoir(2, generator=torch.Generator().manual_seed(0))
        >>> for value in range(100):
        ...     memory.add(torch.tensor([float(value)]), label=0)
        >>> len(memory)
        2
    """

    def __init__(
        self,
        capacity: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(capacity, generator, device)
        self._seen = 0

    def _place(self, label: int, entropy: float | None) -> int | None:
        self._seen += 1
        if len(self) < self.capacity:
            return len(self)
        slot = int(self._uniform() * self._seen)
        return slot if slot < self.capacity else None

    def clear(self) -> None:
        """Discard the samples and the number of samples offered."""
        super().clear()
        self._seen = 0

    def state_dict(self) -> dict[str, Any]:
        """Return samples, labels, the number of samples offered, and the generator's state."""
        return super().state_dict() | {"seen": self._seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state."""
        if type(state.get("seen")) is not int or state["seen"] < len(state.get("labels", [])):
            raise ValueError(f"not a state of Reservoir: seen is {state.get('seen')!r:.40}")
        super().load_state_dict(state)
        self._seen = state["seen"]
