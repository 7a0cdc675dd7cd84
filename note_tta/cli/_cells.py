"""What `run` and `reproduce` share: settings from options, and running cells with a progress bar."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from ..experiments.cell import Job
    from ..experiments.store import Store
    from ..experiments.worker import Settings


def settings(
    data_root: Path | None, models: Path | None, workers: int | None, device: str | None, ray: str | None
) -> Settings:
    """Settings for workers that share this machine's cores evenly."""
    from ..experiments.process_pool import available_cores
    from ..experiments.worker import Settings
    from ._options import find_device

    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    cores = available_cores()
    threads = 1 if ray is not None and workers is None else max(1, cores // (workers or cores))
    return Settings(
        data_root=None if data_root is None else str(data_root.resolve()),
        models=None if models is None else str(models.resolve()),
        threads=threads,
        device=str(find_device(device)),
    )


def parse_options(pairs: Sequence[str], option: str) -> dict[str, Any]:
    """Read `name=value` pairs; a value that looks like a number or a bool becomes one.

    Example:
        >>> parse_options(["lr=5e-4", "memory=reservoir", "interval=32"], "--set")
        {'lr': 0.0005, 'memory': 'reservoir', 'interval': 32}
    """
    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise ValueError(f"{option} takes name=value, got {pair!r}")
        parsed[name.replace("-", "_")] = _value(text)
    return parsed


def run_and_report(
    cells: Sequence[Job],
    store: Store,
    where: Settings,
    workers: int | None,
    ray: str | None,
    again: bool = False,
) -> None:
    """Run cells with a progress bar. Ctrl-C stops cleanly; failed cells are an error at the end."""
    from ..experiments.runner import make_backend, run_cells
    from ..progress import progress_bars

    try:
        with progress_bars() as follow:
            backend, told = partial(make_backend, where, workers, ray), partial(typer.echo, err=True)
            tally = run_cells(cells, store, where, backend, told, partial(follow, "cells"), again=again)
    except KeyboardInterrupt:
        done = f"{sum(cell in store for cell in cells)} of {len(cells)} cells are done"
        typer.echo(f"stopped: {done}; give the same command to continue", err=True)
        raise typer.Exit(130) from None
    if tally.failed:
        (cell, message), failed = tally.failed[0], len(tally.failed)
        raise ValueError(f"{failed} of {len(cells)} cells failed; the first, {cell.describe()}: {message}")


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
