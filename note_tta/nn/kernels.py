"""The fast path of IABN: a fused C kernel behind PyTorch operators, with the plain formula as its fallback.

`iabn` has the signature and the results of `functional.iabn`. It takes the kernel for float32 tensors on the CPU
that are contiguous or channels-last, and the plain formula for everything else: other dtypes and devices,
`torch.func` transforms, forward-mode differentiation, tracing and ONNX export, and installs without a C compiler.

Three operators are registered, so that `torch.compile` sees one node where it would otherwise see Python:
`note_tta::iabn_infer` (no autograd: cheap to call, for batch-1 inference), `note_tta::iabn` (differentiable, the
layer's or the batch's statistics) and `note_tta::iabn_backward`.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import functional

_PLAIN = (Tensor, torch.nn.Parameter)
_FLOATS_PER_THREAD = 16384
_SWITCH = "NOTE_TTA_KERNEL"


@dataclass(frozen=True)
class Kernel:
    """The loaded shared object, or why there is none."""

    library: Any
    reason: str
    path: Path
    isa: str = ""
    threads: str = ""

    @property
    def active(self) -> bool:
        """Whether the fast path can be taken."""
        return self.library is not None


@functools.cache
def kernel() -> Kernel:
    """Load the kernel once a process; never raises.

    Example:
        >>> kernel() is kernel()
        True
    """
    path = Path(__file__).with_name("_iabn.so")
    if os.environ.get(_SWITCH, "").lower() in ("0", "off", "no"):
        return Kernel(None, f"switched off by the environment variable {_SWITCH}", path)
    if not path.exists():
        return Kernel(None, f"{path} does not exist: no working C compiler was found at install", path)
    try:
        library = ctypes.CDLL(str(path))
        library.iabn_isa.restype = ctypes.c_char_p
        library.iabn_setup.argtypes = [ctypes.c_void_p] * 3
        library.iabn_forward.argtypes = (
            [ctypes.c_void_p] * 10
            + [ctypes.c_int64] * 3
            + [ctypes.c_int] * 2
            + [ctypes.c_float] * 2
            + [ctypes.c_int]
        )
        library.iabn_forward.restype = None
        library.iabn_backward.argtypes = (
            [ctypes.c_void_p] * 10
            + [ctypes.c_int64] * 3
            + [ctypes.c_int] * 3
            + [ctypes.c_float] * 2
            + [ctypes.c_int]
        )
    except (OSError, AttributeError) as error:
        return Kernel(None, f"{path} cannot be loaded: {error}", path)
    addresses, threads = _torch_threads()
    library.iabn_setup(*addresses)
    return Kernel(library, "loaded", path, library.iabn_isa().decode(), threads)


def _torch_threads() -> tuple[tuple[int | None, ...], str]:
    """The addresses of the OpenMP runtime that torch itself runs on, so that both use one pool of threads."""
    names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
    for library in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        path = Path(torch.__file__).parent / "lib" / library
        if not path.exists():
            continue
        try:
            torch_cpu = ctypes.CDLL(str(path))
            found = tuple(ctypes.cast(getattr(torch_cpu, name), ctypes.c_void_p).value for name in names)
        except (OSError, AttributeError):
            continue
        return found, "shared with torch (OpenMP)"
    return (None, None, None), "one: torch's OpenMP runtime was not found"


@functools.cache
def _say_once() -> None:
    warnings.warn(
        f"the fast path of IABN is off, the plain formula runs instead: {kernel().reason}. "
        "`note-tta doctor` tells more.",
        RuntimeWarning,
        stacklevel=4,
    )


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
    if not (_suits(x, alpha) and _suit(x, running_mean, running_var, weight, bias)):
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
    batch = training or running_mean is None or running_var is None
    differentiable = torch.is_grad_enabled() and (
        x.requires_grad
        or (weight is not None and weight.requires_grad)
        or (bias is not None and bias.requires_grad)
    )
    if not batch and not differentiable:
        out: Tensor = torch.ops.note_tta.iabn_infer(
            x, running_mean, running_var, weight, bias, eps, alpha, correction
        )
        return out
    mean, var = (None, None) if batch else (running_mean, running_var)
    out, _, _, mean, var = torch.ops.note_tta.iabn(x, mean, var, weight, bias, eps, alpha, correction)
    if training and running_mean is not None and running_var is not None:
        functional.move_running_statistics(
            x, mean.detach(), var.detach(), running_mean, running_var, momentum, correction
        )
    return out


def _suits(x: Tensor, alpha: float) -> bool:
    """Whether the kernel can take this input here and now."""
    if (
        x.dtype is not torch.float32
        or type(x) not in _PLAIN
        or not x.is_cpu
        or x.ndim < 3
        or alpha == math.inf
    ):
        return False
    if not torch.compiler.is_compiling():
        if not kernel().active:
            if _SWITCH not in kernel().reason:
                _say_once()
            return False
        if (
            torch._C._functorch.peek_interpreter_stack() is not None
            or torch._C._is_tracing()
            or torch.autograd.forward_ad._current_level >= 0
        ):
            return False
    positions = x.numel() // max(1, x.shape[0] * x.shape[1])
    return positions > 1 and (x.is_contiguous() or _rows(x))


def _suit(x: Tensor, *parameters: Tensor | None) -> bool:
    """Whether the kernel can take these statistics and affine parameters."""
    for number, p in enumerate(parameters):
        if p is None:
            continue
        if p.dtype is not torch.float32 or type(p) not in _PLAIN or not p.is_cpu or not p.is_contiguous():
            return False
        if p.numel() != x.shape[1] or (number < 2 and p.requires_grad):
            return False
    return True


def _rows(x: Tensor) -> bool:
    """Whether a position's channels lie together (channels-last), and are enough for a vector."""
    if x.shape[1] < 4:
        return False
    if x.ndim == 4:
        return x.is_contiguous(memory_format=torch.channels_last)
    return x.ndim == 5 and x.is_contiguous(memory_format=torch.channels_last_3d)


def _threads(x: Tensor) -> int:
    return min(torch.get_num_threads(), 1 + x.numel() // _FLOATS_PER_THREAD)


def _pointer(p: Tensor | None) -> int | None:
    return None if p is None else p.data_ptr()


def _dense(x: Tensor) -> tuple[Tensor, bool]:
    """`x` in a layout that the kernel reads, and whether that is the rows layout."""
    if x.is_contiguous():
        return x, False
    return (x, True) if _rows(x) else (x.contiguous(), False)


def _infer(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    alpha: float,
    correction: int,
) -> Tensor:
    source, rows = _dense(x)
    out = torch.empty_like(source)
    kernel().library.iabn_forward(
        source.data_ptr(),
        out.data_ptr(),
        _pointer(weight),
        _pointer(bias),
        mean.data_ptr(),
        var.data_ptr(),
        None,
        None,
        None,
        None,
        x.shape[0],
        x.shape[1],
        x.numel() // (x.shape[0] * x.shape[1]),
        rows,
        correction,
        eps,
        alpha,
        _threads(x),
    )
    return out if source is x else torch.empty_like(x).copy_(out)


def _forward(
    x: Tensor,
    mean: Tensor | None,
    var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    alpha: float,
    correction: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    source, rows = _dense(x)
    out = torch.empty_like(source)
    instance_mean, instance_m2, batch_mean, batch_var = _statistics_of(x, mean is None)
    kernel().library.iabn_forward(
        source.data_ptr(),
        out.data_ptr(),
        _pointer(weight),
        _pointer(bias),
        _pointer(mean),
        _pointer(var),
        instance_mean.data_ptr(),
        instance_m2.data_ptr(),
        batch_mean.data_ptr() if mean is None else None,
        batch_var.data_ptr() if mean is None else None,
        x.shape[0],
        x.shape[1],
        x.numel() // (x.shape[0] * x.shape[1]),
        rows,
        correction,
        eps,
        alpha,
        _threads(x),
    )
    out = out if source is x else torch.empty_like(x).copy_(out)
    return out, instance_mean, instance_m2, batch_mean, batch_var


def _statistics_of(x: Tensor, batch: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Room for an instance's mean and squared deviations, and for the batch's statistics where they are used."""
    instances, channels = (x.shape[0], x.shape[1]), x.shape[1] if batch else 0
    return x.new_empty(instances), x.new_empty(instances), x.new_empty(channels), x.new_empty(channels)


def _backward(
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
    batch: bool,
    wanted: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    source, rows = _dense(x)
    layout = torch.channels_last if rows and x.ndim == 4 else torch.channels_last_3d if rows else None
    grad = grad.contiguous(memory_format=layout or torch.contiguous_format)
    grad_x = torch.empty_like(source) if wanted else x.new_empty(0)
    grad_weight, grad_bias = x.new_empty(x.shape[1]), x.new_empty(x.shape[1])
    failed = kernel().library.iabn_backward(
        grad.data_ptr(),
        source.data_ptr(),
        _pointer(weight),
        mean.data_ptr(),
        var.data_ptr(),
        instance_mean.data_ptr(),
        instance_m2.data_ptr(),
        grad_x.data_ptr() if wanted else None,
        grad_weight.data_ptr(),
        grad_bias.data_ptr(),
        x.shape[0],
        x.shape[1],
        x.numel() // (x.shape[0] * x.shape[1]),
        rows,
        batch,
        correction,
        eps,
        alpha,
        _threads(x),
    )
    if failed:
        raise MemoryError(f"no memory for the backward of IABN on an input of shape {tuple(x.shape)}")
    if wanted and source is not x:
        grad_x = torch.empty_like(x).copy_(grad_x)
    return grad_x, grad_weight, grad_bias


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, mean, var, weight, bias, eps, alpha, correction = inputs
    _, instance_mean, instance_m2, batch_mean, batch_var = output
    ctx.save_for_backward(x, mean, var, weight, bias, instance_mean, instance_m2, batch_mean, batch_var)
    ctx.settings = eps, alpha, correction


def _differentiate(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    x, mean, var, weight, bias, instance_mean, instance_m2, batch_mean, batch_var = ctx.saved_tensors
    needs = ctx.needs_input_grad
    eps, alpha, correction = ctx.settings
    if torch.is_grad_enabled():
        grads = _differentiate_twice(grad, x, mean, var, weight, bias, eps, alpha, correction)
    else:
        layer = (batch_mean, batch_var) if mean is None else (mean, var)
        grads = torch.ops.note_tta.iabn_backward(
            grad,
            x,
            instance_mean,
            instance_m2,
            *layer,
            weight,
            eps,
            alpha,
            correction,
            mean is None,
            needs[0],
        )
    grad_x, grad_weight, grad_bias = grads
    return (
        grad_x if needs[0] else None,
        None,
        None,
        grad_weight if needs[3] else None,
        grad_bias if needs[4] else None,
        None,
        None,
        None,
    )


def _differentiate_twice(
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
    """The gradients as a graph (`create_graph=True`), by the plain formula."""
    out = functional.iabn(
        x, mean, var, weight, bias, training=mean is None, eps=eps, alpha=alpha, correction=correction
    )
    wanted = [p if p is not None and p.requires_grad else None for p in (x, weight, bias)]
    found = iter(torch.autograd.grad(out, [p for p in wanted if p is not None], grad, create_graph=True))
    return tuple(None if p is None else next(found) for p in wanted)


def _fake_forward(x: Tensor, mean: Tensor | None, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(x), *_statistics_of(x, mean is None)


def _fake_backward(grad: Tensor, x: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    grad_x = torch.empty_like(x) if others[-1] else x.new_empty(0)
    return grad_x, x.new_empty(x.shape[1]), x.new_empty(x.shape[1])


def _register() -> torch.library.Library:
    affine = "Tensor? weight, Tensor? bias, float eps, float alpha, int correction"
    library = torch.library.Library("note_tta", "DEF")
    library.define(f"iabn_infer(Tensor x, Tensor mean, Tensor var, {affine}) -> Tensor")
    library.define(
        f"iabn(Tensor x, Tensor? mean, Tensor? var, {affine}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
    )
    library.define(
        "iabn_backward(Tensor grad, Tensor x, Tensor instance_mean, Tensor instance_m2, Tensor mean, Tensor var, "
        "Tensor? weight, float eps, float alpha, int correction, bool batch, bool wanted) -> (Tensor, Tensor, Tensor)"
    )
    library.impl("iabn_infer", _infer, "CPU")
    library.impl("iabn", _forward, "CPU")
    library.impl("iabn_backward", _backward, "CPU")
    torch.library.register_fake("note_tta::iabn_infer", lambda x, *_: torch.empty_like(x), lib=library)
    torch.library.register_fake("note_tta::iabn", _fake_forward, lib=library)
    torch.library.register_fake("note_tta::iabn_backward", _fake_backward, lib=library)
    torch.library.register_autograd(
        "note_tta::iabn", _differentiate, setup_context=_setup_context, lib=library
    )
    return library


_LIBRARY = _register()
