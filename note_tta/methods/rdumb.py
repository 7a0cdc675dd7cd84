"""RDumb: ETA that returns to the source at fixed intervals."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .backbone import Backbone
from .eta import ETA
from .parts import Count
from .settings import check_count


class RDumb(ETA):
    """ETA that starts again after every `every` samples: a baseline that methods for long streams have to beat.

    After the batch that completes `every` samples, the weights, the optimizer and ETA's average are reset. The paper
    resets every 1,000 batches of 64. The defaults are for ImageNet-C. With them, nearly every batch of a correlated
    CIFAR10-C stream is redundant, and its step is skipped. `ETA` names settings for CIFAR.

    Args:
        model: A model with norm layers.
        every: The number of samples between two resets.
        **settings: See `ETA`.
    """

    title = "RDumb"
    citation = "Press et al., NeurIPS 2023"
    licence = "none given"

    def __init__(self, model: nn.Module | Backbone, *, every: int = 64_000, **settings: Any) -> None:
        check_count("every", every, 1)
        super().__init__(model, **settings)
        self.every = every
        self.since_restart = self.part("since_restart", Count())

    def forward(self, x: Tensor) -> Tensor:
        """Answer a batch and learn from it; reset if it completes `every` samples."""
        logits = super().forward(x)
        if not self.paused:
            self.since_restart.value += len(x)
            if self.since_restart.value >= self.every:
                self.go_back()
                self.since_restart.value = 0
        return logits
