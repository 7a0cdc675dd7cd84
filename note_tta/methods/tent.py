"""TENT: minimise the entropy of each batch's predictions."""

from __future__ import annotations

from torch import Tensor

from .batch import BatchMethod
from .objectives import entropy


class TENT(BatchMethod):
    """Test-batch statistics, and one Adam step per batch on the affine parameters.

    The paper's values are the defaults; on ImageNet its authors' code has `lr=0.00025, optimizer="sgd"`.
    """

    title = "TENT"
    citation = "Wang et al., ICLR 2021"
    licence = "MIT"

    def objective(self, logits: Tensor) -> Tensor:
        """Entropy of the predictions."""
        return entropy(logits)
