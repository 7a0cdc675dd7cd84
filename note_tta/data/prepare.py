"""Regenerate a corrupted set from clean data: on every core, resumable, in the published layout.

Each file is written under a temporary name and renamed when it is whole; the manifest then lists it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from . import DATASETS, find_dataset
from .record import Progress, Wanted


def prepare(
    name: str,
    root: Path,
    *,
    corruptions: Iterable[str] | None = None,
    severities: Iterable[int] | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Path:
    """Regenerate the corrupted set of `name` under `root` and return its folder.

    What the manifest lists is skipped, so a stopped run goes on where it was. Every corruption that results
    are reported on is made unless `corruptions` names some: the validation corruptions and `night` are made
    only when named. Every severity is made unless `severities` names some; MNIST-C has one.
    """
    make = find_dataset(name).prepares
    if make is None:
        known = ", ".join(record.name for record in DATASETS.values() if record.prepares)
        raise ValueError(f"cannot regenerate {name!r}; these can be: {known}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    chosen = None if corruptions is None else tuple(corruptions)
    levels = None if severities is None else tuple(severities)
    return make(root, Wanted(chosen, levels, seed, workers or os.cpu_count() or 1, progress))
