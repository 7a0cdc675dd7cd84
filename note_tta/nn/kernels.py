"""IABN in the fastest way that the given tensors allow.

The fused C kernel handles float32, bfloat16 and float16 tensors on the CPU that are contiguous or channels-last, with
norm tensors in float32 or in the input's dtype. The plain formula handles everything else: other dtypes, devices and
layouts, `torch.func` transforms, forward-mode differentiation, tracing, scripting and export, and installations
without a C compiler.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from torch import Tensor

from . import functional, operators, surroundings
from .native import TYPES, kernel

__all__ = ["iabn", "iabn_rows", "kernel"]

_float32 = torch.float32
_PLAIN = (Tensor, torch.nn.Parameter)


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
    """Compute `functional.iabn`, with the fused kernel if it can handle the tensors.

    Example:
        >>> x, mean, var = torch.randn(2, 3, 8, 8), torch.zeros(3), torch.ones(3)
        >>> torch.allclose(iabn(x, mean, var), functional.iabn(x, mean, var), atol=1e-5)
        True
    """
    layer = (running_mean, running_var, weight, bias)
    if alpha >= 1e12 or not _fits(x, layer, x.shape[1]):
        return functional.iabn(x, *layer, training, momentum, eps, alpha, correction)
    if x.dtype is not _float32:
        weight, bias = _wide(weight), _wide(bias)
    if training or running_mean is None or running_var is None:
        out, _, _, mean, var = _learn(x, None, None, weight, bias, eps, alpha, correction)
        if training and running_mean is not None and running_var is not None:
            functional.move_running_statistics(
                x, mean.detach(), var.detach(), running_mean, running_var, momentum, correction
            )
        return out
    mean, var = running_mean, running_var
    if x.dtype is not _float32:
        mean, var = mean.float(), var.float()
    if _needs_graph(x, weight, bias):
        return _learn(x, mean, var, weight, bias, eps, alpha, correction)[0]
    return _infer(x, mean, var, weight, bias, eps, alpha, correction)


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
    """Compute `functional.iabn_rows`, with the fused kernel if it can handle the tensors and no graph is needed.

    Example:
        >>> x, mean, var = torch.randn(2, 3, 8, 8), torch.randn(2, 3), torch.rand(2, 3)
        >>> rows = iabn_rows(x, mean, var)
        >>> torch.allclose(rows[1:], functional.iabn(x[1:], mean[1], var[1]), atol=1e-4)
        True
    """
    functional.check_rows(x, mean, var, weight, bias)
    if _needs_graph(x, weight, bias) or not _fits(x, (mean, var, weight, bias), x.shape[0] * x.shape[1]):
        return functional.iabn_rows(x, mean, var, weight, bias, eps=eps, alpha=alpha, correction=correction)
    if x.dtype is not _float32:
        mean, var, weight, bias = mean.float(), var.float(), _wide(weight), _wide(bias)
    return _infer(x, mean, var, weight, bias, eps, float("inf") if alpha >= 1e12 else alpha, correction)


def _infer(x: Tensor, *inputs: Any) -> Tensor:
    """Call the operator without a graph. If no mode observes operators, skip the dispatcher.

    This saves about a third of the time of a small layer.
    """
    out: Tensor = (operators.infer if _unobserved() else torch.ops.note_tta.iabn_infer)(x, *inputs)
    return out


def _learn(x: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    """Call the operator with a graph, likewise; the dispatcher would take half of the time of a small layer."""
    apply: Any = operators.Direct.apply if _unobserved() else torch.ops.note_tta.iabn
    out: tuple[Tensor, ...] = apply(x, *inputs)
    return out


def _unobserved() -> bool:
    return not (torch.compiler.is_compiling() or surroundings.observed())


def _fits(x: Tensor, layer: tuple[Tensor | None, ...], numbers: int) -> bool:
    """Whether the kernel can handle these tensors here; the layer's tensors must hold `numbers` values.

    This is called for every layer, so it must be fast.
    """
    dtype = x.dtype
    if dtype not in TYPES or type(x) is not Tensor or not x.is_cpu:
        return False
    if torch.compiler.is_compiling():
        if not _compilable() or surroundings.exporting():
            return False
    elif kernel().forward is None:
        _say_once()
        return False
    elif surroundings.transformed() or x.is_neg():
        return False
    shape = x.shape
    if len(shape) < 3 or x.numel() <= shape[0] * shape[1]:  # no positions, or a single one: BatchNorm
        return False
    for p in layer:
        if p is not None and not (
            type(p) in _PLAIN
            and ((kind := p.dtype) is _float32 or kind is dtype)
            and p.is_cpu
            and p.numel() == numbers
            and p.is_contiguous()
        ):
            return False
    mean, var, *_ = layer
    if (mean is not None and mean.requires_grad) or (var is not None and var.requires_grad):
        return False
    return x.is_contiguous() or operators.rows(x)


def _wide(p: Tensor | None) -> Tensor | None:
    return None if p is None else p.float()


def _needs_graph(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> bool:
    return torch.is_grad_enabled() and (
        x.requires_grad
        or (weight is not None and weight.requires_grad)
        or (bias is not None and bias.requires_grad)
    )


def _compilable() -> bool:
    """Whether there is a kernel and no transform is active; called while `torch.compile` traces."""
    return kernel().active and not surroundings.inside_transform()


# This is what `torch.compiler.assume_constant_result` does, but without importing the whole compiler.
_compilable._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.cache
def _say_once() -> None:
    if not kernel().switched_off:
        warnings.warn(
            f"IABN runs the plain formula, because its fast kernel is off: {kernel().reason}; "
            "`note-tta doctor` shows more",
            RuntimeWarning,
            stacklevel=5,
        )
