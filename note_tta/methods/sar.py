"""SAR: sharpness-aware steps on reliable samples, and a return to the source when the model collapses."""

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

    It takes one step per batch, on the samples whose entropy is below `margin` · ln(classes). The gradient is taken a
    little uphill of the current parameters, on those samples that are below the bound there too. If there are none,
    the step is skipped and counted. If the moving average of this entropy falls below `reset_below` · ln(classes),
    the model has collapsed. Then the weights and the optimizer are reset to the source; `method.resets.value` counts
    these resets.

    In the paper the bound of the average is 0.2, for 1,000 classes. With fewer classes a good model may be below
    0.2, so here the bound is a fraction of ln(classes). After a reset the average starts again. In the authors' code
    it keeps its old value, so the model may be reset in several batches in a row. If no sample is selected, their
    optimizer still moves the weights by momentum.

    The defaults are the authors' values for ResNets at a batch size of 32 or more. For smaller batches they scale
    `lr` by B/32; for a ViT-B they use 1e-3 · B/64.

    Args:
        model: A model with norm layers.
        lr: The learning rate.
        optimizer: "sgd" (momentum 0.9), or "adam".
        margin: The largest entropy of a reliable sample, as a fraction of ln(classes); `math.inf` selects all.
        rho: How far uphill the second gradient is taken.
        reset_below: The average entropy that counts as a collapse, as a fraction of ln(classes); 0 turns resets off.
        skip: Says by name which norm layers are not adapted; `method.skipped` lists them.
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
        check_rate("margin", margin, infinite=True)
        check_rate("rho", rho, zero=True)
        check_share("reset_below", reset_below)
        super().__init__(model, lr=lr, optimizer=optimizer, adapts=AffineOutside(skip), output=output)
        self.margin, self.rho, self.reset_below = margin, rho, reset_below
        self.skip, self.skipped = skip, skipped(self.backbone, skip)
        self.average = self.part("average", Average(keep=0.9, ndim=0))
        self.resets = self.part("resets", Count())

    def learn(self, draft: Draft, x: Tensor, logits: Tensor) -> bool:
        """Take one sharpness-aware step on the samples that are reliable both before and after going uphill."""
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
        """Let the step take effect; return to the source if the model has collapsed."""
        taken = super().take_over(draft)
        if self.average.value is not None and self.average.value < self.reset_below:
            self.go_back()
            self.average.value = None
            self.resets.value += 1
        return taken
