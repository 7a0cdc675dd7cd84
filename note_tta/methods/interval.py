"""Methods that answer with running statistics and update every few samples: batch-free by construction."""

from __future__ import annotations

import warnings
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
        if not isinstance(interval, int):
            raise TypeError(f"interval must be an int, got {type(interval).__name__}")
        if interval < 1:
            raise ValueError(f"interval must be at least 1, got {interval}")
        if not isinstance(memory, Memory):
            raise TypeError(f"memory must be a Memory such as PBRS(64), got {type(memory).__name__}")
        self.memory = memory
        self.interval = interval
        self._reach = Reach(layers, reach)
        self._far, self._warned = 0, False
        own: dict[str, Stateful] = {"memory": memory, "reach": self._reach}
        super().__init__(model, adapted, own | (parts or {}))

    @abstractmethod
    def learn(self, x: Tensor) -> None:
        """One update from the memory's samples; undone by the caller where it comes out non-finite."""

    def forward(self, x: Tensor) -> Tensor:
        """Answer samples, learning wherever an interval ends."""
        held = self.memory.sample_shape
        if held is not None and held != tuple(x.shape[1:]):
            hint = "x[None] is a batch of one" if held == tuple(x.shape) else "a stream keeps one shape"
            raise ValueError(f"the memory holds samples of shape {held}, got {tuple(x.shape[1:])}: {hint}")
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
        logits, near = self._reach.near(self._predict, x)
        finite = torch.isfinite(logits).all(dim=1)
        accepted = (finite & near).tolist()
        for sample, label, good in zip(x, logits.argmax(dim=1).tolist(), accepted, strict=True):
            if good:
                self.memory.add(sample, label)
        self._progress += sum(accepted)
        self._warn_where_all_are_far(near)
        if not all(accepted):
            self.counters["rejected_samples"] += len(accepted) - sum(accepted)
            logits[~finite] = torch.nan
        return logits

    def _warn_where_all_are_far(self, near: Tensor) -> None:
        """Say once that nothing is learned, when as many samples as an interval has were too far in a row."""
        self._far = self._far + len(near) if not near.any() else 0
        if self._far >= self.interval and not self._warned:
            self._warned = True
            warnings.warn(
                f"the last {self._far} samples were answered but not learned from: they are beyond `reach` "
                "times the amplitude that the model was trained on. Are they scaled as in training?",
                RuntimeWarning,
                stacklevel=7,
            )

    def _check_state(self, state: dict[str, Any]) -> None:
        super()._check_state(state)
        if not isinstance(state["progress"], int) or not 0 <= state["progress"] < self.interval:
            raise ValueError(
                f"the state is {state['progress']!r:.40} samples into an interval, "
                f"which has {self.interval} here: give the method the interval it was saved with"
            )

    def _load(self, state: dict[str, Any]) -> None:
        super()._load(state)
        if len(self.memory) and not self.memory.inputs().is_floating_point():
            raise ValueError(f"its memory holds samples of {self.memory.inputs().dtype}")

    def _update(self) -> None:
        inputs = self.memory.inputs()
        device = next(iter(self._adapted.values())).device
        x = inputs.to(device, self._dtype(inputs.dtype))
        if not self._attempt(lambda: self.learn(x)):
            self.memory.clear()
