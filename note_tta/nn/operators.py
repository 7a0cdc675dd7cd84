"""The fused kernel as PyTorch operators: CPU, fake tensors and autograd.

`note_tta::iabn_infer` is for inference: it has no autograd and is cheap to call. `note_tta::iabn` is differentiable
and uses the layer's or the batch's statistics; `note_tta::iabn_backward` is its gradient. `x` is float32, bfloat16 or
float16, and every other tensor is float32. `kernels.iabn`, the only caller, checks the inputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import functional, surroundings
from .native import kernel, request


def rows(x: Tensor) -> bool:
    """Whether `x` is channels-last, with enough channels to fill a vector."""
    if x.shape[1] < 4:
        return False
    if x.ndim == 4:
        return x.is_contiguous(memory_format=torch.channels_last)
    return x.ndim == 5 and x.is_contiguous(memory_format=torch.channels_last_3d)


def _dense(x: Tensor) -> Tensor:
    """Return `x` in a layout that the kernel can read; a compiler may have chosen another one."""
    return x if x.is_contiguous() or rows(x) else x.contiguous()


def infer(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    alpha: float,
    correction: int,
) -> Tensor:
    """IABN with the layer's statistics, without a graph; with statistics `[B, C]`, each sample has its own layer."""
    source = _dense(x)
    out = torch.empty_like(source)
    kernel().forward(request(source, out, weight, bias, (mean, var), None, (eps, alpha, correction)))
    return out if source is x else torch.empty_like(x).copy_(out)


def forward(
    x: Tensor,
    mean: Tensor | None,
    var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    alpha: float,
    correction: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """IABN with the layer's statistics, or with the batch's if they are None.

    Returns:
        The output; the mean and the sum of squared deviations of each instance, `[B, C]`; the batch's mean and
        variance `[C]`, which are empty if the layer's statistics were used.
    """
    source = _dense(x)
    out = torch.empty_like(source)
    training = mean is None
    instance_mean, instance_m2, batch_mean, batch_var = _room(x, training)
    kernel().forward(
        request(
            source,
            out,
            weight,
            bias,
            (mean, var),
            (instance_mean, instance_m2),
            (eps, alpha, correction),
            batch=(batch_mean, batch_var) if training else None,
            training=training,
        )
    )
    out = out if source is x else torch.empty_like(x).copy_(out)
    return out, instance_mean, instance_m2, batch_mean, batch_var


def _room(x: Tensor, training: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    def room(*size: int) -> Tensor:
        return x.new_empty(size, dtype=torch.float32)

    batch, channels = x.shape[:2]
    kept = channels if training else 0
    return room(batch, channels), room(batch, channels), room(kept), room(kept)


def backward(
    grad: Tensor,
    x: Tensor,
    instance_mean: Tensor,
    instance_m2: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None,
    eps: float,
    alpha: float,
    correction: int,
    training: bool,
    wanted: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of `forward` with respect to `x` (empty if not `wanted`), weight and bias.

    In `training`, `mean` and `var` are those of the batch, and the gradient of `x` includes the gradient through them.
    """
    source = _dense(x)
    if grad.stride() != source.stride():
        grad = torch.empty_like(source).copy_(grad)
    grad_x = torch.empty_like(source) if wanted else x.new_empty(0)
    grad_weight, grad_bias = torch.empty_like(mean), torch.empty_like(mean)
    failed = kernel().backward(
        request(
            source,
            grad_x if wanted else None,
            weight,
            None,
            (mean, var),
            (instance_mean, instance_m2),
            (eps, alpha, correction),
            training=training,
            grad=grad,
            grad_affine=(grad_weight, grad_bias),
        )
    )
    if failed:
        raise MemoryError(f"not enough memory for the gradient of IABN on an input of shape {tuple(x.shape)}")
    if wanted and source is not x:
        grad_x = torch.empty_like(x).copy_(grad_x)
    return grad_x, grad_weight, grad_bias


def _fake_infer(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


def _fake_forward(x: Tensor, mean: Tensor | None, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(x), *_room(x, mean is None)


def _fake_backward(grad: Tensor, x: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    grad_x = torch.empty_like(x) if others[-1] else x.new_empty(0)
    return grad_x, torch.empty_like(others[2]), torch.empty_like(others[2])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, eps, alpha, correction = inputs
    ctx.save_for_backward(*tensors, *output[1:])
    ctx.settings = eps, alpha, correction


def _differentiate(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    x, mean, var, weight, bias, instance_mean, instance_m2, batch_mean, batch_var = ctx.saved_tensors
    needs, training = ctx.needs_input_grad, mean is None
    if torch.is_grad_enabled():
        grads = _differentiable_gradients(grad, x, mean, var, weight, bias, *ctx.settings)
    else:
        layer = (batch_mean, batch_var) if training else (mean, var)
        call: Any = torch.ops.note_tta.iabn_backward if surroundings.observed() else backward
        grads = call(grad, x, instance_mean, instance_m2, *layer, weight, *ctx.settings, training, needs[0])
    grad_x, grad_weight, grad_bias = (
        g if needed else None for g, needed in zip(grads, (needs[0], needs[3], needs[4]), strict=True)
    )
    return grad_x, None, None, grad_weight, grad_bias, None, None, None


def _differentiable_gradients(
    grad: Tensor,
    x: Tensor,
    mean: Tensor | None,
    var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    alpha: float,
    correction: int,
) -> tuple[Tensor | None, ...]:
    """Compute the gradients with a graph (`create_graph=True`), by the plain formula."""
    out = functional.iabn(
        x, mean, var, weight, bias, training=mean is None, eps=eps, alpha=alpha, correction=correction
    )
    leaves = [p if p is not None and p.requires_grad else None for p in (x, weight, bias)]
    found = iter(torch.autograd.grad(out, [p for p in leaves if p is not None], grad, create_graph=True))
    return tuple(None if p is None else next(found) for p in leaves)


class Direct(torch.autograd.Function):
    """`note_tta::iabn` without the dispatcher, which alone takes as long as a small layer."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        """See `forward`."""
        output = forward(*inputs)
        _keep(ctx, inputs, output)
        ctx.mark_non_differentiable(*output[1:])
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        """The gradients of the inputs."""
        return _differentiate(ctx, *grads)


def _register() -> torch.library.Library:
    library = torch.library.Library("note_tta", "DEF")
    affine = "Tensor? weight, Tensor? bias, float eps, float alpha, int correction"
    library.define(f"iabn_infer(Tensor x, Tensor mean, Tensor var, {affine}) -> Tensor")
    library.define(
        f"iabn(Tensor x, Tensor? mean, Tensor? var, {affine}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
    )
    library.define(
        "iabn_backward(Tensor grad, Tensor x, Tensor instance_mean, Tensor instance_m2, Tensor mean, "
        "Tensor var, Tensor? weight, float eps, float alpha, int correction, bool training, bool wanted) "
        "-> (Tensor, Tensor, Tensor)"
    )
    for name, cpu, fake in (
        ("iabn_infer", infer, _fake_infer),
        ("iabn", forward, _fake_forward),
        ("iabn_backward", backward, _fake_backward),
    ):
        library.impl(name, cpu, "CPU")
        torch.library.register_fake(f"note_tta::{name}", fake, lib=library)
    torch.library.register_autograd("note_tta::iabn", _differentiate, setup_context=_keep, lib=library)
    return library


LIBRARY = _register()
