"""LAME: correct the predictions of a batch, not the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .base import Method, checked_module
from .swap import SwappedForward


class LAME(Method):
    """Laplacian Adjusted Maximum-likelihood Estimation (Boudiaf et al., 2022).

    The model is left alone. The class assignments of a batch are moved so that samples with near features
    agree: the fixed point of z ∝ p · exp(W z), with p the model's probabilities and W the affinity of
    `neighbours` nearest neighbours among L2-normalised features.

    Args:
        model: A model that ends in a linear classifier.
        neighbours: How many nearest neighbours a sample is tied to.
        max_steps: The most steps towards the fixed point.
        classifier: The name of the module whose input are the features; None is the last `nn.Linear`.

    Returns of a call are finite log-assignments in the place of logits.
    """

    def __init__(
        self, model: nn.Module, *, neighbours: int = 5, max_steps: int = 100, classifier: str | None = None
    ) -> None:
        if neighbours < 1:
            raise ValueError(f"neighbours must be at least 1, got {neighbours}")
        if max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, got {max_steps}")
        self.neighbours = neighbours
        self.max_steps = max_steps
        self.classifier = last_linear(model) if classifier is None else classifier
        modules = dict(model.named_modules())
        if self.classifier not in modules:
            raise ValueError(f"the model has no module {self.classifier!r} to take features from")
        self._features: Tensor | None = None
        self._caught = SwappedForward({self.classifier: modules[self.classifier]}, self._catch)
        super().__init__(model)

    def forward(self, x: Tensor) -> Tensor:
        """Answer a batch with its corrected assignments."""
        self._features = None
        with self._caught:
            log_p = self._finite(self._predict(x)).log_softmax(dim=1)
        features, self._features = self._features, None
        if features is None or len(features) != len(x):
            raise ValueError(f"module {self.classifier!r} was not called with one row of features a sample")
        affinity = nearest_neighbours(features, self.neighbours).to(log_p.dtype)
        return assign(log_p, affinity, self.max_steps)

    def _catch(self, name: str, own: Callable[..., Tensor], x: Tensor, *more: Any, **keywords: Any) -> Tensor:
        self._features = x.detach().flatten(1)
        return own(x, *more, **keywords)


def last_linear(model: nn.Module) -> str:
    """The name of the last `nn.Linear` of a model."""
    names = [name for name, module in checked_module(model).named_modules() if isinstance(module, nn.Linear)]
    if not names:
        raise ValueError(
            f"{type(model).__name__} has no nn.Linear: name the module after the features with classifier=…"
        )
    return str(names[-1])


def nearest_neighbours(features: Tensor, neighbours: int) -> Tensor:
    """Symmetric affinity `[B, B]`: half a tie for each nearest neighbour, in each direction."""
    features = nn.functional.normalize(features.float(), dim=1)
    distance = torch.cdist(features, features).fill_diagonal_(torch.inf)
    nearest = distance.topk(min(neighbours, len(features) - 1), largest=False).indices
    ties = torch.zeros_like(distance).scatter_(1, nearest, 1.0)
    return (ties + ties.T) / 2


def assign(log_p: Tensor, affinity: Tensor, max_steps: int) -> Tensor:
    """Log-assignments at the fixed point of z ∝ p · exp(W z), or where the energy stops falling."""
    log_z, energy = log_p, torch.inf
    for _ in range(max_steps):
        pull = affinity @ log_z.exp()
        candidate = (log_p + pull).log_softmax(dim=1)
        z = candidate.exp()
        now = (z * (candidate - log_p)).sum() - (z * (affinity @ z)).sum() / 2
        if not now < energy:
            break
        log_z, energy = candidate, float(now)
    return log_z.clamp_min(torch.finfo(log_z.dtype).min)
