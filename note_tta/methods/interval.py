"""Methods that answer with running statistics and update every few samples: batch-free by construction."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from ..memory import Memory
from .base import Method, Stateful
from .norm import NormLayers
from .reach import Reach


class IntervalMethod(Method):
    """Answer samples as they come; after every `interval`-th accepted one, learn from a memory of them.

    Samples between two updates are independent of each other and are computed together, so the boundaries of
    the caller's batches make no difference. The prediction that is returned is the one the memory stores.

    Args:
        model: A model with BatchNorm layers that keep running statistics.
        layers: Those layers, by name.
        adapted: The tensors that an update may change, by name.
        memory: Where samples wait for the update.
        interval: Accepted samples between two updates.
        reach: A sample of more than so many times the source's amplitude at the first norm layer is answered
            and counted as rejected, but not learned from.
        parts: What else has a state, by name.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: NormLayers,
        adapted: dict[str, Tensor],
        memory: Memory,
        interval: int,
        reach: float,
        parts: dict[str, Stateful] | None = None,
    ) -> None:
        if interval < 1:
            raise ValueError(f"interval must be at least 1, got {interval}")
        self.memory = memory
        self.interval = interval
        self._reach = Reach(layers, reach)
        super().__init__(model, adapted, {"memory": memory} | (parts or {}))

    @abstractmethod
    def learn(self, x: Tensor) -> None:
        """One update from the memory's samples; undone by the caller where it comes out non-finite."""

    def forward(self, x: Tensor) -> Tensor:
        """Answer samples, learning wherever an interval ends."""
        held = self.memory.sample_shape
        if held is not None and held != tuple(x.shape[1:]):
            raise ValueError(
                f"the memory holds samples of shape {held}, got {tuple(x.shape[1:])}: "
                "a stream keeps one shape"
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
        with self._reach.watch() as near:
            logits = self._predict(x)
        finite = torch.isfinite(logits).all(dim=1)
        accepted = (finite & near[0] if near else finite).tolist()
        for sample, label, good in zip(x, logits.argmax(dim=1).tolist(), accepted, strict=True):
            if good:
                self.memory.add(sample, label)
        self._progress += sum(accepted)
        if not all(accepted):
            self.counters["rejected_samples"] += len(accepted) - sum(accepted)
            logits[~finite] = torch.nan
        return logits

    def _check_state(self, state: dict[str, Any]) -> None:
        super()._check_state(state)
        if not isinstance(state["progress"], int) or not 0 <= state["progress"] < self.interval:
            raise ValueError(
                f"the state is {state['progress']!r:.40} samples into an interval, "
                f"which has {self.interval} here: give the method the interval it was saved with"
            )

    def _update(self) -> None:
        x = self.memory.inputs().to(next(iter(self._adapted.values())))
        if not self._attempt(lambda: self.learn(x)):
            self.memory.clear()
