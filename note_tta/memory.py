"""Small memories of a stream: the latest samples, a uniform draw, a class-balanced draw.

Each holds its samples in one tensor, allocated at the first `add`, and decides on plain Python integers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import islice
from typing import Any

import torch
from torch import Tensor


class Memory(ABC):
    """At most `capacity` samples of a stream, each with the label that was predicted for it.

    Args:
        capacity: How many samples to hold.
        generator: Source of randomness; None is a new generator with torch's default seed.
        device: Where the samples are kept; None keeps them where the first one came from.
    """

    def __init__(
        self,
        capacity: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if not isinstance(capacity, int) or isinstance(capacity, bool):
            raise TypeError(f"capacity must be an int, got {type(capacity).__name__}")
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.capacity = capacity
        self.generator = torch.Generator() if generator is None else generator
        self.device = device
        self.owner: object | None = None
        self._samples: Tensor | None = None
        self._labels: list[int] = []

    @abstractmethod
    def _place(self, label: int) -> int | None:
        """Decide on a newcomer: the slot it takes, or None where it is not kept."""

    def add(self, x: Tensor, label: int) -> None:
        """Offer one sample (no batch dimension) with its predicted label."""
        if self._samples is not None and x.shape != self._samples.shape[1:]:
            raise ValueError(
                f"this memory holds samples of shape {tuple(self._samples.shape[1:])}, got {tuple(x.shape)}"
            )
        label = int(label)
        slot = self._place(label)
        if slot is None:
            return
        if self._samples is None:
            device = x.device if self.device is None else self.device
            self._samples = torch.empty((self.capacity, *x.shape), dtype=x.dtype, device=device)
        self._samples[slot] = x.detach()
        if slot == len(self._labels):
            self._labels.append(label)
        else:
            self._labels[slot] = label

    def __len__(self) -> int:
        return len(self._labels)

    def inputs(self) -> Tensor:
        """A copy of the samples held, stacked; an empty tensor where there are none."""
        return torch.empty(0) if self._samples is None else self._samples[: len(self)].clone()

    def labels(self) -> list[int]:
        """The predicted label of each sample, in the order of `inputs()`."""
        return list(self._labels)

    @property
    def sample_shape(self) -> tuple[int, ...] | None:
        """The shape of the samples held, or None where there are none."""
        return None if self._samples is None else tuple(self._samples.shape[1:])

    def clear(self) -> None:
        """Forget the samples and all that was counted; the randomness goes on."""
        self._samples = None
        self._labels = []

    def state_dict(self) -> dict[str, Any]:
        """All that decides what comes next: samples, labels, counts and the generator's state."""
        return {
            "capacity": self.capacity,
            "inputs": self.inputs(),
            "labels": self.labels(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state; one that does not fit is refused before anything changes."""
        kind = type(self).__name__
        missing = self.state_dict().keys() - state.keys()
        if missing:
            raise ValueError(f"not a state of {kind}: {', '.join(sorted(missing))} missing")
        inputs, labels = state["inputs"], state["labels"]
        if state["capacity"] != self.capacity:
            raise ValueError(
                f"the state is of a {kind} of capacity {state['capacity']}, this one has {self.capacity}"
            )
        if (
            not all(type(label) is int for label in labels)
            or len(labels) > self.capacity
            or len(inputs) != len(labels)
        ):
            raise ValueError(f"not a state of {kind}: {len(inputs)} inputs with labels {labels!r:.80}")
        self.generator.set_state(state["generator"].cpu())
        self._samples = None
        self._labels = list(labels)
        if labels:
            device = inputs.device if self.device is None else self.device
            self._samples = torch.empty((self.capacity, *inputs.shape[1:]), dtype=inputs.dtype, device=device)
            self._samples[: len(labels)] = inputs

    def __getstate__(self) -> dict[str, Any]:
        """All attributes, the generator as bytes; the method that uses the memory is not part of it."""
        return {**vars(self), "generator": bytes(self.generator.get_state().numpy()), "owner": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._samples is not None:
            self._samples = self._samples.clone()  # torch shares what it sends to another process
        self.generator = torch.Generator()
        self.generator.set_state(torch.frombuffer(bytearray(state["generator"]), dtype=torch.uint8))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} of {self.capacity} held)"

    def _uniform(self) -> float:
        """A number drawn uniformly from [0, 1)."""
        return torch.rand((), generator=self.generator, dtype=torch.float64).item()


class FIFO(Memory):
    """The latest `capacity` samples, oldest first.

    Example:
        >>> memory = FIFO(2)
        >>> for value in range(3):
        ...     memory.add(torch.tensor([float(value)]), label=value)
        >>> memory.labels(), memory.inputs().tolist()
        ([1, 2], [[1.0], [2.0]])
    """

    def __init__(self, capacity: int, device: torch.device | str | None = None) -> None:
        super().__init__(capacity, device=device)
        self._oldest = 0

    def _place(self, label: int) -> int:
        if len(self) < self.capacity:
            return len(self)
        slot, self._oldest = self._oldest, (self._oldest + 1) % self.capacity
        return slot

    def inputs(self) -> Tensor:
        """A copy of the samples held, stacked, oldest first."""
        return super().inputs().roll(-self._oldest, 0) if self._oldest else super().inputs()

    def labels(self) -> list[int]:
        """The labels, oldest first."""
        return self._labels[self._oldest :] + self._labels[: self._oldest]

    def clear(self) -> None:
        """Forget the samples."""
        super().clear()
        self._oldest = 0

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        super().load_state_dict(state)
        self._oldest = 0


class Reservoir(Memory):
    """A uniform draw from all samples offered so far (reservoir sampling).

    Example:
        >>> memory = Reservoir(2, generator=torch.Generator().manual_seed(0))
        >>> for value in range(100):
        ...     memory.add(torch.tensor([float(value)]), label=0)
        >>> len(memory)
        2
    """

    def __init__(
        self,
        capacity: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(capacity, generator, device)
        self._seen = 0

    def _place(self, label: int) -> int | None:
        self._seen += 1
        if len(self) < self.capacity:
            return len(self)
        slot = int(self._uniform() * self._seen)
        return slot if slot < self.capacity else None

    def clear(self) -> None:
        """Forget the samples and how many were offered."""
        super().clear()
        self._seen = 0

    def state_dict(self) -> dict[str, Any]:
        """Samples, labels, how many were offered, and the generator's state."""
        return super().state_dict() | {"seen": self._seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        if type(state.get("seen")) is not int or state["seen"] < len(state.get("labels", [])):
            raise ValueError(f"not a state of Reservoir: seen is {state.get('seen')!r:.40}")
        super().load_state_dict(state)
        self._seen = state["seen"]


class PBRS(Memory):
    """Prediction-Balanced Reservoir Sampling (paper, Algorithm 1).

    A newcomer of a class that is not the most frequent one in memory takes the place of a random sample of
    the most frequent class(es). One that is takes the place of a random sample of its own class with
    probability m/n: m samples of the class in memory, n seen in all. So the memory tends to hold all classes
    alike, and within the majority class a uniform draw over time.

    With three or more classes a class that has fallen below the majority always gets in again, so the
    minority classes lean towards recent samples; that is the algorithm's, and kept.

    Example:
        >>> memory = PBRS(4, generator=torch.Generator().manual_seed(0))
        >>> for label in [0, 0, 0, 0, 0, 0, 1, 1]:
        ...     memory.add(torch.zeros(1), label)
        >>> sorted(memory.labels())
        [0, 0, 1, 1]
    """

    def __init__(
        self,
        capacity: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(capacity, generator, device)
        self._forget()

    def _forget(self) -> None:
        self._seen: dict[int, int] = {}
        self._slots: dict[int, list[int]] = {}
        self._classes_of_size: dict[int, dict[int, None]] = {}
        self._majority_size = 0

    def _place(self, label: int) -> int | None:
        seen = self._seen[label] = self._seen.get(label, 0) + 1
        if len(self) < self.capacity:
            self._give(len(self), label)
            return len(self)
        majority, size = self._classes_of_size[self._majority_size], self._majority_size
        if label not in majority:
            drawn = int(self._uniform() * len(majority) * size)
            victim = next(islice(majority, drawn // size, None))
            slot = self._take(victim, drawn % size)
            self._give(slot, label)
            return slot
        drawn = int(self._uniform() * seen)
        return self._slots[label][drawn] if drawn < size else None

    def _give(self, slot: int, label: int) -> None:
        slots = self._slots.setdefault(label, [])
        slots.append(slot)
        self._resize(label, len(slots) - 1, len(slots))
        self._majority_size = max(self._majority_size, len(slots))

    def _take(self, label: int, position: int) -> int:
        slots = self._slots[label]
        slot = slots[position]
        slots[position] = slots[-1]
        slots.pop()
        self._resize(label, len(slots) + 1, len(slots))
        if not self._classes_of_size.get(self._majority_size):
            self._majority_size -= 1
        return slot

    def _resize(self, label: int, old: int, new: int) -> None:
        if old:
            classes = self._classes_of_size[old]
            del classes[label]
            if not classes:
                del self._classes_of_size[old]
        if new:
            self._classes_of_size.setdefault(new, {})[label] = None
        else:
            del self._slots[label]

    def clear(self) -> None:
        """Forget the samples and the counts of every class."""
        super().clear()
        self._forget()

    def state_dict(self) -> dict[str, Any]:
        """Samples, labels, counts, the order inside the bookkeeping, and the generator's state."""
        return super().state_dict() | {
            "seen": dict(self._seen),
            "slots": {label: list(slots) for label, slots in self._slots.items()},
            "classes_of_size": {size: list(labels) for size, labels in self._classes_of_size.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state; one whose bookkeeping contradicts its labels is refused."""
        labels, slots, by_size = (
            state.get("labels", []),
            state.get("slots", {}),
            state.get("classes_of_size", {}),
        )
        places = sorted((slot, label) for label, own in slots.items() for slot in own)
        sizes = sorted((len(own), label) for label, own in slots.items())
        if places != list(enumerate(labels)) or sizes != sorted(
            (n, c) for n, own in by_size.items() for c in own
        ):
            raise ValueError("not a state of PBRS: its bookkeeping contradicts its labels")
        seen = state.get("seen", {})
        if not all(type(count) is int for count in seen.values()) or any(
            seen.get(label, 0) < len(own) for label, own in slots.items()
        ):
            raise ValueError("not a state of PBRS: it has seen fewer samples of a class than it holds")
        super().load_state_dict(state)
        self._seen = dict(state["seen"])
        self._slots = {label: list(own) for label, own in slots.items()}
        self._classes_of_size = {size: dict.fromkeys(own) for size, own in by_size.items()}
        self._majority_size = max(by_size, default=0)
