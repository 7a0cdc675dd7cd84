"""Checks of keyword arguments."""

from __future__ import annotations

import math


def check_count(name: str, value: int, least: int, most: int | None = None) -> None:
    """Refuse a value that is not a whole number in a range.

    Example:
        >>> check_count("interval", 0, least=1)
        Traceback (most recent call last):
        ...
        ValueError: interval must be at least 1, got 0
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be {bounds}, got {value}")


def check_share(name: str, value: float) -> None:
    """Refuse a value that is not a number in [0, 1]."""
    _check_number(name, value)
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value}")


def check_rate(name: str, value: float, *, zero: bool = False, infinite: bool = False) -> None:
    """Refuse a value that is not a number greater than 0, or not finite; `zero` and `infinite` may be allowed."""
    _check_number(name, value)
    if not (value >= 0 if zero else value > 0) or (value == math.inf and not infinite):
        bounds = f"{'at least' if zero else 'greater than'} 0{'' if infinite else ' and finite'}"
        raise ValueError(f"{name} must be {bounds}, got {value}")


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
