"""EATA: ETA that holds on to the parameters that matter for the source."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .backbone import Backbone
from .draft import Draft
from .eta import ETA
from .settings import check_rate
from .source_statistics import Source, fisher_information, statistics_of


class EATA(ETA):
    """Efficient Anti-forgetting Test-time Adaptation: ETA with important parameters held back.

    The loss has one more term, `weight` · Σ F (θ − θ_source)². F, the Fisher information, is the mean over
    source batches of the squared gradient of the cross-entropy to the model's own predictions. So, as in the
    authors' code, it depends on the batch size. They use 2,000 clean images in batches of 64.

    The defaults are the authors' for ImageNet-C. On CIFAR others run it with `weight=1` and ETA's other
    settings.

    Args:
        model: A model with norm layers.
        source: Batches of clean source samples (a `DataLoader` will do; labels are ignored), or the path of
            a file that `method.source.save(path)` wrote.
        weight: How strongly parameters are held back (β in the paper).
        **settings: See `ETA`.
    """

    title = "EATA"
    needs_source = True
    keeps = "affine parameters and their Fisher weights, momentum, mean prediction"

    def __init__(
        self,
        model: nn.Module | Backbone,
        source: Source | None = None,
        *,
        weight: float = 2000.0,
        **settings: Any,
    ) -> None:
        check_rate("weight", weight, zero=True)
        super().__init__(model, **settings)
        self.weight = weight
        self.source = statistics_of(
            source,
            "fisher",
            self.backbone,
            partial(fisher_information, self.backbone, list(self.descent.shapes)),
            "EATA needs source=, batches of source samples: ETA does without",
        )

    def penalty(self, draft: Draft) -> Tensor:
        """How far the parameters are from the source's, weighted by their importance."""
        held = [
            (fisher.to(draft.tensors[name]) * (draft.tensors[name] - self.backbone.source[name]) ** 2).sum()
            for name, fisher in self.source.tensors.items()
        ]
        return self.weight * torch.stack(held).sum()
