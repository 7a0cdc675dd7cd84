"""AETTA (Lee et al., CVPR 2024): the error of an adapting model, estimated by how dropout changes its answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

PASSES = 10
RATE = 0.4
"""Dropout rate; the paper's for CIFAR10-C."""
SHARPNESS = 3
"""The power with which a small entropy of the mean answer raises the estimate."""
KEEP = 0.6
"""How much of the old estimate is kept at each batch."""


class AETTA:
    """An estimate of the error, for comparison.

    Args:
        model: The adapted model, in eval mode.
        stages: Names of the modules whose outputs are dropped from, element by element.
    """

    def __init__(self, model: nn.Module, stages: Sequence[str]) -> None:
        self.model, self.stages = model, [model.get_submodule(name) for name in stages]
        self.generator = torch.Generator().manual_seed(0)
        self.error: float | None = None

    @torch.no_grad()
    def add(self, x: Tensor, logits: Tensor) -> None:
        """Take in a batch and the answers that were given to it."""
        hooks = [stage.register_forward_hook(self._drop) for stage in self.stages]
        try:
            dropped = [self.model(x) for _ in range(PASSES)]
        finally:
            for hook in hooks:
                hook.remove()
        answers = logits.argmax(1)
        differ = float(torch.stack([each.argmax(1) != answers for each in dropped]).float().mean())
        mean = torch.stack(dropped).softmax(2).mean((0, 1))
        classes = logits.shape[1]
        entropy = -float((mean * (mean + 1e-6).log()).sum()) / math.log(classes)
        error = min(differ * max(entropy, 1e-6) ** -SHARPNESS, 1 - 1 / classes)
        self.error = KEEP * (differ if self.error is None else self.error) + (1 - KEEP) * error

    def _drop(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        keep = torch.rand(output.shape, generator=self.generator) >= RATE
        return output * keep / (1 - RATE)
