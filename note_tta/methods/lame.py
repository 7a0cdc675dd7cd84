"""LAME: correct the predictions of a batch, not the model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .backbone import Backbone, Output
from .method import Method
from .norm import nothing
from .settings import check_count


class LAME(Method):
    """Laplacian Adjusted Maximum-likelihood Estimation.

    The model is left alone. The class assignments of a batch are moved so that samples with near features
    agree: the fixed point of z ∝ p · exp(W z), with p the model's probabilities and W the affinity of
    `neighbours` nearest neighbours among L2-normalised features.

    Args:
        model: A model that ends in a linear classifier.
        neighbours: How many nearest neighbours a sample is tied to.
        max_steps: The most steps towards the fixed point.
        classifier: The name of the module whose input are the features; None is the last `nn.Linear`.
        symmetric: Let each tie count half in both directions. LAME's own code does not (docs/differences.md).
        output: See `Method`.

    A call returns finite log-assignments in the place of logits.
    """

    title = "LAME"
    citation = "Boudiaf et al., CVPR 2022"

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
        super().__init__(model, nothing, output=output)
        self.neighbours, self.max_steps, self.symmetric = neighbours, max_steps, symmetric
        self.classifier = last_linear(self.backbone.module) if classifier is None else classifier
        if self.classifier not in dict(self.backbone.module.named_modules()):
            raise ValueError(f"the model has no module {self.classifier!r} to take features from")
        self._features: Tensor | None = None

    def answering_module(self) -> nn.Module:
        """The model, with a hook that keeps the features."""
        module = super().answering_module()
        module.get_submodule(self.classifier).register_forward_pre_hook(self._catch)
        return module

    def forward(self, x: Tensor) -> Tensor:
        """Answer a batch with its corrected assignments."""
        self._features = None
        log_p = self.all_finite(self.predict(x)).float().log_softmax(dim=1)
        features, self._features = self._features, None
        if features is None or len(features) != len(x):
            raise ValueError(f"module {self.classifier!r} was not called with one row of features per sample")
        affinity = nearest_neighbours(features, self.neighbours, symmetric=self.symmetric)
        return assign(log_p, affinity, self.max_steps)

    def _catch(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._features = inputs[0].detach().flatten(1)


def last_linear(model: nn.Module) -> str:
    """The name of the last `nn.Linear` of a model."""
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not names:
        raise ValueError(
            f"{type(model).__name__} has no nn.Linear: name the module after the features with classifier=…"
        )
    return str(names[-1])


def nearest_neighbours(features: Tensor, neighbours: int, *, symmetric: bool = False) -> Tensor:
    """The affinity `[B, B]`: one tie from each sample to each of its nearest neighbours."""
    features = nn.functional.normalize(features.float(), dim=1)
    distance = torch.cdist(features, features).fill_diagonal_(torch.inf)
    nearest = distance.topk(min(neighbours, len(features) - 1), largest=False).indices
    ties = torch.zeros_like(distance).scatter_(1, nearest, 1.0)
    return (ties + ties.T) / 2 if symmetric else ties


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
