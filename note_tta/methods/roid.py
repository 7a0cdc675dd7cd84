"""ROID: weighted losses, consistency with a random view, and weights that are pulled back to the source."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from ..nn.functional import widened
from .augment import random_view
from .backbone import Backbone, Output
from .batch import BatchMethod
from .draft import Draft
from .images import check_images, refuse_other_models
from .objectives import entropies, soft_cross_entropies, soft_likelihood_ratios
from .parts import Average, Randomness
from .settings import check_rate, check_share


class ROID(BatchMethod):
    """One step per batch on certain and diverse samples, and a small step back to the source.

    Samples whose prediction is similar to the moving class prior are left out. Of the others, certain samples and
    samples that differ from the prior get more weight. The loss is the soft likelihood ratio plus the agreement with
    a random view. After the step the weights move by 1 − `keep` towards the source's. The answer is multiplied by
    the batch's smoothed class prior. As in the authors' code, this multiplies the logits, not the probabilities, so
    confidences have no meaning afterwards; `prior_correction=False` turns it off.

    If all predictions of a batch are equal, as in a batch of one, there are no weights. Then the step is skipped and
    counted. The authors divide the losses by the nominal batch size. We divide by the actual batch size, which
    differs only for a smaller last batch.

    The defaults are the authors' values for ImageNet-C. On CIFAR they use `lr=1e-3, optimizer="adam"` and batches of
    200.

    Args:
        model: A model with norm layers that takes images in [0, 1] and normalises them itself.
        lr: The learning rate.
        optimizer: "sgd" (momentum 0.9, Nesterov), or "adam".
        keep: How much of the weights is kept when they are pulled back to the source.
        temperature: Smaller values make the weights of samples differ more (τ in the paper).
        prior_correction: Multiply the answers by the batch's class prior.
        generator: Source of randomness; None means a new generator with torch's default seed.
        output: See `Method`.
    """

    title = "ROID"
    citation = "Marsden et al., WACV 2024"
    needs_images = True
    passes = "1.5 / 1.5"
    keeps = "affine parameters, momentum, class prior"
    licence = "MIT"

    def __init__(
        self,
        model: nn.Module | Backbone,
        *,
        lr: float = 2.5e-4,
        optimizer: str = "sgd",
        keep: float = 0.99,
        temperature: float = 1 / 3,
        prior_correction: bool = True,
        generator: torch.Generator | None = None,
        output: Output = None,
    ) -> None:
        check_share("keep", keep)
        check_rate("temperature", temperature)
        super().__init__(model, lr=lr, optimizer=optimizer, output=output)
        refuse_other_models(self.backbone.module, type(self).__name__)
        self.keep, self.temperature, self.prior_correction = keep, temperature, prior_correction
        self.prior = self.part("prior", Average(keep=0.9))
        self.random = self.part("random", Randomness(generator))

    @property
    def generator(self) -> torch.Generator:
        """The source of randomness."""
        return self.random.generator

    def make_optimizer(self, learned: list[Tensor]) -> Optimizer:
        """Make the optimizer of the affine parameters."""
        if self.optimizer == "sgd":
            return SGD(learned, lr=self.lr, momentum=0.9, nesterov=True)
        return super().make_optimizer(learned)

    def forward(self, x: Tensor) -> Tensor:
        """Answer a batch of images and learn from it."""
        check_images(x, self)
        return super().forward(x)

    def learn(self, draft: Draft, x: Tensor, logits: Tensor) -> bool:
        """Take one step on the weighted losses, and a small step back to the source."""
        p = widened(logits.detach()).softmax(dim=1)
        prior = self.prior.like(p)
        if prior is None:
            prior = torch.full_like(p[0], 1 / p.shape[1])
        weights = self._weights(logits.detach(), p, prior)
        if weights is None:
            self.prior.take(p.mean(dim=0), begin=prior)
            return False
        kept = weights > 0
        view = draft.predict(random_view(x[kept], self.generator, mirrored=True))
        own, weights = logits[kept], weights[kept]
        agreement = (soft_cross_entropies(own, view) + soft_cross_entropies(view, own)) / 2
        draft.step((weights * (soft_likelihood_ratios(own) + agreement)).sum() / len(x))
        self.draw_back(draft)
        self.prior.take(p.mean(dim=0), begin=prior)
        return True

    @torch.no_grad()
    def draw_back(self, draft: Draft) -> None:
        """Move the learned weights towards the source's."""
        for name in self.descent.shapes:
            draft.tensors[name].lerp_(self.backbone.source[name], 1 - self.keep)

    @torch.no_grad()
    def answer(self, logits: Tensor) -> Tensor:
        """Return the logits times the batch's class prior, which is smoothed more in smaller batches."""
        if not self.prior_correction:
            return logits
        batch, classes = logits.shape
        prior = widened(logits).softmax(dim=1).mean(dim=0)
        smoothing = max(1 / batch, 1 / classes) / prior.amax()
        return logits * ((prior + smoothing) / (1 + smoothing * classes)).to(logits.dtype)

    def _weights(self, logits: Tensor, p: Tensor, prior: Tensor) -> Tensor | None:
        """Return the weight of each sample, 0 to leave it out; None if all samples are equal."""
        diversity = scaled(1 - F.cosine_similarity(prior[None], p))
        certainty = scaled(-entropies(logits))
        if diversity is None or certainty is None:
            return None
        weights = torch.exp(diversity * certainty / self.temperature)
        return torch.where(diversity < diversity.mean(), 0.0, weights)


def scaled(values: Tensor) -> Tensor | None:
    """Scale values to [0, 1]; return None if all are equal.

    Example:
        >>> scaled(torch.tensor([2.0, 4.0, 3.0]))
        tensor([0.0000, 1.0000, 0.5000])
    """
    low, high = values.aminmax()
    return (values - low) / (high - low) if high > low else None
