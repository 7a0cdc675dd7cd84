"""TENT: minimise the entropy of each batch's predictions."""

from __future__ import annotations

from torch import Tensor

from .batch_learner import BatchLearner
from .objectives import entropy


class TENT(BatchLearner):
    """Test-batch statistics, and one Adam step a batch on the affine parameters (Wang et al., 2021).

    The paper's values are the defaults; on ImageNet its authors' code has `lr=0.00025, optimizer="sgd"`.
    """

    def loss(self, logits: Tensor) -> Tensor:
        """Entropy of the predictions."""
        return entropy(logits)
