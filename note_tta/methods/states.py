"""Checks of saved states: a damaged or forged state, or one of another model, is refused before anything changes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .packed import Packed

if TYPE_CHECKING:
    from .method import Method
    from .wrapper import Wrapper

Moments = Mapping[int, Mapping[str, Any]]

VERSION = 2
"""The format of states. Every version since 2 (release 0.2) can be read."""

KEYS = ("version", "method", "settings", "fingerprint", "layers", "model", "parts", "counters", "paused")
WRAPPER_KEYS = ("version", "method", "settings", "fingerprint", "model", "parts", "inner")
NOT_SETTINGS = ("output", "executor", "source", "on_event")
"""Keywords that say how a method is attached or computed, not what it learns. They are not part of a state."""


def plain_settings(thing: object) -> dict[str, Any]:
    """Return the keyword arguments of an object's constructor that are plain values, read from its attributes."""
    names = keywords(type(thing))  # type: ignore[arg-type]
    values = {
        name: getattr(thing, name) for name in names if name not in NOT_SETTINGS and hasattr(thing, name)
    }
    return {name: value for name, value in values.items() if _is_plain(value)}


@functools.cache
def keywords(make: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the arguments after the model, including those that `**settings` passes on."""
    names: dict[str, None] = {}
    owners = [o for o in make.__mro__ if "__init__" in vars(o)] if isinstance(make, type) else [make]
    for owner in owners:
        own = list(inspect.signature(owner).parameters.values())[1:]
        names |= dict.fromkeys(p.name for p in own if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
        if all(p.kind != p.VAR_KEYWORD for p in own):
            break
    return tuple(names)


def check(state: Any, method: Method) -> None:
    """Refuse a state that does not belong to this method on this model. The message names the difference."""
    own = type(method).__name__
    if isinstance(state, dict) and "progress" in state and "version" not in state:
        raise ValueError(
            f"this state of {state.get('method')} was saved by version 0.1, which did not record the model that it "
            "belongs to: start the method from the source model and save it again"
        )
    _check_kind(state, own, KEYS)
    _check_layers(state["layers"], method.backbone.layers)
    _check_fingerprint(state["fingerprint"], method.backbone.fingerprint)
    for what, keys in (("model", method.tensors), ("parts", method._parts), ("counters", method.counters)):
        _check_keys(state, what, keys)
    for name, tensor in method.tensors.items():
        other = state["model"][name]
        if not isinstance(other, Tensor) or other.shape != tensor.shape or other.dtype != tensor.dtype:
            raise ValueError(f"the state's {name} does not fit a tensor of shape {tuple(tensor.shape)}")
    if not all(type(count) is int and count >= 0 for count in state["counters"].values()):
        raise ValueError(f"not a state of {own}: its counters are {state['counters']!r:.80}")
    _check_settings(state["settings"], plain_settings(method))


def check_wrapper(state: Any, wrapper: Wrapper) -> None:
    """Refuse a state that does not belong to this wrapper. The inner method checks the inner state."""
    own = type(wrapper).__name__
    _check_kind(state, own, WRAPPER_KEYS)
    _check_fingerprint(state["fingerprint"], wrapper.backbone.fingerprint)
    _check_keys(state, "parts", wrapper._parts)
    if not isinstance(state["inner"], dict) or state["inner"].get("fingerprint") != state["fingerprint"]:
        raise ValueError(f"not a state of {own}: the inner state belongs to another model")
    _check_settings(state["settings"], plain_settings(wrapper))


def check_finite(state: Any, like: Any) -> None:
    """Refuse tensors that are not finite, or whose shape claims more values than they store.

    Args:
        state: Tensors in any nesting of dicts and lists.
        like: A valid state. Tensors that hold infinities there (masks) may hold them in `state` too.
    """
    if isinstance(state, dict):
        for key, value in state.items():
            check_finite(value, like.get(key) if isinstance(like, dict) else None)
        return
    for tensor in tensors_in(state):
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise ValueError("it holds a tensor that is not dense")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ValueError(f"it holds a tensor of shape {tuple(tensor.shape)} that stores fewer values")
        masked = isinstance(like, Tensor) and not torch.isfinite(like).all()
        if not masked and not torch.isfinite(tensor).all():
            raise ValueError("it holds values that are not finite")


def check_moments(moments: Any, expected: Moments) -> None:
    """Refuse an optimizer state that would make the next step fail.

    Args:
        moments: The optimizer state in the saved state.
        expected: The optimizer's own state after a step.
    """
    if not isinstance(moments, dict) or not moments.keys() <= expected.keys():
        raise ValueError("its optimizer state belongs to other parameters")
    for index, own in moments.items():
        if not isinstance(own, dict) or own.keys() != expected[index].keys():
            raise ValueError(f"its optimizer state lacks {', '.join(expected[index])} of a parameter")
        for name, value in own.items():
            good = expected[index][name]
            if type(value) is not type(good) or (
                isinstance(value, Tensor) and (value.shape, value.dtype) != (good.shape, good.dtype)
            ):
                raise ValueError(f"its optimizer state has a {name} that does not fit the parameter")


def tensors_in(state: Any) -> Iterator[Tensor]:
    """Yield every tensor of a nested state."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, Packed):
        yield from state.buffers
    elif isinstance(state, dict):
        for value in state.values():
            yield from tensors_in(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from tensors_in(value)


def _check_kind(state: Any, own: str, keys: tuple[str, ...]) -> None:
    """Refuse an object that is not a state, or a state of another method or of a newer format."""
    if isinstance(state, dict) and "version" in state and state.get("method", own) != own:
        raise ValueError(f"the state belongs to {state['method']!s:.60}, but this method is {own}")
    if not isinstance(state, dict) or not state.keys() >= set(keys):
        raise ValueError(f"not a state of {own}: expected a dict made by its state_dict()")
    version = state["version"]
    if type(version) is not int or version > VERSION:
        raise ValueError(
            f"the state has format version {version!r:.40}, but this library reads up to {VERSION}: update note-tta"
        )


def _check_keys(state: dict[str, Any], what: str, own: Mapping[str, Any]) -> None:
    if not isinstance(state[what], dict) or state[what].keys() != own.keys():
        raise ValueError(f"the state's entry {what!r} does not fit: expected the keys {sorted(own)[:6]}…")


def _check_fingerprint(theirs: Any, ours: str) -> None:
    if theirs != ours:
        raise ValueError(
            f"the state belongs to another model: its source weights have the fingerprint {theirs!s:.40}, "
            f"those of this model have {ours}"
        )


def _check_layers(theirs: Any, ours: dict[str, str]) -> None:
    if not isinstance(theirs, dict):
        raise ValueError(f"not a state: its layers are a {type(theirs).__name__}")
    for name, kind in ours.items():
        if theirs.get(name) != kind:
            raise ValueError(
                f"the state belongs to a model whose {name or 'layer'} is {theirs.get(name)!s:.60}, "
                f"but here it is {kind}: convert this model in the same way"
            )


def _check_settings(theirs: Any, ours: dict[str, Any]) -> None:
    if not isinstance(theirs, dict) or not all(map(_is_plain, theirs.values())):
        raise ValueError("its settings are not plain values")
    unknown = [str(name) for name in theirs if name not in ours]
    if unknown:
        raise ValueError(f"the state has settings that this method does not have: {', '.join(unknown)[:80]}")


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)
