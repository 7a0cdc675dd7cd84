"""The norm layers of a model: finding them, what of them adapts, and the mode they run in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..nn import IABN1d, IABN2d, IABN3d, kernels
from ..nn.iabn import PLAIN_FORWARDS
from .base import checked_module
from .swap import SwappedForward

NormLayers = dict[str, _BatchNorm]


def find_norm_layers(model: nn.Module) -> NormLayers:
    """The BatchNorm layers (IABN among them) of `model`, by name; none where it has none."""
    named = checked_module(model).named_modules()
    return {name: module for name, module in named if isinstance(module, _BatchNorm)}


def norm_layers(model: nn.Module, *, running: bool = False) -> NormLayers:
    """The BatchNorm layers of a model that is to be adapted through them.

    Args:
        model: Any module.
        running: Require running statistics.

    Raises:
        ValueError: There are none, or one keeps no running statistics where they are required.
    """
    layers = find_norm_layers(model)
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no BatchNorm layer to adapt: use Source, LAME or CoTTA, "
            "which work on any model"
        )
    for name, layer in layers.items():
        if running and layer.running_mean is None:
            raise ValueError(
                f"layer {name!r} keeps no running statistics (track_running_stats=False) to move"
            )
    return layers


def affine_parameters(layers: NormLayers) -> dict[str, Tensor]:
    """The scales and shifts of the layers, by their names in the model; one that layers share comes once."""
    named: dict[int, tuple[str, Tensor]] = {}
    for layer, module in layers.items():
        for key, p in module.named_parameters(recurse=False):
            named.setdefault(id(p), (_join(layer, key), p))
    return dict(named.values())


def running_statistics(layers: NormLayers) -> dict[str, Tensor]:
    """The running statistics of the layers, by their names in the model."""
    return {
        _join(layer, key): b
        for layer, module in layers.items()
        for key, b in module.named_buffers(recurse=False)
    }


def batch_statistics(layers: NormLayers) -> SwappedForward:
    """Inside `with`, the layers normalise with the statistics of the batch, their running ones untouched.

    A layer that gets a single value a channel has no batch statistics and keeps to the running ones.
    """
    return SwappedForward(layers, partial(_normalize_by_batch, layers))


@contextmanager
def moving_statistics(layers: NormLayers, momentum: float) -> Iterator[None]:
    """Put the layers, and only them, in train mode, so that a pass moves their running statistics."""
    kept = [layer.momentum for layer in layers.values()]
    for layer in layers.values():
        layer.training, layer.momentum = True, momentum
    try:
        yield
    finally:
        for layer, own in zip(layers.values(), kept, strict=True):
            layer.training, layer.momentum = False, own


@contextmanager
def gradients_for(model: nn.Module, learned: Iterable[Tensor]) -> Iterator[None]:
    """Let `learned` have gradients and no other parameter of `model`; then restore flags and drop gradients.

    The `.grad` that the caller may have left on a parameter comes back too.
    """
    kept = [(p, p.requires_grad, p.grad) for p in model.parameters()]
    chosen = {id(p) for p in learned}
    for p, _, _ in kept:
        p.requires_grad_(id(p) in chosen)
        p.grad = None
    try:
        with torch.enable_grad():
            yield
    finally:
        for p, flag, grad in kept:
            p.requires_grad_(flag)
            p.grad = grad


def _normalize_by_batch(layers: NormLayers, name: str, own: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    layer = layers[name]
    layer._check_input_dim(x)
    if getattr(own, "func", own) not in PLAIN_FORWARDS:
        return _own_forward_by_batch(layer, own, x)
    if x.numel() == x.shape[1] and layer.running_mean is not None:
        return F.batch_norm(x, layer.running_mean, layer.running_var, layer.weight, layer.bias, eps=layer.eps)
    if isinstance(layer, (IABN1d, IABN2d, IABN3d)):
        return kernels.iabn(
            x,
            None,
            None,
            layer.weight,
            layer.bias,
            training=True,
            eps=layer.eps,
            alpha=layer.alpha,
            correction=layer.correction,
        )
    return F.batch_norm(x, None, None, layer.weight, layer.bias, training=True, eps=layer.eps)


def _own_forward_by_batch(layer: _BatchNorm, own: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A layer that does more than normalise, such as an activation after it: it is run without statistics."""
    if x.numel() == x.shape[1]:
        return own(x)
    kept = {key: layer._buffers[key] for key in ("running_mean", "running_var")}
    layer._buffers.update(dict.fromkeys(kept))
    try:
        return own(x)
    finally:
        layer._buffers.update(kept)


def _join(layer: str, key: str) -> str:
    return f"{layer}.{key}" if layer else key
