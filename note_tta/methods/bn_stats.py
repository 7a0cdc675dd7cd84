"""BN Stats: the statistics of the test batch in the place of the source's."""

from __future__ import annotations

from torch import Tensor, nn

from .base import Method
from .norm import batch_statistics, norm_layers


class BNStats(Method):
    """Normalise each batch with its own statistics; nothing is learned (Nado et al.; Schneider et al., 2020).

    Strong on large, class-balanced batches. On a correlated stream the batch's statistics carry the classes
    that happen to be in it, and are normalised away with the drift.
    """

    def __init__(self, model: nn.Module) -> None:
        self._by_batch = batch_statistics(norm_layers(model))
        super().__init__(model)

    def forward(self, x: Tensor) -> Tensor:
        """Answer a batch."""
        with self._by_batch:
            return self._finite(self._predict(x))
