"""Source: the model without adaptation."""

from __future__ import annotations

from torch import Tensor, nn

from .backbone import Backbone, Output
from .method import Method


class Source(Method):
    """Answer with the source model and learn nothing: the baseline that adaptation has to beat.

    On a model trained with IABN this is the paper's ablation "IABN"; on one converted after training it is "IABN*".

    Example:
        >>> import torch
        >>> method = Source(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)))
        >>> method(torch.ones(3, 1, 2, 2)).shape
        torch.Size([3, 2])
    """

    title = "Source"
    batch_free = True
    keeps = "nothing"

    def __init__(self, model: nn.Module | Backbone, *, output: Output = None) -> None:
        super().__init__(model, output=output)

    def forward(self, x: Tensor) -> Tensor:
        """Answer a batch."""
        return self.all_finite(self.predict(x))
