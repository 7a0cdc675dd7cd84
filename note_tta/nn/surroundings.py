"""What goes on around a call and is no argument of it: transforms, tracing, compilers, observers.

The fused kernel computes on memory, behind PyTorch's back, so it has to know. PyTorch tells some of it
through private names only. Where one of them is gone, `MISSING` says so, and the kernel stays off.
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
    """Whether `torch.func` or forward-mode differentiation is at work, or `torch.jit.trace` listens."""
    return _transforms() is not None or _tracing() or forward_ad._current_level >= 0


def inside_transform() -> bool:
    """Whether `torch.func` is at work; cheap enough to be asked while `torch.compile` traces."""
    return _transforms() is not None


def observed() -> bool:
    """Whether a dispatch mode looks on at operators, who would miss a direct call of the kernel."""
    return _modes() > 0


def exporting() -> bool:
    """Whether `torch.export` traces: what it writes must run where this package is not installed."""
    found = getattr(torch.compiler, "is_exporting", None)
    return found is not None and found()
