"""Whether a call runs inside a transform, a trace, a compiler or a mode that observes operators.

The fused kernel accesses memory directly, which PyTorch does not see, so it must not run inside these. PyTorch reports
some of them only through private names. If one of these names is missing, `MISSING` says so, and the kernel stays off.
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
    MISSING = f"torch {torch.__version__} does not report when the kernel must not be used ({error})"


def transformed() -> bool:
    """Whether `torch.func`, forward-mode differentiation or `torch.jit.trace` is active."""
    return _transforms() is not None or _tracing() or forward_ad._current_level >= 0


def inside_transform() -> bool:
    """Whether `torch.func` is active; cheap enough to call while `torch.compile` traces."""
    return _transforms() is not None


def observed() -> bool:
    """Whether a dispatch mode observes operators; it would not see a direct call of the kernel."""
    return _modes() > 0


def exporting() -> bool:
    """Whether `torch.export` is active. Its result must also run where this package is not installed."""
    found = getattr(torch.compiler, "is_exporting", None)
    return found is not None and found()
