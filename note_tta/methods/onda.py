"""ONDA: running statistics that follow the stream."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..memory import FIFO
from .interval import IntervalMethod
from .norm import moving_statistics, norm_layers, running_statistics


class ONDA(IntervalMethod):
    """Answer with running statistics, which move towards those of every ten samples (Mancini et al., 2018).

    Args:
        model: A model with BatchNorm layers.
        interval: Samples between two moves, and the samples a move looks at.
        momentum: How far the statistics move.
        reach: As in `NOTE`: samples of a far larger amplitude than the source's are not learned from.
    """

    def __init__(
        self, model: nn.Module, *, interval: int = 10, momentum: float = 0.1, reach: float = 5.0
    ) -> None:
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be in [0, 1], got {momentum}")
        self._layers = norm_layers(model, running=True)
        self.momentum = momentum
        adapted = running_statistics(self._layers)
        super().__init__(model, self._layers, adapted, FIFO(interval), interval, reach)

    def learn(self, x: Tensor) -> None:
        """Move the running statistics towards those of the latest samples."""
        if len(x) > 1:
            with torch.no_grad(), moving_statistics(self._layers, self.momentum):
                self.model(x)
