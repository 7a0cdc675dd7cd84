"""Where to compute."""

from __future__ import annotations

import os
from typing import Any


def find_device(name: str | None) -> Any:
    """The device of a name; without one CUDA where it is present, else the CPU.

    Raises:
        ValueError: Nothing can be computed there.
    """
    import torch

    if name is None:
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"cannot compute on device {name!r}: {str(error).splitlines()[0]}") from None
