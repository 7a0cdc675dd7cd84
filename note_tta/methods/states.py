"""Saved states looked at before they are taken over: a damaged or crafted one must not come in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

_MOMENTS = {"Adam": {"step", "exp_avg", "exp_avg_sq"}, "SGD": {"momentum_buffer"}}


def tensors_in(state: Any) -> Iterator[Tensor]:
    """Every tensor of a nested state."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from tensors_in(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from tensors_in(value)


def check_tensors(state: Any, like: Any) -> None:
    """Refuse tensors that are not finite, or that claim more memory than stands behind them.

    Args:
        state: Tensors in any nesting of dicts and lists.
        like: A state that is known to be good: where it is infinite (a model's mask), the other may be too.
    """
    if isinstance(state, dict):
        for key, value in state.items():
            check_tensors(value, like.get(key) if isinstance(like, dict) else None)
        return
    for tensor in tensors_in(state):
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise ValueError("it holds a tensor that is not dense")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ValueError(f"it holds a tensor of shape {tuple(tensor.shape)} with fewer values than that")
        masked = isinstance(like, Tensor) and not torch.isfinite(like).all()
        if not masked and not torch.isfinite(tensor).all():
            raise ValueError("it holds values that are not finite")


def completed(optimizer: Optimizer, state: Any) -> Any:
    """An optimizer's state to load, refused where it would make the next step fail.

    A setting that the state does not name, because an older torch did not know it, is the optimizer's own.
    """
    groups = optimizer.param_groups
    if not isinstance(state["state"], dict) or len(state["param_groups"]) != len(groups):
        raise ValueError("its optimizer has other groups of parameters")
    for ours, theirs in zip(groups, state["param_groups"], strict=True):
        if not isinstance(theirs, dict):
            raise ValueError("its optimizer has a group that is no dict")
        for name, value in ours.items():
            if name == "params":
                continue
            theirs.setdefault(name, value)
            if not _alike(value, theirs[name]):
                raise ValueError(f"its optimizer has {name} {theirs[name]!r:.40}")
        for index, parameter in enumerate(ours["params"]):
            own = state["state"].get(theirs["params"][index], {})
            if own and own.keys() != _MOMENTS[type(optimizer).__name__]:
                raise ValueError(f"its optimizer keeps {', '.join(map(str, own))} of a parameter")
            for name, value in own.items():
                shape = torch.Size() if name == "step" else parameter.shape
                if not isinstance(value, Tensor) or value.shape != shape or not value.is_floating_point():
                    raise ValueError(f"its optimizer has a {name} that does not fit the parameter")
    return state


def _alike(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, bool) or ours is None:
        return theirs is ours
    if isinstance(ours, int | float):
        return isinstance(theirs, int | float) and not isinstance(theirs, bool) and 0 <= theirs < float("inf")
    if isinstance(ours, list | tuple):
        return (
            isinstance(theirs, list | tuple) and len(ours) == len(theirs) and all(map(_alike, ours, theirs))
        )
    return isinstance(theirs, type(ours))
