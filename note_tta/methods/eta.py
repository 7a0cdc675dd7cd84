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

    A sample is reliable if its entropy is below `margin` · ln(classes). It is redundant if its prediction is similar
    to the moving average of the predictions that the method learned from. The remaining samples are weighted by their
    confidence. If none remain, the batch is answered, and its step is skipped and counted.

    The defaults are the authors' values for ImageNet-C. Other authors use `lr=1e-3, optimizer="adam",
    redundancy=0.4` on CIFAR10-C, and `redundancy=0.1` on CIFAR100-C. On a class-sorted stream every correct
    prediction is similar to the average, so only wrong predictions remain, if any.

    Args:
        model: A model with norm layers.
        lr: The learning rate.
        optimizer: "adam", or "sgd" (momentum 0.9).
        margin: The largest entropy of a reliable sample, as a share of ln(classes).
        redundancy: A sample is redundant if the cosine of its prediction and the average is at least this (ε in the
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
        """Take one step on the reliable samples that are not redundant."""
        limit = self.margin * math.log(logits.shape[1])
        entropy = entropies(logits)
        p = widened(logits.detach()).softmax(dim=1)
        average = self.learned_from.like(p)
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
        """Return a further term of the loss; here, none."""
        return 0.0

    def go_back(self) -> None:
        """Return to the source, and discard the average too."""
        super().go_back()
        self.learned_from.value = None
