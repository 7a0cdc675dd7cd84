"""Every dataset of the paper, HAPT, and the embedded digits, behind one interface.

>>> dataset = open_dataset("digits")
>>> dataset.targets
('contrast', 'brightness', 'style')
>>> target = dataset.domain("style")
>>> target.inputs([0, 1]).shape
torch.Size([2, 1, 32, 32])
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..names import DATASET_HOMES, check_known, load
from . import _needs as _needs
from .base import BadData, Dataset, Domain, MissingData
from .record import DatasetRecord, Recipe
from .root import resolve_root

DATASETS: Mapping[str, DatasetRecord] = {key: load(f"data.{home}") for key, home in DATASET_HOMES.items()}
"""The record of every dataset by name."""


def find_dataset(name: str) -> DatasetRecord:
    """The record of a dataset by name.

    Raises:
        ValueError: There is no such dataset. The message lists all names.
    """
    check_known("dataset", name, DATASETS)
    return DATASETS[name]


def open_dataset(name: str, root: str | os.PathLike[str] | None = None, **options: Any) -> Dataset:
    """Open a dataset by name.

    Args:
        name: one of `DATASETS`.
        root: the data root; see `resolve_root`.
        **options: the dataset's own options, which its record lists in `options`.

    Raises:
        MissingData: nothing of the dataset is in the data root.
        BadData: a file is there, but damaged or not in the published format.
    """
    record = find_dataset(name)
    unknown = [option for option in options if option not in record.options]
    if unknown:
        taken = ", ".join(record.options) or "none"
        raise TypeError(f"dataset {name} does not take {', '.join(unknown)}; its options are: {taken}")
    return record.opens(resolve_root(root), **options)


__all__ = [
    "DATASETS",
    "BadData",
    "Dataset",
    "Domain",
    "MissingData",
    "Recipe",
    "DatasetRecord",
    "find_dataset",
    "open_dataset",
    "resolve_root",
]
