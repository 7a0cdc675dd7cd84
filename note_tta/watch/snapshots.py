"""Snapshots for rollbacks; older ones are kept more sparsely."""

from __future__ import annotations

from typing import Any, NamedTuple


class Snapshot(NamedTuple):
    """What was learned after a number of samples."""

    samples: int
    learned: dict[str, Any]


def name_of(snapshot: Snapshot | None) -> str:
    """Return the name of a snapshot in events; None means the source."""
    return "the source" if snapshot is None else f"sample {snapshot.samples:,}"


class Snapshots:
    """A few good snapshots whose ages grow by factors of four, as a part of a watch.

    One of every 4, 16, ... offered snapshots is kept for as long.

    Example:
        >>> ring = Snapshots()
        >>> for number in range(1, 10):
        ...     ring.add(number, {}, slots=3)
        >>> [snapshot.samples for snapshot in ring.newest_first()]
        [9, 8]
    """

    def __init__(self) -> None:
        self.offered = 0
        self.held: dict[int, Snapshot] = {}

    def add(self, samples: int, learned: dict[str, Any], slots: int) -> None:
        """Offer a snapshot to a ring with this many slots."""
        self.offered += 1
        zeros = (self.offered & -self.offered).bit_length() - 1
        self.held[min(zeros // 2, slots - 1)] = Snapshot(samples, learned)

    def newest_first(self) -> list[Snapshot]:
        """All snapshots, newest first."""
        return sorted(self.held.values(), key=lambda snapshot: -snapshot.samples)

    def drop_from(self, samples: int) -> None:
        """Drop the snapshots that were taken at this sample or later."""
        self.held = {slot: each for slot, each in self.held.items() if each.samples < samples}

    def state_dict(self) -> dict[str, Any]:
        """The snapshots, by slot."""
        return {"offered": self.offered, "held": {slot: list(each) for slot, each in self.held.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state."""
        held = {
            int(slot): Snapshot(int(samples), learned) for slot, (samples, learned) in state["held"].items()
        }
        if any(set(each.learned) != {"model", "parts"} for each in held.values()):
            raise ValueError("its snapshots have other entries than model and parts")
        self.offered, self.held = int(state["offered"]), held

    def __deepcopy__(self, memo: dict[int, Any]) -> Snapshots:
        """Return an independent ring; snapshots never change, so forks can share them."""
        twin = Snapshots()
        twin.offered, twin.held = self.offered, dict(self.held)
        return twin
