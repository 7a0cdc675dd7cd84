"""The device that a command computes on."""

from __future__ import annotations

import os
from typing import Any


def find_device(name: str | None) -> Any:
    """The device with this name; by default CUDA if present, else the CPU.

    Raises:
        ValueError: The device is not available.
    """
    import torch

    if name is None:
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"cannot compute on device {name!r}: {str(error).splitlines()[0]}") from None
