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
