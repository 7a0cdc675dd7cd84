"""ETA: learn from reliable samples that are not redundant."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..nn.functional import widened
from .backbone import Backbone, Output
from .batch import BatchMethod
from .draft import Draft
from .objectives import entropies
from .parts import Average
from .settings import check_rate


class ETA(BatchMethod):
    """Efficient Test-time Adaptation: one step per batch, on its reliable and non-redundant samples.

    A sample is reliable where its entropy is below `margin` · ln(classes), and redundant where its
    prediction points the way of the moving average of those learned from. What remains is weighted by how
    sure it is. A batch of which nothing remains is answered, and its step is skipped and counted.

    The defaults are the authors' for ImageNet-C. On CIFAR10-C others run it with `lr=1e-3, optimizer="adam",
    redundancy=0.4`, on CIFAR100-C with `redundancy=0.1`. On a class-sorted stream every sample is like the
    average, so that nothing, or only the errors, remain.

    Args:
        model: A model with norm layers.
        lr: The learning rate.
        optimizer: "adam", or "sgd" (momentum 0.9).
        margin: The entropy up to which a sample is reliable, as a share of ln(classes).
        redundancy: The cosine between prediction and average from which on a sample is redundant (ε in the
            paper).
        output: See `Method`.
    """

    title = "ETA"
    citation = "Niu et al., ICML 2022"
    keeps = "affine parameters, momentum, mean prediction"
    licence = "MIT"

    def __init__(
        self,
        model: nn.Module | Backbone,
        *,
        lr: float = 2.5e-4,
        optimizer: str = "sgd",
        margin: float = 0.4,
        redundancy: float = 0.05,
        output: Output = None,
    ) -> None:
        check_rate("margin", margin)
        check_rate("redundancy", redundancy)
        super().__init__(model, lr=lr, optimizer=optimizer, output=output)
        self.margin, self.redundancy = margin, redundancy
        self.learned_from = self.part("learned_from", Average(keep=0.9))

    def learn(self, draft: Draft, x: Tensor, logits: Tensor) -> bool:
        """One step on the samples that are worth it."""
        limit = self.margin * math.log(logits.shape[1])
        entropy = entropies(logits)
        p, average = widened(logits.detach()).softmax(dim=1), self.learned_from.value
        keep = entropy.detach() < limit
        if average is not None:
            keep &= F.cosine_similarity(average[None], p).abs() < self.redundancy
        if not keep.any():
            return False
        weights = torch.exp(limit - entropy.detach())
        draft.step((weights * entropy)[keep].mean() + self.penalty(draft))
        self.learned_from.take(p[keep].mean(dim=0))
        return True

    def penalty(self, draft: Draft) -> Tensor | float:
        """What is added to the loss; nothing here."""
        return 0.0

    def go_back(self) -> None:
        """Forget what was learned from, too."""
        super().go_back()
        self.learned_from.value = None
