"""BN Stats: normalise with the statistics of the test batch instead of the source's."""

from __future__ import annotations

from torch import Tensor, nn

from .backbone import Backbone, Output
from .method import Method
from .norm import running_statistics, use_batch_statistics


class BNStats(Method):
    """Normalise each batch with its own statistics; nothing is learned.

    It is strong on large, class-balanced batches. On a correlated stream a batch holds few classes, and
    normalisation removes not only the drift but also the differences between the classes. `model(x)` uses the
    running statistics and answers differently.
    """

    title = "BN Stats"
    citation = "Nado et al., 2020; Schneider et al., NeurIPS 2020"
    needs_norm = "batch"
    keeps = "nothing"

    def __init__(self, model: nn.Module | Backbone, *, output: Output = None) -> None:
        super().__init__(model, output=output)
        running_statistics(self.backbone.module)

    def answering_module(self) -> nn.Module:
        """Make the module that answers: the model, with the statistics of the batch."""
        return use_batch_statistics(self.backbone.build(self.tensors))

    def forward(self, x: Tensor) -> Tensor:
        """Answer a batch."""
        return self.all_finite(self.predict(x))
