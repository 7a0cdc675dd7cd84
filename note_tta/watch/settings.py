"""The settings of a watch, looked at where they come in: from a caller or from a state."""

from __future__ import annotations

from ..methods.settings import check_count

CHECKED = ("expected_run", "tolerance", "look", "sample", "snapshots")


def check(expected_run: int, tolerance: float, look: int, sample: int, snapshots: int) -> None:
    """Refuse settings that make no sense."""
    check_count("sample", sample, 1)
    check_count("look", look, 1)
    check_count("expected_run", expected_run, 2 * look)
    check_count("snapshots", snapshots, 1)
    if look % sample:
        raise ValueError(f"look must be a multiple of sample ({sample}), got {look}")
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must be between 0 and 1, got {tolerance}")
