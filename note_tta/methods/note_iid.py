"""NOTE*: NOTE for streams that are known to be i.i.d."""

from __future__ import annotations

from torch import Tensor

from .batch_learner import BatchLearner
from .objectives import entropy


class NOTEIID(BatchLearner):
    """The paper's NOTE*: IABN over test-batch statistics, learning from each batch, without a memory.

    Where samples are known to be i.i.d. the batch is as good as PBRS's memory and fresher, and the learning
    rate can be ten times NOTE's. Give it a model with IABN (`convert_iabn`).
    """

    def loss(self, logits: Tensor) -> Tensor:
        """Entropy of the predictions."""
        return entropy(logits)
