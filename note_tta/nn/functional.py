"""The formula of Instance-Aware BatchNorm in plain PyTorch. Every faster path is tested against it.

It also runs on other devices, under `torch.func`, in exported models and in TorchScript, so it uses only operations
that all of these support. Norm tensors may be float32 while the input is float16 or bfloat16.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def correct(layer: Tensor, instance: Tensor, width: Tensor) -> Tensor:
    """Move a statistic of the layer by the part of the instance's deviation that exceeds `width` (equation 5).

    This is `layer` + ψ(`instance` − `layer`; `width`), where ψ is the soft shrinkage. The computation starts from the
    instance's statistic, which keeps precision if the layer's statistic is much larger.

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
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    alpha: float = 4.0,
    correction: int = 0,
) -> Tensor:
    """Instance-Aware BatchNorm (paper, section 3.1), with the calling convention of `F.batch_norm`.

    If `training` is set or there are no running statistics, the layer's statistics are those of the batch, and
    gradients flow through them. Otherwise they are the running statistics. A sample whose statistics differ from the
    layer's by more than `alpha` standard errors is normalised with statistics that are moved towards its own.

    The standard errors (the paper's s, equation 4) are computed from `var + eps`, as in the authors' code:
    sqrt((var + eps) / L) of the mean, (var + eps) · sqrt(2 / (L − 1)) of the variance. The paper's equation
    has no eps there; it matters only for a channel whose variance is hardly larger than eps.

    Args:
        x: Input of shape `[B, C, ...]`.
        running_mean: Running mean `[C]`, updated in place if `training` is set; None if there is none.
        running_var: Running variance `[C]`, likewise.
        weight: Affine scale γ `[C]`, or None.
        bias: Affine shift β `[C]`, or None.
        training: Normalise with the batch's statistics and update the running statistics.
        momentum: How far the running statistics move towards the batch's.
        eps: Added to variances.
        alpha: Width of the soft shrinkage in standard errors. 0 gives InstanceNorm; inf, or 1e12 and more, gives
            BatchNorm.
        correction: 0 divides variances by the number of values, as in the paper; 1 divides all of them by one
            less, as in the authors' code.

    Returns:
        The normalised input, of `x`'s shape and dtype.
    """
    for values in (running_mean, running_var, weight, bias):
        if values is not None and values.numel() != x.shape[1]:
            raise ValueError(f"expected {values.numel()} channels, got {x.shape[1]}")
    own = training or running_mean is None or running_var is None
    plain = never_corrects(x, alpha)
    if (
        plain
        and (correction == 0 or not own)
        and _batch_norm_takes(x, running_mean, running_var, weight, bias)
    ):
        return F.batch_norm(x, running_mean, running_var, weight, bias, own, momentum, eps)
    if training or running_mean is None or running_var is None:
        mean, var = batch_statistics(x, correction)
        if training and running_mean is not None and running_var is not None:
            move_running_statistics(x, mean, var, running_mean, running_var, momentum, correction)
    else:
        mean, var = running_mean, running_var
    if plain:
        return normalize(x, mean, var, weight, bias, eps)
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
    """IABN in eval mode with one layer per sample: many adapted models in one call.

    Row b is `iabn(x[b:b+1], mean[b], var[b], weight[b], bias[b])`; `alpha=math.inf` gives BatchNorm.

    Args:
        x: Input of shape `[B, C, ...]`.
        mean: Running mean `[B, C]`, one row per sample.
        var: Running variance `[B, C]`, likewise.
        weight: Affine scale `[B, C]`, or None.
        bias: Affine shift `[B, C]`, or None.
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
    check_rows(x, mean, var, weight, bias)
    if never_corrects(x, alpha):
        return normalize(x, mean, var, weight, bias, eps)
    return normalize_instances(x, mean, var, weight, bias, eps, alpha, correction)


def check_rows(x: Tensor, *layers: Tensor | None) -> None:
    """Refuse statistics that are not one layer per row of `x`."""
    expected = x.shape[:2]
    for values in layers:
        if values is not None and values.shape != expected:
            raise ValueError(f"expected statistics of shape {[*expected]}, got {[*values.shape]}")


def never_corrects(x: Tensor, alpha: float) -> bool:
    """Whether IABN is BatchNorm here: an infinite `alpha`, a single position, or no sample.

    With an infinite `alpha` the gradients of the formula would contain 0 · inf. 1e12 standard errors count as
    infinite: no real sample deviates that much.

    Example:
        >>> never_corrects(torch.zeros(2, 3, 1, 1), 4.0), never_corrects(torch.zeros(2, 3, 2), 4.0)
        (True, False)
    """
    return alpha >= 1e12 or positions(x) == 1 or x.numel() == 0


def positions(x: Tensor) -> int:
    """The number of values per channel of one sample: the paper's L."""
    count = 1
    for size in x.shape[2:]:
        count *= size
    return count


def batch_statistics(x: Tensor, correction: int = 0) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel over batch and positions, in at least float32; shapes `[C]`.

    A channel with a single value has no variance and is refused, as in BatchNorm.
    """
    if x.numel() == x.shape[1]:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {x.shape}")
    axes = [0] + list(range(2, x.ndim))  # noqa: RUF005 (TorchScript reads no unpacking)
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
    """Move the running statistics towards the batch's in place; the running variance is the unbiased one."""
    count = x.numel() / x.shape[1]
    with torch.no_grad():
        unbiased = var if correction == 1 else var * (count / (count - 1))
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

    The layer's statistics are `[C]`, or `[B, C]` for one layer per sample. This takes one pass over `x` for its
    statistics and one for the multiply-add.
    """
    wide = widened(x)
    count = positions(x)
    mean, var = mean.to(wide.dtype), var.to(wide.dtype)
    instance_var, instance_mean = torch.var_mean(wide, dim=list(range(2, x.ndim)), correction=correction)

    mean_error = torch.sqrt((var + eps) / count)
    var_error = (var + eps) * math.sqrt(2 / (count - 1))
    corrected_mean = correct(mean, instance_mean, alpha * mean_error)
    corrected_var = torch.clamp_min(correct(var, instance_var, alpha * var_error), 0)
    return normalize(x, corrected_mean, corrected_var, weight, bias, eps)


def normalize(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """`(x - mean) / sqrt(var + eps) * weight + bias` as one multiply-add; statistics `[C]` or `[B, C]`."""
    wide = widened(x)
    scale = torch.rsqrt(var.to(wide.dtype) + eps)
    if weight is not None:
        scale = scale * weight
    shift = -mean.to(wide.dtype) * scale
    if bias is not None:
        shift = shift + bias
    for _ in range(x.ndim - 2):
        scale, shift = scale.unsqueeze(-1), shift.unsqueeze(-1)
    return torch.addcmul(shift, wide, scale).to(x.dtype)


def widened(x: Tensor) -> Tensor:
    """Return `x` in at least float32, because half precision is too coarse for its statistics."""
    return x.float() if x.dtype == torch.float16 or x.dtype == torch.bfloat16 else x


def _batch_norm_takes(
    x: Tensor, mean: Tensor | None, var: Tensor | None, weight: Tensor | None, bias: Tensor | None
) -> bool:
    """Whether `F.batch_norm` accepts these dtypes: all that of `x`, or all float32 with a narrower `x`."""
    like_x, wide = True, x.dtype == torch.float16 or x.dtype == torch.bfloat16
    for values in (mean, var, weight, bias):
        if values is not None:
            like_x = like_x and values.dtype == x.dtype
            wide = wide and values.dtype == torch.float32
    return like_x or wide
