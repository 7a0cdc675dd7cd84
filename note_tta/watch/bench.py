"""A module that answers with any tensors of a model: the source's, the adapted ones or a snapshot's."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..methods.backbone import Backbone, Tensors
from ..methods.draft import copy_all
from ..methods.norm import batch_norms, use_batch_statistics

MOST_LAYERS = 8
"""Misfit is measured in up to this many layers, spread evenly over the model."""


class Bench:
    """Answers with the source's tensors or any others; all streams of a model share one.

    Args:
        backbone: The model.
    """

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self._tensors = backbone.clone_source()
        self._module = backbone.build(self._tensors)
        self._misfit = Misfit(self._module)
        self._by_batch: nn.Module | None = None
        self._lock = threading.Lock()

    @torch.no_grad()
    def ask(self, tensors: Tensors, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The logits of samples under these tensors, and the distance of each sample from their statistics."""
        with self._lock:
            copy_all(self._tensors, tensors)
            self._misfit.wanted = True
            logits = self.backbone.run(self._module, x)
            return logits, self._misfit.take()

    @torch.no_grad()
    def answer(self, tensors: Tensors, x: Tensor) -> Tensor:
        """The logits of samples under these tensors, and nothing else."""
        with self._lock:
            copy_all(self._tensors, tensors)
            return self.backbone.run(self._module, x)

    @torch.no_grad()
    def ask_together(self, tensors: Tensors, x: Tensor) -> Tensor:
        """The logits of samples under these tensors and the samples' own statistics."""
        with self._lock:
            if self._by_batch is None:
                self._by_batch = use_batch_statistics(self.backbone.build(self._tensors))
            copy_all(self._tensors, tensors)
            return self.backbone.run(self._by_batch, x)


class Misfit:
    """The distance of each sample from the running statistics of the layers it passes.

    In up to eight BatchNorm layers, the sample's mean and variance over positions define a normal distribution per
    channel, and so do the running ones; their Kullback-Leibler divergence is averaged over channels and layers. This
    needs no labels and no source data. Compared with the same distance under the source's statistics, it shows whether
    the stream is still the one that the model has adapted to.

    Args:
        module: The module to measure in; it gets hooks.
    """

    def __init__(self, module: nn.Module) -> None:
        self.wanted = False
        self._found: list[Tensor] = []
        layers = [layer for layer in batch_norms(module).values() if layer.running_mean is not None]
        for layer in layers[:: -(-len(layers) // MOST_LAYERS) or 1]:
            layer.register_forward_pre_hook(self._catch)

    def take(self) -> Tensor | None:
        """The divergence of each sample of the last pass; None if no layer has running statistics."""
        found, self._found, self.wanted = self._found, [], False
        found = [each for each in found if len(each) == len(found[-1])]
        return torch.stack(found).mean(dim=0) if found else None

    def _catch(self, layer: _BatchNorm, inputs: tuple[Any, ...]) -> None:
        if not self.wanted:
            return
        assert layer.running_mean is not None and layer.running_var is not None
        x = inputs[0].detach().float()
        values = x.flatten(2) if x.ndim > 2 else x[..., None]
        expected = layer.running_var.float() + layer.eps
        mean = values.mean(dim=2)
        distance = (mean - layer.running_mean.float()).square() / expected
        if values.shape[2] > 1:
            squares = torch.linalg.vector_norm(values, dim=2).square() / values.shape[2]  # faster than var
            ratio = ((squares - mean.square()).clamp(min=0) + layer.eps) / expected
            distance = distance + ratio - 1 - ratio.log()
        self._found.append(distance.mean(dim=1) / 2)
