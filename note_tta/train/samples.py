"""Training data: its interface, subsets, batches and augmentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Samples(Protocol):
    """What training needs of its data; the domains of `note_tta.data` have it."""

    def __len__(self) -> int: ...

    @property
    def labels(self) -> Tensor:
        """One class index per sample."""

    @property
    def fingerprint(self) -> str:
        """A digest of the content."""

    def inputs(self, indices: Tensor, /) -> Tensor:
        """Return the samples at these indices, `[n, ...]`, float32."""


class Subset:
    """A fixed random subset of some samples, for smaller runs.

    Args:
        samples: All samples.
        count: How many to keep.
        seed: Seed of the choice.
    """

    def __init__(self, samples: Samples, count: int, *, seed: int = 0) -> None:
        if not 1 <= count <= len(samples):
            raise ValueError(f"cannot take {count} of {len(samples)} samples")
        order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed))
        self._samples = samples
        self._indices = order[:count].sort().values
        self.labels = samples.labels[self._indices]
        self.fingerprint = f"{samples.fingerprint}/{count} of {len(samples)}, seed {seed}"

    def __len__(self) -> int:
        return len(self._indices)

    def inputs(self, indices: Tensor, /) -> Tensor:
        """Return the samples at these indices of the subset."""
        return self._samples.inputs(self._indices[indices])


class _ByBatch(Dataset[tuple[Tensor, Tensor]]):
    """Samples by the indices of a batch."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def __getitem__(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        return self._samples.inputs(indices), self._samples.labels[indices]


def read_batches(
    samples: Samples, batches: list[Tensor], *, workers: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield `(inputs, labels)` for each tensor of indices, in order, read ahead by `workers` processes."""
    return iter(DataLoader(_ByBatch(samples), batch_size=None, sampler=batches, num_workers=workers))


def epoch_batches(
    count: int, batch_size: int, *, generator: torch.Generator, processes: int = 1
) -> list[Tensor]:
    """Shuffle `count` samples into batches.

    The last batch may be smaller. It is left out if it has fewer than two samples per process, on which
    BatchNorm cannot train.

    Example:
        >>> [len(b) for b in epoch_batches(10, 4, generator=torch.Generator().manual_seed(0))]
        [4, 4, 2]
    """
    batches = list(torch.randperm(count, generator=generator).split(batch_size))
    if len(batches[-1]) < 2 * processes:
        batches.pop()
    if not batches:
        needed = f"each of {processes} processes needs at least two samples per step"
        raise ValueError(f"{count} samples make no batch: {needed}")
    return batches


def augment(
    x: Tensor,
    generator: torch.Generator,
    *,
    crop_padding: int = 0,
    crop_fill: str = "reflect",
    flip: bool = False,
) -> Tensor:
    """Pad each image, crop it at a random place, and mirror half of the images at random.

    Images are `[B, C, H, W]` in [0, 1]; the options are those of a `Recipe`. The numbers are drawn on the CPU, so the
    same seed gives the same images on every device.
    """
    if not crop_padding and not flip:
        return x
    if x.dim() != 4:
        raise ValueError(f"only images [B, C, H, W] can be cropped or flipped, got shape {tuple(x.shape)}")
    batch, _, height, width = x.shape
    rows, columns = torch.arange(height).expand(batch, -1), torch.arange(width).expand(batch, -1)
    if crop_padding:
        offsets = torch.randint(0, 2 * crop_padding + 1, (2, batch, 1), generator=generator)
        rows, columns = rows + offsets[0], columns + offsets[1]
        x = F.pad(x, (crop_padding,) * 4, mode="constant" if crop_fill == "black" else "reflect")
    if flip:
        mirrored = torch.rand(batch, 1, generator=generator) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
    rows, columns = rows.to(x.device), columns.to(x.device)
    picked = torch.arange(batch, device=x.device)
    return x[picked[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
