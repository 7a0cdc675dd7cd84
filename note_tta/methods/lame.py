"""LAME: correct the predictions of a batch, not the model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .backbone import Backbone, Output
from .features import Listener, find_classifier
from .method import Method
from .settings import check_count

SETTLED = 1e-6
"""The assignments are at their fixed point when a step moves none of them by more than this."""


class LAME(Method):
    """Laplacian Adjusted Maximum-likelihood Estimation.

    The model does not change. The class assignments z of a batch are changed so that samples with similar features
    agree. They are the fixed point of z ∝ p · exp(W z), where p are the model's probabilities and W links each sample
    to its `neighbours` nearest neighbours, by L2-normalised features.

    A call returns finite log-assignments instead of logits.

    Args:
        model: A model that ends in a linear classifier.
        neighbours: How many nearest neighbours each sample is linked to.
        max_steps: The maximum number of steps towards the fixed point.
        classifier: The name of the module whose input is the features; None means the last `nn.Linear`.
        symmetric: Count each link half in both directions. The authors' code does not (docs/differences.md).
        output: See `Method`.
    """

    title = "LAME"
    citation = "Boudiaf et al., CVPR 2022"
    keeps = "nothing"
    licence = "CC BY-NC-SA 4.0"

    def __init__(
        self,
        model: nn.Module | Backbone,
        *,
        neighbours: int = 5,
        max_steps: int = 100,
        classifier: str | None = None,
        symmetric: bool = False,
        output: Output = None,
    ) -> None:
        check_count("neighbours", neighbours, 1)
        check_count("max_steps", max_steps, 1)
        super().__init__(model, output=output)
        self.neighbours, self.max_steps, self.symmetric = neighbours, max_steps, symmetric
        self.classifier = find_classifier(self.backbone.module, classifier)

    def forward(self, x: Tensor) -> Tensor:
        """Answer a batch with its corrected assignments."""
        module = self.made("answering", self.answering_module)
        listener: Listener = self.made("listener", lambda: Listener(module, self.classifier))
        log_p = self.all_finite(self.predict(x)).float().log_softmax(dim=1)
        affinity = nearest_neighbours(listener.take(len(x)), self.neighbours, symmetric=self.symmetric)
        return assign(log_p, affinity, self.max_steps)


def nearest_neighbours(features: Tensor, neighbours: int, *, symmetric: bool = False) -> Tensor:
    """Return the affinity `[B, B]`: one link from each sample to each of its nearest neighbours."""
    features = nn.functional.normalize(features.float(), dim=1)
    distance = torch.cdist(features, features).fill_diagonal_(torch.inf)
    nearest = distance.topk(min(neighbours, len(features) - 1), largest=False).indices
    ties = torch.zeros_like(distance).scatter_(1, nearest, 1.0)
    return (ties + ties.T) / 2 if symmetric else ties


def assign(log_p: Tensor, affinity: Tensor, max_steps: int) -> Tensor:
    """Return the log-assignments at the fixed point of z ∝ p · exp(W z), or after `max_steps`."""
    log_z, z = log_p, log_p.exp()
    for _ in range(max_steps):
        before = z
        log_z = (log_p + affinity @ z).log_softmax(dim=1)
        z = log_z.exp()
        if (z - before).abs().max() <= SETTLED:
            break
    return log_z.clamp_min(torch.finfo(log_z.dtype).min)
