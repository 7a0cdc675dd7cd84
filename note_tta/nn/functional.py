"""The formula of Instance-Aware BatchNorm, in plain PyTorch: what every faster path is tested against."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def correct(layer: Tensor, instance: Tensor, width: Tensor) -> Tensor:
    """A statistic of the layer, moved by what of the instance's lies further off than `width` (equation 5).

    This is `layer` + ψ(`instance` − `layer`; `width`), with ψ the soft shrinkage. Taken from the instance's
    side, it keeps its digits where the layer's statistic is far the larger one.

    Example:
        >>> correct(torch.tensor(10.0), torch.tensor([7.0, 10.5, 12.0]), torch.tensor(1.0))
        tensor([ 8., 10., 11.])
    """
    return instance - torch.clamp(instance - layer, -width, width)


def iabn(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    alpha: float = 4.0,
    correction: int = 0,
) -> Tensor:
    """Instance-Aware BatchNorm (paper, section 3.1), with the calling convention of `F.batch_norm`.

    The layer's statistics are the batch's own where `training` is set or no running ones are given (then
    gradients flow through them), the running ones otherwise. A sample whose statistics lie further from the
    layer's than `alpha` standard errors is normalised with statistics moved towards its own.

    Args:
        x: Input of shape `[B, C, ...]`.
        running_mean: Running mean `[C]`; moved in place where `training` is set. None: none is kept.
        running_var: Running variance `[C]`, likewise.
        weight: Affine scale γ `[C]`, or None.
        bias: Affine shift β `[C]`, or None.
        training: Normalise with the batch's statistics and move the running ones.
        momentum: How far the running statistics move towards the batch's.
        eps: Added to variances.
        alpha: Width of the soft shrinkage in standard errors; 0 is InstanceNorm, inf is BatchNorm.
        correction: 0 divides variances by the number of values as the paper does, 1 by one less as the
            authors' released code does.

    Returns:
        The normalised input, of `x`'s shape and dtype.
    """
    for values in (running_mean, running_var, weight, bias):
        if values is not None and values.numel() != x.shape[1]:
            raise ValueError(f"expected {values.numel()} channels, got {x.shape[1]}")
    if alpha == math.inf or x.shape[2:].numel() == 1 or x.numel() == 0:
        use_batch = training or running_mean is None
        return F.batch_norm(x, running_mean, running_var, weight, bias, use_batch, momentum, eps)
    if training or running_mean is None or running_var is None:
        mean, var = batch_statistics(x, correction)
        if training and running_mean is not None and running_var is not None:
            move_running_statistics(x, mean, var, running_mean, running_var, momentum, correction)
    else:
        mean, var = running_mean, running_var
    return normalize_instances(x, mean, var, weight, bias, eps, alpha, correction)


def batch_statistics(x: Tensor, correction: int = 0) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel over batch and positions, in at least float32; shapes `[C]`.

    A channel of a single value has no variance to normalise with and is refused, as BatchNorm does.
    """
    if x.numel() == x.shape[1]:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {x.shape}")
    axes = [0, *range(2, x.ndim)]
    var, mean = torch.var_mean(widened(x), dim=axes, correction=correction)
    return mean, var


def move_running_statistics(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    correction: int = 0,
) -> None:
    """Move the running statistics towards the batch's in place; the variance kept is the unbiased one."""
    count = x.numel() / x.shape[1]
    with torch.no_grad():
        unbiased = var if correction else var * (count / (count - 1))
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_(unbiased.to(running_var.dtype), momentum)


def normalize_instances(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    alpha: float,
    correction: int,
) -> Tensor:
    """Normalise each sample with the layer's statistics, corrected by the sample's own (equations 3–6).

    One pass over `x` for its statistics, one for the multiply-add.
    """
    wide = widened(x)
    positions = x.shape[2:].numel()
    mean, var = mean.to(wide.dtype), var.to(wide.dtype)
    instance_var, instance_mean = torch.var_mean(wide, dim=list(range(2, x.ndim)), correction=correction)

    mean_error = torch.sqrt((var + eps) / positions)
    var_error = (var + eps) * math.sqrt(2 / (positions - 1))
    corrected_mean = correct(mean, instance_mean, alpha * mean_error)
    corrected_var = torch.clamp_min(correct(var, instance_var, alpha * var_error), 0)

    scale = torch.rsqrt(corrected_var + eps)
    if weight is not None:
        scale = scale * weight
    shift = -corrected_mean * scale
    if bias is not None:
        shift = shift + bias
    trailing = (...,) + (None,) * (x.ndim - 2)
    return torch.addcmul(shift[trailing], wide, scale[trailing]).to(x.dtype)


def widened(x: Tensor) -> Tensor:
    """`x` in float32 where it is narrower, for statistics that half precision cannot hold."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
