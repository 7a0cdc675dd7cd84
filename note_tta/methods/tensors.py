"""Tensors that a method keeps besides those of its model: a student's, a prototype's, an average's."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .backbone import Tensors, own_tensors
from .draft import copy_all


class OwnTensors:
    """Tensors by name, as a part of a method.

    Args:
        tensors: The tensors with the values at construction.
    """

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.tensors = own_tensors(state["tensors"])

    def state_dict(self) -> dict[str, Any]:
        """A copy of each tensor."""
        return {name: tensor.detach().clone() for name, tensor in self.tensors.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the values."""
        if not isinstance(state, dict) or state.keys() != self.tensors.keys():
            raise ValueError("it keeps tensors of other names")
        for name, tensor in self.tensors.items():
            other = state[name]
            if not isinstance(other, Tensor) or (other.shape, other.dtype) != (tensor.shape, tensor.dtype):
                raise ValueError(f"its {name} does not fit a tensor of shape {tuple(tensor.shape)}")
        copy_all(self.tensors, state)


class Average:
    """A moving average that has its shape, and its start, from the first value; a part of a method.

    Args:
        keep: How much of it stays when it takes a value.

    Example:
        >>> import torch
        >>> average = Average(keep=0.9)
        >>> average.take(torch.tensor([1.0])), average.take(torch.tensor([2.0]))
        (tensor([1.]), tensor([1.1000]))
    """

    def __init__(self, keep: float = 0.9) -> None:
        self.keep = keep
        self.value: Tensor | None = None

    def take(self, new: Tensor, begin: Tensor | None = None) -> Tensor:
        """Move towards a value, from `begin` or this value itself the first time; returns the average."""
        old = begin if self.value is None else self.value
        self.value = new if old is None else self.keep * old + (1 - self.keep) * new
        return self.value

    def state_dict(self) -> dict[str, Any]:
        """The average, or None where it has not begun."""
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        value = state["value"]
        if value is not None and not (isinstance(value, Tensor) and value.is_floating_point()):
            raise ValueError(f"its moving average is {value!r:.40}")
        self.value = value


class Count:
    """A whole number that counts up; a part of a method."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, Any]:
        """The number."""
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        if type(state["value"]) is not int or state["value"] < 0:
            raise ValueError(f"it has counted to {state['value']!r:.40}")
        self.value = state["value"]
