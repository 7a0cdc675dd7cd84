"""Check what is in the data root against what was published: counts, shapes, checksums."""

from __future__ import annotations

from pathlib import Path

from . import find_dataset, open_dataset
from .base import BadData, MissingData
from .checks import Check


def verify(name: str, root: Path) -> list[Check]:
    """Check a dataset in the data root; every check is made, a failed one does not stop the others."""
    checks: list[Check] = []
    try:
        checks.extend(find_dataset(name).checks(root))
    except (MissingData, BadData) as error:
        checks.append(Check(name, False, str(error)))
    return checks


def status(name: str, root: Path) -> tuple[bool, str]:
    """Whether a dataset can be opened and, in one line, which of its domains have their files."""
    try:
        dataset = open_dataset(name, root)
    except (MissingData, BadData) as error:
        return False, str(error)
    usable, origins = [], set()
    for domain in dataset.targets:
        try:
            origins.add(dataset.domain(domain).origin)
            usable.append(domain)
        except (MissingData, BadData) as error:
            if len(dataset.targets) == 1:
                return False, str(error)
    total = len(dataset.targets) + len(dataset.absent)
    how = f" ({', '.join(sorted(origins))})" if origins else ""
    return bool(usable), f"{len(usable)} of {total} target domains{how}"
