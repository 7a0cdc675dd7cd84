"""Data-parallel training under `torchrun`: the rank of this process and its share of the work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class Team(NamedTuple):
    """This process among the processes of a training run."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def share(self, batch: Tensor) -> Tensor:
        """Return this process's part of a batch of indices."""
        return batch.tensor_split(self.size)[self.rank]

    def total(self, values: Tensor) -> Tensor:
        """The sum of the values of all processes."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def join_team(device: torch.device) -> Iterator[Team]:
    """Join the processes that `torchrun` started; without it, a team of one.

    A process group that the caller has set up is used and not closed.
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
