"""The parts of a method besides the model's tensors. They are saved, restored, reset and forked with the method."""

from __future__ import annotations

import copy
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from .backbone import Tensors, own_tensors
from .draft import copy_all


class Part(Protocol):
    """Anything with a state, such as a memory or an optimizer's moments."""

    def state_dict(self) -> dict[str, Any]:
        """Return the part's state: tensors and plain values."""

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Load a state; raise `ValueError` if it does not fit."""


AnyPart = TypeVar("AnyPart", bound=Part)


class Parts(dict[str, Part]):
    """The parts of one method by name, with the state that each had when it was added."""

    def __init__(self) -> None:
        super().__init__()
        self.at_start: dict[str, dict[str, Any]] = {}

    def add(self, name: str, part: AnyPart, owner: object) -> AnyPart:
        """Add a part and return it; one that belongs to another method is refused."""
        if getattr(part, "owner", None) not in (None, owner):
            raise ValueError(
                f"this {type(part).__name__} is in use by another method: each method needs its own"
            )
        if hasattr(part, "owner"):
            part.owner = owner
        self[name] = part
        self.at_start = {**self.at_start, name: copy.deepcopy(part.state_dict())}  # forks share the old one
        return part

    def belong_to(self, owner: object) -> None:
        """Let no other method use the parts of a copy."""
        for part in self.values():
            if hasattr(part, "owner"):
                part.owner = owner

    def states(self) -> dict[str, dict[str, Any]]:
        """Return the state of each part."""
        return {name: part.state_dict() for name, part in self.items()}

    def load(self, states: dict[str, dict[str, Any]]) -> None:
        """Load the state of each part."""
        for name, part in self.items():
            part.load_state_dict(states[name])

    def reset(self) -> None:
        """Return each part to its state at the start."""
        self.load(copy.deepcopy(self.at_start))

    def learned(self) -> Parts:
        """Return the parts that are rolled back with the tensors: all except random generators and what is cleared."""
        kept = Parts()
        kept.update(
            (name, part)
            for name, part in self.items()
            if not hasattr(part, "clear") and not isinstance(part, Randomness)
        )
        return kept


class Randomness:
    """A `torch.Generator` as a part. It is pickled as bytes, so that a method can be an argument of a spawned process.

    Args:
        generator: The generator; None means a new one with torch's default seed.
    """

    def __init__(self, generator: torch.Generator | None = None) -> None:
        self.generator = torch.Generator() if generator is None else generator

    def state_dict(self) -> dict[str, Any]:
        """Return the generator's state."""
        return {"state": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state."""
        self.generator.set_state(state["state"].cpu())

    def __getstate__(self) -> bytes:
        return bytes(self.generator.get_state().numpy())

    def __setstate__(self, state: bytes) -> None:
        self.generator = torch.Generator()
        self.generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


class OwnTensors:
    """Tensors by name, such as those of a student, or prototypes.

    Args:
        tensors: The tensors with their values at construction.
    """

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.tensors = own_tensors(state["tensors"])  # torch shares the memory of tensors between processes

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of each tensor."""
        return {name: tensor.detach().clone() for name, tensor in self.tensors.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the values."""
        if not isinstance(state, dict) or state.keys() != self.tensors.keys():
            raise ValueError("its tensors have other names")
        for name, tensor in self.tensors.items():
            other = state[name]
            if not isinstance(other, Tensor) or (other.shape, other.dtype) != (tensor.shape, tensor.dtype):
                raise ValueError(f"its {name} does not fit a tensor of shape {tuple(tensor.shape)}")
        copy_all(self.tensors, state)


class Average:
    """A moving average. The first value gives its shape and its start.

    Args:
        keep: How much of the average is kept per new value.
        ndim: The number of dimensions of a value: 1 for one number per class, 0 for one number.

    Example:
        >>> average = Average(keep=0.9)
        >>> average.take(torch.tensor([1.0])), average.take(torch.tensor([2.0]))
        (tensor([1.]), tensor([1.1000]))
    """

    def __init__(self, keep: float = 0.9, ndim: int = 1) -> None:
        self.keep, self.ndim = keep, ndim
        self.value: Tensor | None = None

    def take(self, new: Tensor, begin: Tensor | None = None) -> Tensor:
        """Move towards a value and return the average. The first time, it starts at `begin` or else at the value."""
        old = begin if self.value is None else self.like(new)
        self.value = new if old is None else self.keep * old + (1 - self.keep) * new
        return self.value

    def like(self, values: Tensor) -> Tensor | None:
        """Return the average on the device of these values, or None before the first value."""
        return None if self.value is None else self.value.to(values.device)

    def state_dict(self) -> dict[str, Any]:
        """Return the average, or None before the first value."""
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state."""
        value = state["value"]
        if value is not None:
            if not (isinstance(value, Tensor) and value.is_floating_point() and value.ndim == self.ndim):
                raise ValueError(
                    f"its moving average must be a tensor of {self.ndim} dimensions, got {value!r:.40}"
                )
            if self.value is not None and value.shape != self.value.shape:
                raise ValueError(f"its moving average has {len(value)} values instead of {len(self.value)}")
        self.value = value


class Count:
    """A counter."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the count."""
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state."""
        if type(state["value"]) is not int or state["value"] < 0:
            raise ValueError(f"its count must be a whole number, got {state['value']!r:.40}")
        self.value = state["value"]
