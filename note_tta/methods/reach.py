"""Decides which samples can be answered, and which are near enough to the source data to learn from."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .norm import batch_norms

EXTENT = 3.0
"""How many standard deviations around a channel's mean count as the source's range."""


class Reach:
    """Compares each sample with the source data at the input of the first BatchNorm layer.

    A running variance averages squares. One sample with a thousand times the usual amplitude counts as much as a
    million others, and at a momentum of 0.01 its effect lasts long. Therefore the method learns from a sample only if
    its amplitude (the root mean square over positions) is at most `limit` times the source's range in every channel.
    The source's range is the absolute mean plus three standard deviations.

    Args:
        module: The module that answers; it gets hooks.
        source: A module of the same structure with the source's statistics.
    """

    def __init__(self, module: nn.Module, source: nn.Module) -> None:
        self._extents = {name: source_extent(layer) for name, layer in batch_norms(source).items()}
        self._hooks = {
            name: layer.register_forward_pre_hook(partial(self._catch, name))
            for name, layer in batch_norms(module).items()
        }
        self._caught: tuple[str, Tensor, float] | None = None

    def look(
        self, predict: Callable[[Tensor], Tensor], x: Tensor, limit: float | Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the answers to `x`, and whether each sample is near enough to learn from.

        Args:
            predict: Answers a batch with the module.
            x: Samples `[B, ...]`.
            limit: The bound, or one per sample as `[B, 1]`; with infinity every sample is near enough.
        """
        answers, rows = self._look(predict, x, limit)
        if len(rows) == len(x):
            return answers, rows
        if len(x) == 1 or rows.all():
            return answers, rows.all().expand(len(x))
        # The model folds another axis into the batch, so rows and samples do not match: run samples one by one.
        alone = [self._look(predict, sample[None], limit)[1].all() for sample in x]
        return answers, torch.stack(alone)

    def _look(
        self, predict: Callable[[Tensor], Tensor], x: Tensor, limit: float | Tensor
    ) -> tuple[Tensor, Tensor]:
        self._caught = None
        answers = predict(x)
        caught, self._caught = self._caught, None
        if caught is None:
            return answers, torch.ones(len(x), dtype=torch.bool, device=x.device)
        name, norms, size = caught
        for other in [other for other in self._hooks if other != name]:
            self._hooks.pop(other).remove()
        bounds = (limit * self._extents[name]).to(norms)
        return answers, (norms <= size * bounds).all(dim=1)

    def _catch(self, name: str, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Measure what the first layer gets, while it is in the cache and before the layer may overwrite it."""
        if self._caught is None:
            x = inputs[0].detach() if inputs[0].dtype.itemsize >= 4 else inputs[0].detach().float()
            norms = x.abs() if x.ndim == 2 else torch.linalg.vector_norm(x.flatten(2), dim=2)
            self._caught = (name, norms, math.sqrt(max(x.shape[2:].numel(), 1)))


def finite_rows(x: Tensor) -> Tensor | None:
    """Return which samples hold only finite values, or None if all do.

    A sum is finite only if every value is, and takes one fast pass. If it is not finite, each row is looked at, since
    the sum may only have overflowed.
    """
    if math.isfinite(x.sum().item()):
        return None
    rows = torch.isfinite(x).flatten(1).all(dim=1)
    return None if rows.all() else rows


def source_extent(layer: _BatchNorm) -> Tensor:
    """Return the source's range in each channel, from the layer's running statistics."""
    if layer.running_mean is None or layer.running_var is None:
        return torch.tensor(math.inf)
    deviation = torch.sqrt(layer.running_var.double() + layer.eps)
    return layer.running_mean.double().abs() + EXTENT * deviation
