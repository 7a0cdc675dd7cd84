"""RoTTA's robust BatchNorm, which normalises with running statistics in training too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..nn.functional import widened
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
    x, mean, var = _Mixture.apply(x, kept_mean, kept_var, rate, layer.eps)  # type: ignore[no-untyped-call]
    layer._buffers.update(running_mean=mean, running_var=var)
    try:
        return own(x)
    finally:
        kept_mean.copy_(mean)
        kept_var.copy_(var)
        layer._buffers.update(running_mean=kept_mean, running_var=kept_var)


class _Mixture(torch.autograd.Function):
    """The mixed statistics, and `x` as it is, but with gradients that also flow through these statistics.

    The layer computes (x − m) / s with constant m and s, so the gradients that go through the mixed mean and variance
    are missing from the gradient of `x` that it returns. They are added here.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, kept_mean: Tensor, kept_var: Tensor, rate: float, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return `x`, and the running statistics moved by `rate` towards those of the batch."""
        batch_mean, batch_var = _batch_statistics(x, kept_mean)
        mean, var = torch.lerp(kept_mean, batch_mean, rate), torch.lerp(kept_var, batch_var, rate)
        ctx.save_for_backward(x, batch_mean, mean, var)
        ctx.rate, ctx.eps = rate, eps
        ctx.mark_non_differentiable(mean, var)
        return x.view_as(x), mean, var

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Add the gradients through the batch's share of mean and variance to that of `x`."""
        x, batch_mean, mean, var = ctx.saved_tensors
        axes, trailing = [0, *range(2, x.ndim)], (..., *[None] * (x.ndim - 2))
        grad, centred = widened(grads[0]), widened(x) - mean[trailing]
        of_mean = -grad.sum(axes)
        of_var = -(grad * centred).sum(axes) / (2 * (var + ctx.eps))
        share = ctx.rate * x.shape[1] / x.numel()
        slope, shift = 2 * share * of_var, share * (of_mean + 2 * of_var * (mean - batch_mean))
        grad_x = grad + centred * slope[trailing] + shift[trailing]
        return grad_x.to(x.dtype), None, None, None, None


def _batch_statistics(x: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """The batch's mean and biased variance, as running statistics that have moved all the way."""
    mean, unbiased = torch.zeros_like(like), torch.zeros_like(like)
    F.batch_norm(x, mean, unbiased, training=True, momentum=1.0)
    return mean, unbiased * (1 - x.shape[1] / x.numel())
