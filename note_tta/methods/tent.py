"""TENT: minimise the entropy of each batch's predictions."""

from __future__ import annotations

from torch import Tensor

from .batch import BatchMethod
from .objectives import entropy


class TENT(BatchMethod):
    """Normalise with the statistics of the batch, and take one Adam step per batch on the affine parameters.

    The step lowers the entropy of the predictions. The defaults are the paper's values; on ImageNet the authors' code
    has `lr=0.00025, optimizer="sgd"`.
    """

    title = "TENT"
    citation = "Wang et al., ICLR 2021"
    licence = "MIT"

    def objective(self, logits: Tensor) -> Tensor:
        """Entropy of the predictions."""
        return entropy(logits)
