"""SAR: sharpness-aware steps on reliable samples, and back to the source where the model collapses."""

from __future__ import annotations

import math

from torch import Tensor, nn

from .backbone import Backbone, Output
from .batch import BatchMethod
from .draft import Draft
from .objectives import entropies
from .parts import Average, Count
from .selection import AffineOutside, Skip, last_layers, skipped
from .settings import check_rate, check_share
from .sharpness import uphill


class SAR(BatchMethod):
    """Sharpness-Aware and Reliable entropy minimisation, made for GroupNorm and LayerNorm.

    One step per batch. Samples whose entropy is below `margin` · ln(classes) count. The gradient is taken a
    little uphill of where the parameters are, on those of them that are below it there too; where none is,
    the step is skipped and counted. A moving average of that entropy that falls below `reset_below` ·
    ln(classes) tells of a collapse: then weights and optimizer are the source's again
    (`method.resets.value` counts that).

    The paper's bound of the average is 0.2, for 1,000 classes; as a share of ln(classes) it means the same
    for fewer, where a good model would lie below 0.2. After a reset the average starts anew; in the
    authors' code it keeps its old value, so that it may reset several batches in a row. Their step with an
    empty selection still moves the weights by momentum.

    The defaults are the authors' for ResNets at batches of 32 and more. For smaller ones they scale `lr` by
    B/32, for a ViT-B they take 1e-3 · B/64.

    Args:
        model: A model with norm layers.
        lr: The learning rate.
        optimizer: "sgd" (momentum 0.9), or "adam".
        margin: The entropy up to which a sample is reliable, as a share of ln(classes); `math.inf` takes all.
        rho: How far uphill the second gradient is taken.
        reset_below: The average entropy that counts as collapse, as a share of ln(classes); 0 switches it
            off.
        skip: Which norm layers keep their affine parameters, by name; `method.skipped` tells what it matched.
        output: See `Method`.
    """

    title = "SAR"
    citation = "Niu et al., ICLR 2023"
    passes = "2 / 2"
    keeps = "affine parameters, momentum, mean entropy"
    licence = "BSD-3-Clause"

    def __init__(
        self,
        model: nn.Module | Backbone,
        *,
        lr: float = 2.5e-4,
        optimizer: str = "sgd",
        margin: float = 0.4,
        rho: float = 0.05,
        reset_below: float = 0.029,
        skip: Skip = last_layers,
        output: Output = None,
    ) -> None:
        if not margin > 0:
            raise ValueError(f"margin must be greater than 0, got {margin}")
        check_rate("rho", rho, zero=True)
        check_share("reset_below", reset_below)
        super().__init__(model, lr=lr, optimizer=optimizer, adapts=AffineOutside(skip), output=output)
        self.margin, self.rho, self.reset_below = margin, rho, reset_below
        self.skip, self.skipped = skip, skipped(self.backbone, skip)
        self.average = self.part("average", Average(keep=0.9))
        self.resets = self.part("resets", Count())

    def learn(self, draft: Draft, x: Tensor, logits: Tensor) -> bool:
        """One sharpness-aware step on the samples that are reliable, before and after going uphill."""
        most = math.log(logits.shape[1])
        entropy = entropies(logits)
        reliable = entropy.detach() < self.margin * most
        if not reliable.any():
            return False
        draft.backward(entropy[reliable].mean())
        with uphill(draft.learned, self.rho):
            above = entropies(draft.predict(x))[reliable]
            still = above.detach() < self.margin * most
            if not still.any():
                return False
            loss = above[still].mean()
            draft.backward(loss)
        draft.step()
        self.average.take(loss.detach() / most)
        return True

    def take_over(self, draft: Draft) -> bool:
        """Let the step take effect, or go back to the source where the model has collapsed."""
        taken = super().take_over(draft)
        if self.average.value is not None and self.average.value < self.reset_below:
            self.go_back()
            self.average.value = None
            self.resets.value += 1
        return taken
