"""The context of a call that is not in its arguments: transforms, tracing, compilers, observers.

The fused kernel works on memory without PyTorch's knowledge, so it must not run inside these. PyTorch reports some
of them only through private names. If one of the names is missing, `MISSING` says so and the kernel stays off.
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

MISSING = ""
try:
    _transforms = torch._C._functorch.peek_interpreter_stack
    _tracing = torch._C._is_tracing
    _modes = torch._C._len_torch_dispatch_stack
    _level = forward_ad._current_level
except AttributeError as error:
    MISSING = f"torch {torch.__version__} does not tell when it must not be used ({error})"


def transformed() -> bool:
    """Whether `torch.func`, forward-mode differentiation or `torch.jit.trace` is active."""
    return _transforms() is not None or _tracing() or forward_ad._current_level >= 0


def inside_transform() -> bool:
    """Whether `torch.func` is active; cheap enough to call while `torch.compile` traces."""
    return _transforms() is not None


def observed() -> bool:
    """Whether a dispatch mode observes operators; it would miss a direct call of the kernel."""
    return _modes() > 0


def exporting() -> bool:
    """Whether `torch.export` is active: its result must run where this package is not installed."""
    found = getattr(torch.compiler, "is_exporting", None)
    return found is not None and found()
