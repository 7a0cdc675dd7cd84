"""Methods that answer with running statistics and update every few samples: batch-free by construction."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from ..memory import Memory
from .base import Method, Stateful


class IntervalMethod(Method):
    """Answer samples as they come; after every `interval`-th accepted one, learn from a memory of them.

    Samples between two updates are independent of each other and are computed together, so the boundaries of
    the caller's batches make no difference. The prediction that is returned is the one the memory stores.

    Args:
        model: A model with BatchNorm layers that keep running statistics.
        adapted: The tensors that an update may change, by name.
        memory: Where samples wait for the update.
        interval: Accepted samples between two updates.
        parts: What else has a state, by name.
    """

    def __init__(
        self,
        model: nn.Module,
        adapted: dict[str, Tensor],
        memory: Memory,
        interval: int,
        parts: dict[str, Stateful] | None = None,
    ) -> None:
        if interval < 1:
            raise ValueError(f"interval must be at least 1, got {interval}")
        self.memory = memory
        self.interval = interval
        super().__init__(model, adapted, {"memory": memory} | (parts or {}))

    @abstractmethod
    def learn(self, x: Tensor) -> None:
        """One update from the memory's samples; undone by the caller where it comes out non-finite."""

    def forward(self, x: Tensor) -> Tensor:
        """Answer samples, learning wherever an interval ends."""
        held = self.memory.sample_shape
        if held is not None and held != tuple(x.shape[1:]):
            raise ValueError(
                f"the memory holds samples of shape {held}, got {tuple(x.shape[1:])}: call reset() first"
            )
        logits = []
        while len(x):
            room = self.interval - self._progress
            logits.append(self._answer_and_store(x[:room]))
            x = x[room:]
            if self._progress == self.interval:
                self._progress = 0
                self._update()
        return torch.cat(logits)

    def _answer_and_store(self, x: Tensor) -> Tensor:
        logits = self._predict(x)
        accepted = torch.isfinite(logits).all(dim=1).tolist()
        for sample, label, good in zip(x, logits.argmax(dim=1).tolist(), accepted, strict=True):
            if good:
                self.memory.add(sample, label)
        self._progress += sum(accepted)
        if not all(accepted):
            self.counters["rejected_samples"] += len(accepted) - sum(accepted)
            logits[~torch.tensor(accepted, device=logits.device)] = torch.nan
        return logits

    def _update(self) -> None:
        x = self.memory.inputs().to(next(iter(self._adapted.values())).device)
        if not self._attempt(lambda: self.learn(x)):
            self.memory.clear()
