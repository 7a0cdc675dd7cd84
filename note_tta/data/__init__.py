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
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from .base import BadData, Dataset, Domain, MissingData
from .cifar import open_cifar
from .digits import open_digits
from .extrasensory import open_extrasensory
from .hapt import open_hapt
from .harth import open_harth
from .imagenet import open_imagenet
from .kitti import open_kitti
from .mnist import open_mnist
from .root import resolve_root


def _embedded(_root: Path, **options: Any) -> Dataset:
    return open_digits(**options)


DATASETS: Mapping[str, Callable[..., Dataset]] = {
    "cifar10": partial(open_cifar, name="cifar10"),
    "cifar100": partial(open_cifar, name="cifar100"),
    "imagenet": open_imagenet,
    "mnist": open_mnist,
    "kitti": open_kitti,
    "harth": open_harth,
    "extrasensory": open_extrasensory,
    "hapt": open_hapt,
    "digits": _embedded,
}


def open_dataset(name: str, root: str | os.PathLike[str] | None = None, **options: Any) -> Dataset:
    """Open a dataset by name.

    Args:
        name: one of `DATASETS`.
        root: the data root; see `resolve_root`.
        **options: what that dataset takes: `severity` (cifar10, cifar100, imagenet), `imbalance` (cifar10,
            cifar100, mnist), `rate` (kitti), `rotation` (hapt), `seed` (digits).

    Raises:
        MissingData: nothing of the dataset is in the data root.
        BadData: a file is there, but damaged or not in the published format.
    """
    if name not in DATASETS:
        raise ValueError(f"unknown dataset {name!r}; known are: {', '.join(DATASETS)}")
    try:
        return DATASETS[name](resolve_root(root), **options)
    except TypeError as error:
        if options and "unexpected keyword" in str(error):
            raise TypeError(f"dataset {name} does not take these options: {', '.join(options)}") from error
        raise


__all__ = ["DATASETS", "BadData", "Dataset", "Domain", "MissingData", "open_dataset", "resolve_root"]
