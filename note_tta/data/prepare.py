"""Regenerate a corrupted set from clean data, in the published layout. A stopped run can be continued.

Each file is written under a temporary name, renamed when it is complete, and then listed in the manifest.
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

    Parts that the manifest lists are skipped, so a stopped run continues. By default all corruptions that results
    are reported on are made; the validation corruptions and `night` are made only if `corruptions` names them.
    All severities are made unless `severities` names some; MNIST-C has one.
    """
    make = find_dataset(name).prepares
    if make is None:
        known = ", ".join(record.name for record in DATASETS.values() if record.prepares)
        raise ValueError(f"cannot regenerate {name!r}; these can be: {known}")
    chosen = None if corruptions is None else tuple(corruptions)
    levels = None if severities is None else tuple(severities)
    count = (os.cpu_count() or 1) if workers is None else workers
    return make(root, Wanted(chosen, levels, seed, count, progress))
