"""IABN by the fastest way there is for the tensors at hand.

The fused C kernel takes float32 tensors on the CPU that are contiguous or channels-last. The plain formula
takes everything else: other dtypes, devices and layouts, `torch.func` transforms, forward-mode
differentiation, tracing and export, and installs without a C compiler.
"""

from __future__ import annotations

import functools
import math
import warnings

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import functional, operators
from .native import kernel

__all__ = ["iabn", "iabn_rows", "kernel"]

_float32 = torch.float32
_PLAIN = (Tensor, torch.nn.Parameter)
_transforms = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._is_tracing
_modes = torch._C._len_torch_dispatch_stack


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
    """`functional.iabn`, by the fused kernel wherever it can take the tensors.

    Example:
        >>> x, mean, var = torch.randn(2, 3, 8, 8), torch.zeros(3), torch.ones(3)
        >>> torch.allclose(iabn(x, mean, var), functional.iabn(x, mean, var), atol=1e-5)
        True
    """
    if alpha == math.inf or not _fits(x, (running_mean, running_var, weight, bias), x.shape[1:2]):
        return functional.iabn(
            x,
            running_mean,
            running_var,
            weight,
            bias,
            training=training,
            momentum=momentum,
            eps=eps,
            alpha=alpha,
            correction=correction,
        )
    layer = None if training or running_mean is None or running_var is None else (running_mean, running_var)
    if layer is not None and not _needs_graph(x, weight, bias):
        infer = torch.ops.note_tta.iabn_infer if _watched() else operators.infer
        out: Tensor = infer(x, *layer, weight, bias, eps, alpha, correction)
        return out
    mean, var = layer or (None, None)
    out, _, _, mean, var = torch.ops.note_tta.iabn(x, mean, var, weight, bias, eps, alpha, correction)
    if training and running_mean is not None and running_var is not None:
        functional.move_running_statistics(
            x, mean.detach(), var.detach(), running_mean, running_var, momentum, correction
        )
    return out


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
    """`functional.iabn_rows`, by the fused kernel wherever it can take the tensors and no graph is needed.

    Example:
        >>> x, mean, var = torch.randn(2, 3, 8, 8), torch.randn(2, 3), torch.rand(2, 3)
        >>> rows = iabn_rows(x, mean, var)
        >>> torch.allclose(rows[1:], functional.iabn(x[1:], mean[1], var[1]), atol=1e-4)
        True
    """
    if _needs_graph(x, weight, bias) or not _fits(x, (mean, var, weight, bias), x.shape[:2]):
        return functional.iabn_rows(x, mean, var, weight, bias, eps=eps, alpha=alpha, correction=correction)
    infer = torch.ops.note_tta.iabn_infer if _watched() else operators.infer
    out: Tensor = infer(x, mean, var, weight, bias, eps, alpha, correction)
    return out


def _fits(x: Tensor, layer: tuple[Tensor | None, ...], size: torch.Size) -> bool:
    """Whether the kernel can take these tensors here and now; `size` is the shape that the layer's must have.

    Called for every layer, so it is kept short.
    """
    if x.dtype is not _float32 or type(x) is not Tensor or not x.is_cpu:
        return False
    if torch.compiler.is_compiling():
        if not _compilable():
            return False
    elif kernel().forward is None:
        _say_once()
        return False
    elif _transforms() is not None or _tracing() or forward_ad._current_level >= 0 or x.is_neg():
        return False
    shape = x.shape
    if len(shape) < 3 or x.numel() <= shape[0] * shape[1]:  # no positions, or a single one: BatchNorm
        return False
    for p in layer:
        if p is not None and not (
            type(p) in _PLAIN and p.dtype is _float32 and p.is_cpu and p.shape == size and p.is_contiguous()
        ):
            return False
    for p in layer[:2]:
        if p is not None and p.requires_grad:
            return False
    return x.is_contiguous() or operators.rows(x)


def _needs_graph(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> bool:
    return torch.is_grad_enabled() and (
        x.requires_grad
        or (weight is not None and weight.requires_grad)
        or (bias is not None and bias.requires_grad)
    )


def _watched() -> bool:
    """Whether someone looks on at operators (a compiler, a dispatch mode), who would miss a direct call.

    A direct call saves about a third of a small layer's time.
    """
    return torch.compiler.is_compiling() or _modes() > 0


def _compilable() -> bool:
    """Whether there is a kernel and no transform around, found out while `torch.compile` traces."""
    return kernel().active and _transforms() is None


# What `torch.compiler.assume_constant_result` does, without its import of the whole compiler.
_compilable._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.cache
def _say_once() -> None:
    if not kernel().switched_off:
        warnings.warn(
            f"the fast path of IABN is off and the plain formula runs instead: {kernel().reason}; "
            "`note-tta doctor` tells more",
            RuntimeWarning,
            stacklevel=5,
        )
