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


def iabn_rows(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-5,
    alpha: float = 4.0,
    correction: int = 0,
) -> Tensor:
    """IABN in eval mode where every sample has a layer of its own: many adapted models, one call.

    Row b is what `iabn(x[b:b+1], mean[b], var[b], weight[b], bias[b])` gives; `alpha=math.inf` is BatchNorm.

    Args:
        x: Input of shape `[B, C, ...]`.
        mean: The rows' running means `[B, C]`.
        var: Their running variances `[B, C]`.
        weight: Their scales `[B, C]`, or None.
        bias: Their shifts `[B, C]`, or None.
        eps: Added to variances.
        alpha: See `iabn`.
        correction: See `iabn`.

    Returns:
        The normalised input, of `x`'s shape and dtype.

    Example:
        >>> x = torch.tensor([[[1.0, 3.0]], [[1.0, 3.0]]])
        >>> mean, var = torch.tensor([[0.0], [2.0]]), torch.ones(2, 1)
        >>> iabn_rows(x, mean, var, eps=0.0)
        tensor([[[ 1.,  3.]],
                [[-1.,  1.]]])
    """
    for values in (mean, var, weight, bias):
        if values is not None and values.shape != x.shape[:2]:
            raise ValueError(f"expected statistics of shape {[*x.shape[:2]]}, got {[*values.shape]}")
    if alpha == math.inf or x.shape[2:].numel() == 1 or x.numel() == 0:
        wide = widened(x)
        return affine(wide, mean.to(wide.dtype), var.to(wide.dtype), weight, bias, eps).to(x.dtype)
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

    The layer's are `[C]`, or `[B, C]` where every sample has a layer of its own. One pass over `x` for its
    statistics, one for the multiply-add.
    """
    wide = widened(x)
    positions = x.shape[2:].numel()
    mean, var = mean.to(wide.dtype), var.to(wide.dtype)
    instance_var, instance_mean = torch.var_mean(wide, dim=list(range(2, x.ndim)), correction=correction)

    mean_error = torch.sqrt((var + eps) / positions)
    var_error = (var + eps) * math.sqrt(2 / (positions - 1))
    corrected_mean = correct(mean, instance_mean, alpha * mean_error)
    corrected_var = torch.clamp_min(correct(var, instance_var, alpha * var_error), 0)

    return affine(wide, corrected_mean, corrected_var, weight, bias, eps).to(x.dtype)


def affine(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """`(x - mean) / sqrt(var + eps) * weight + bias` as one multiply-add, per channel or instance."""
    scale = torch.rsqrt(var + eps)
    if weight is not None:
        scale = scale * weight
    shift = -mean * scale
    if bias is not None:
        shift = shift + bias
    trailing = (...,) + (None,) * (x.ndim - 2)
    return torch.addcmul(shift[trailing], x, scale[trailing])


def widened(x: Tensor) -> Tensor:
    """`x` in float32 where it is narrower, for statistics that half precision cannot hold."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
