"""RoTTA's robust BatchNorm, which normalises with running statistics in training too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..nn.functional import batch_statistics
from ..nn.unmix import UnMixTNS2d
from .norm import batch_norms, move_components


def use_robust_statistics(model: nn.Module, rate: float) -> nn.Module:
    """Let every pass mix the batch's statistics into the running statistics and normalise with the mixture.

    The running mean and variance move by `rate` towards the batch's mean and biased variance, and gradients flow
    through the batch's share of them. Unlike BatchNorm, this uses the same statistics in training and in inference.
    It works for every kind of BatchNorm layer, including IABN, because it changes only the layer's input. UnMix-TNS
    layers are left out; they have their own moving statistics.

    Args:
        model: A module in eval mode. Its running statistics are changed.
        rate: How far the statistics move per pass.
    """
    move_components(model)
    for layer in batch_norms(model).values():
        if isinstance(layer, UnMixTNS2d):
            continue
        layer.forward = partial(_normalize_by_mixture, layer, layer.forward, rate)  # type: ignore[method-assign]
    return model


def _normalize_by_mixture(
    layer: _BatchNorm, own: Callable[[Tensor], Tensor], rate: float, x: Tensor
) -> Tensor:
    kept_mean, kept_var = layer.running_mean, layer.running_var
    if kept_mean is None or kept_var is None or x.numel() == x.shape[1]:  # a single value has no variance
        return own(x)
    batch_mean, batch_var = batch_statistics(x)
    mean = torch.lerp(kept_mean, batch_mean.to(kept_mean.dtype), rate)
    var = torch.lerp(kept_var, batch_var.to(kept_var.dtype), rate)
    layer._buffers.update(running_mean=mean.detach(), running_var=var.detach())
    try:
        return own(_with_gradient_of(x, mean, var, layer.eps))
    finally:
        kept_mean.copy_(mean.detach())
        kept_var.copy_(var.detach())
        layer._buffers.update(running_mean=kept_mean, running_var=kept_var)


def _with_gradient_of(x: Tensor, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    """Return `x` with the same values, but with gradients that also flow through the statistics of the layer.

    The layer computes (x − m) / s with constant m and s. Given x' = (x − mean) · s / std + m instead of x, it
    computes (x − mean) / std. Since m and s have the values of mean and std, x' equals x, but its gradient differs.
    """
    if not x.requires_grad:
        return x
    trailing = (...,) + (None,) * (x.ndim - 2)
    std, mean = torch.sqrt(var + eps)[trailing], mean[trailing]
    moved = (x - mean) * (std.detach() / std) + mean.detach()
    return x.detach() + (moved - moved.detach()).to(x.dtype)
