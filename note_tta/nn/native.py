"""Loads the fused kernel, a shared object in plain C, and passes tensors to it as packed pointers."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import surroundings

SWITCH = "NOTE_TTA_KERNEL"
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""The input dtypes that the kernel handles, with their numbers in C."""
_ELEMENTS_PER_THREAD = 16384
# `Request` in _iabn.c: 13 pointers; batch, channels, positions; eps, alpha; rows, training, correction,
# threads, apart, type. Passing one packed record takes a third of the time of passing as many ctypes arguments.
_INTERFACE = 3
_REQUEST = struct.Struct("13P3q2f6i")


@dataclass(frozen=True)
class Kernel:
    """The kernel of this process, or the reason why there is none.

    Attributes:
        forward: The C function of the forward pass; None if there is no kernel.
        backward: The C function of the backward pass.
        reason: Why the kernel is active or not, in words.
        switched_off: Whether the environment asks for the plain formula.
        path: The expected path of the shared object.
        isa: The chosen instruction set: `base`, `avx2` or `avx512`.
        threads: Which threads the kernel runs on, in words.
    """

    forward: Any
    backward: Any
    reason: str
    path: Path
    switched_off: bool = False
    isa: str = ""
    threads: str = ""

    @property
    def active(self) -> bool:
        """Whether the kernel can be used."""
        return self.forward is not None


@functools.cache
def kernel() -> Kernel:
    """Return the kernel, which is loaded once per process. This never raises.

    Example:
        >>> kernel() is kernel()
        True
    """
    return load(Path(__file__).with_name("_iabn.so"))


def load(path: Path) -> Kernel:
    """Load the shared object at `path`, unless the environment variable `NOTE_TTA_KERNEL` is `off`.

    Example:
        >>> load(Path("nowhere/_iabn.so")).reason
        'nowhere/_iabn.so does not exist: the install found no working C compiler'
    """
    if os.environ.get(SWITCH, "").lower() in ("0", "off", "no"):
        reason = f"switched off by the environment variable {SWITCH}"
        return Kernel(None, None, reason, path, switched_off=True)
    if not path.exists():
        return Kernel(None, None, f"{path} does not exist: the install found no working C compiler", path)
    if surroundings.MISSING:
        return Kernel(None, None, surroundings.MISSING, path)
    try:
        library = ctypes.CDLL(str(path))
        if not hasattr(library, "iabn_interface") or library.iabn_interface() != _INTERFACE:
            return Kernel(
                None, None, f"{path} was built from another version: install the package again", path
            )
        library.iabn_setup.argtypes = [ctypes.c_void_p] * 3
        library.iabn_isa.restype = ctypes.c_char_p
        forward, backward = library.iabn_forward, library.iabn_backward
        forward.argtypes, forward.restype = [ctypes.c_char_p], None
        backward.argtypes, backward.restype = [ctypes.c_char_p], ctypes.c_int
        addresses, threads = _torch_threads()
        library.iabn_setup(*addresses)
        isa = library.iabn_isa().decode()
    except (OSError, AttributeError) as error:
        return Kernel(None, None, f"{path} cannot be loaded: {error}", path)
    return Kernel(forward, backward, f"loaded from {path}", path, isa=isa, threads=threads)


@functools.cache
def torch_library() -> ctypes.CDLL | None:
    """The library of torch's CPU operators, through which its OpenMP and MKL are reached; None if it is not found."""
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        path = Path(torch.__file__).parent / "lib" / name
        if path.exists():
            with contextlib.suppress(OSError):
                return ctypes.CDLL(str(path))
    return None


def _torch_threads() -> tuple[tuple[int | None, ...], str]:
    """Find the OpenMP runtime that torch runs on, so that both use one pool of threads."""
    names, library = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads"), torch_library()
    if library is not None and all(hasattr(library, name) for name in names):
        found = tuple(ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in names)
        return found, "torch's own (OpenMP)"
    return (None, None, None), "one, because torch's OpenMP runtime was not found"


def request(
    x: Tensor,
    out: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    layer: tuple[Tensor | None, Tensor | None],
    instances: tuple[Tensor, Tensor] | None,
    settings: tuple[float, float, int],
    *,
    batch: tuple[Tensor, Tensor] | None = None,
    training: bool = False,
    grad: Tensor | None = None,
    grad_affine: tuple[Tensor, Tensor] | None = None,
) -> bytes:
    """Pack the arguments of a kernel call for C. The caller must keep every tensor alive until the call returns."""
    batch_size, channels, *_ = x.shape
    elements = x.numel()
    mean, var = layer
    eps, alpha, correction = settings
    return _REQUEST.pack(
        x.data_ptr(),
        0 if grad is None else grad.data_ptr(),
        0 if out is None else out.data_ptr(),
        0 if weight is None else weight.data_ptr(),
        0 if bias is None else bias.data_ptr(),
        0 if mean is None else mean.data_ptr(),
        0 if var is None else var.data_ptr(),
        0 if batch is None else batch[0].data_ptr(),
        0 if batch is None else batch[1].data_ptr(),
        0 if instances is None else instances[0].data_ptr(),
        0 if instances is None else instances[1].data_ptr(),
        0 if grad_affine is None else grad_affine[0].data_ptr(),
        0 if grad_affine is None else grad_affine[1].data_ptr(),
        batch_size,
        channels,
        elements // (batch_size * channels),
        eps,
        alpha,
        not x.is_contiguous(),
        training,
        correction,
        min(torch.get_num_threads(), 1 + elements // _ELEMENTS_PER_THREAD),
        mean is not None and mean.numel() != channels,
        TYPES[x.dtype],
    )
