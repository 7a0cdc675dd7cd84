"""PL: learn from the model's own hard predictions."""

from __future__ import annotations

from torch import Tensor

from .batch import BatchMethod
from .objectives import pseudo_label_loss


class PL(BatchMethod):
    """Normalise with the statistics of the batch, and take one Adam step per batch towards the predicted labels."""

    title = "PL"
    citation = "Lee, ICML workshop 2013"

    def objective(self, logits: Tensor) -> Tensor:
        """Cross-entropy to the predicted labels."""
        return pseudo_label_loss(logits)
