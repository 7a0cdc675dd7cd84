"""Warnings that point at the caller's line instead of a line of this library."""

from __future__ import annotations

import sys
import warnings

_INSIDE = ("note_tta.", "torch.")


def warn_caller(message: str) -> None:
    """Give a `RuntimeWarning` that names the last line of the caller's code, outside this library and torch."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_INSIDE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, RuntimeWarning, stacklevel=level)
