"""Data-parallel training under `torchrun`: who am I, and what only one process may do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class Team(NamedTuple):
    """This process among those that train together."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0

    def share(self, batch: Tensor) -> Tensor:
        """Return this process's part of a batch of indices."""
        return batch.tensor_split(self.size)[self.rank]

    def total(self, values: Tensor) -> Tensor:
        """Add up every process's values."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def wait(self) -> None:
        """Go on only when every process has come here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def join_team(device: torch.device) -> Iterator[Team]:
    """Join the processes `torchrun` started; without it, a team of one.

    A process group that the caller has set up already is used and left standing.
    """
    if dist.is_available() and dist.is_initialized():
        yield Team(dist.get_rank(), dist.get_world_size())
        return
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Team()
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Team(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
