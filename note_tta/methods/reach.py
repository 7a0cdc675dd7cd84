"""Which samples are near enough to what the model was trained on to be learned from."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from .norm import NormLayers
from .swap import SwappedForward


class Reach:
    """Compares each sample, where it enters the first norm layer that runs, with what the source held there.

    Running statistics take in squares: one sample of a thousand times the usual amplitude weighs as much as a
    million others, and a momentum of 0.01 takes long to forget it. So a sample is learned from only if its
    amplitude is at most `limit` times the source's. The amplitude is the root mean square over channels and
    positions; the source's follows from the layer's running statistics at construction, so that nothing the
    stream does moves the bound.

    Args:
        layers: The norm layers of the model, with the running statistics of the source.
        limit: The bound; infinity lets everything through.
    """

    def __init__(self, layers: NormLayers, limit: float) -> None:
        if not limit > 0:
            raise ValueError(f"reach must be greater than 0, got {limit}")
        self._bounds = {name: limit * _source_amplitude(layer) for name, layer in layers.items()}
        self._watched = SwappedForward(layers, self._look)
        self._layers = layers
        self._first: str | None = None
        self._near: Tensor | None = None

    def near(self, predict: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """The answers to `x`, and one truth value a sample: whether it is near enough.

        Args:
            predict: Runs the model.
            x: Samples.
        """
        answers, rows = self._watch(predict, x)
        if len(rows) == len(x):
            return answers, rows
        if len(x) == 1 or rows.all():
            return answers, rows.all().expand(len(x))
        # The model folds another axis into the batch: whose row is whose is not to be seen, ask each alone.
        alone = [self._watch(predict, sample[None])[1].all() for sample in x]
        return answers, torch.stack(alone)

    def state_dict(self) -> dict[str, Any]:
        """The bounds, which a model that has adapted since can no longer tell."""
        return {"bounds": dict(self._bounds)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the bounds of a saved state."""
        bounds = state.get("bounds") if isinstance(state, dict) else None
        if (
            not isinstance(bounds, dict)
            or bounds.keys() != self._bounds.keys()
            or not all(isinstance(bound, float) and bound > 0 for bound in bounds.values())
        ):
            raise ValueError("its bounds of the samples to learn from do not fit the model's layers")
        self._bounds = dict(bounds)

    def _watch(self, predict: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """The answers to `x`, and of each row of the first layer that runs whether it is near."""
        self._near = None
        with self._watched:
            answers = predict(x)
        if self._first is not None and len(self._layers) > 1:
            self._layers = {self._first: self._layers[self._first]}
            self._watched = SwappedForward(self._layers, self._look)
        rows = torch.ones(len(x), dtype=torch.bool, device=x.device) if self._near is None else self._near
        self._near = None
        return answers, rows

    def _look(self, name: str, own: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """The layer's own pass, after a look at what the first one that runs is given."""
        if self._near is None:
            self._first = name
            self._near = _amplitudes(x) <= self._bounds[name]
        return own(x)


def _amplitudes(x: Tensor) -> Tensor:
    """The root mean square of each sample `[B, ...]`."""
    x = x.detach().flatten(1)
    x = x if x.dtype == torch.float64 else x.float()
    length: Tensor = torch.linalg.vector_norm(x, dim=1)
    return length / math.sqrt(max(x.shape[1], 1))


def _source_amplitude(layer: _BatchNorm) -> float:
    """The root mean square that the source's samples had, as the layer's running statistics tell it."""
    if layer.running_mean is None or layer.running_var is None:
        return math.inf
    power = layer.running_var.double() + layer.running_mean.double().square()
    return math.sqrt(float(power.mean()) + layer.eps)
