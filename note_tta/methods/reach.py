"""Which samples are near enough to what the model was trained on to be learned from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from .norm import NormLayers


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
        self._layers = layers
        self._bounds = {name: limit * _source_amplitude(layer) for name, layer in layers.items()}
        self._first: str | None = None

    @contextmanager
    def watch(self) -> Iterator[list[Tensor]]:
        """Watch one pass; then the list holds one truth value a sample, or nothing where no layer ran."""
        found: list[Tensor] = []
        watched = self._layers if self._first is None else {self._first: self._layers[self._first]}
        for name, layer in watched.items():
            layer.__dict__["forward"] = partial(self._look, found, name)
        try:
            yield found
        finally:
            for layer in watched.values():
                del layer.__dict__["forward"]

    def _look(self, found: list[Tensor], name: str, x: Tensor) -> Tensor:
        """The layer's own pass, after a look at what the first one that runs is given."""
        if not found:
            self._first = name
            found.append(_amplitudes(x) <= self._bounds[name])
        layer = self._layers[name]
        return type(layer).forward(layer, x)


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
