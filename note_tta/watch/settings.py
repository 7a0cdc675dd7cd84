"""Checks of a watch's settings, from a caller or from a state."""

from __future__ import annotations

from typing import Any

from ..methods.settings import check_count

CHECKED = ("expected_run", "tolerance", "look", "sample", "snapshots")


def check(expected_run: int, tolerance: float, look: int, sample: int, snapshots: int) -> None:
    """Refuse invalid settings."""
    check_count("sample", sample, 1)
    check_count("look", look, 1)
    check_count("expected_run", expected_run, 2 * look)
    check_count("snapshots", snapshots, 1)
    if look % sample:
        raise ValueError(f"look must be a multiple of sample ({sample}), got {look}")
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must be between 0 and 1, got {tolerance}")


def check_state(state: Any, own: dict[str, Any]) -> None:
    """Refuse a state with invalid settings.

    Args:
        state: A watch's state.
        own: The present settings, for those that the state does not have.
    """
    settings = state.get("settings") if isinstance(state, dict) else None
    if isinstance(settings, dict):
        try:
            check(**{name: settings.get(name, value) for name, value in own.items()})
        except TypeError as error:
            raise ValueError(f"not a state of Watch: {error}") from error
