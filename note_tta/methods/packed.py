"""Nested dicts of tensors in one buffer. As separate objects, hundreds of small tensors need twice the memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

Leaf = TypeVar("Leaf")


class Place(NamedTuple):
    """The position of a tensor in the buffers.

    Attributes:
        buffer: The index of the buffer.
        start: The position of the tensor's first value in it.
        shape: Its shape.
        parameter: Whether it requires gradients; None if it is not a parameter.
    """

    buffer: int
    start: int
    shape: tuple[int, ...]
    parameter: bool | None

    @property
    def numel(self) -> int:
        """The number of values."""
        return math.prod(self.shape)


class Layout:
    """The position of each tensor of a nested dict, with one buffer per dtype and device. Many dicts share a layout.

    Args:
        tree: The dict with a `Place` for each tensor; other values are kept as they are.
        buffers: The dtype, device and number of values of each buffer.
    """

    def __init__(self, tree: dict[Any, Any], buffers: list[tuple[torch.dtype, torch.device, int]]) -> None:
        self.tree = tree
        self.buffers = buffers

    @functools.cached_property
    def sizes(self) -> list[list[int]]:
        """The number of values of each tensor, in the order of the tensors, for each buffer."""
        sizes: list[list[int]] = [[] for _ in self.buffers]
        for place in _leaves(self.tree, Place):
            sizes[place.buffer].append(place.numel)
        return sizes

    @classmethod
    def of(cls, values: Mapping[Any, Any]) -> Layout:
        """Return the layout of a nested dict; its tensors keep their order."""
        kinds: dict[tuple[torch.dtype, torch.device], int] = {}
        lengths: list[int] = []

        def place(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: place(inside) for key, inside in value.items()}
            if not isinstance(value, Tensor):
                return value
            buffer = kinds.setdefault((value.dtype, value.device), len(kinds))
            if buffer == len(lengths):
                lengths.append(0)
            start, lengths[buffer] = lengths[buffer], lengths[buffer] + value.numel()
            return Place(buffer, start, tuple(value.shape), _parameter(value))

        tree = place(values)
        return cls(tree, [(*kind, length) for kind, length in zip(kinds, lengths, strict=True)])

    def fits(self, values: Mapping[Any, Any]) -> bool:
        """Whether this is the layout of the given nested dict."""

        def same(node: Any, value: Any) -> bool:
            if isinstance(node, Place):
                return (
                    isinstance(value, Tensor)
                    and value.shape == node.shape
                    and (value.dtype, value.device) == self.buffers[node.buffer][:2]
                    and _parameter(value) == node.parameter
                )
            if isinstance(node, dict):
                return (
                    isinstance(value, Mapping)
                    and list(node) == list(value)
                    and all(same(inside, value[key]) for key, inside in node.items())
                )
            return type(value) is type(node) and bool(value == node)

        return same(self.tree, values)


class Packed(Mapping[Any, Any]):
    """A nested dict whose tensors are stored in one buffer per dtype and device.

    It is read like the dict that it was made from. Its tensors are views: writing to one writes to the buffer.

    Args:
        layout: The position of each tensor.
        buffers: The buffers.

    Example:
        >>> packed = Packed.of({"weight": torch.ones(2), "bias": torch.zeros(2)})
        >>> packed["weight"].mul_(3)
        tensor([3., 3.])
        >>> packed.buffers
        [tensor([3., 3., 0., 0.])]
    """

    __slots__ = ("buffers", "layout")

    def __init__(self, layout: Layout, buffers: list[Tensor]) -> None:
        self.layout = layout
        self.buffers = buffers

    @classmethod
    def of(cls, values: Mapping[Any, Any], like: Layout | None = None) -> Packed:
        """Copy a nested dict into buffers.

        Args:
            values: The dict.
            like: A layout to share if it fits.
        """
        if isinstance(values, Packed):
            return values.clone()
        layout = like if like is not None and like.fits(values) else Layout.of(values)
        flat: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        with torch.no_grad():
            for tensor in _leaves(values, Tensor):
                row = tensor if tensor.ndim == 1 else tensor.reshape(-1)
                flat.setdefault((tensor.dtype, tensor.device), []).append(row)
            return cls(layout, [torch.cat(flat[dtype, device]) for dtype, device, _ in layout.buffers])

    def clone(self) -> Packed:
        """Return a copy with its own buffers."""
        return Packed(self.layout, [buffer.clone() for buffer in self.buffers])

    def views(self) -> dict[Any, Any]:
        """Return the dict with a view of each tensor, none of them a parameter. One call per buffer makes them all."""
        pieces = [
            iter(buffer.split(sizes)) for buffer, sizes in zip(self.buffers, self.layout.sizes, strict=True)
        ]

        def take(node: Any) -> Any:
            if isinstance(node, Place):
                view = next(pieces[node.buffer])
                return view if len(node.shape) == 1 else view.view(node.shape)
            return {key: take(inside) for key, inside in node.items()} if isinstance(node, dict) else node

        return take(self.layout.tree)  # type: ignore[no-any-return]

    def __getitem__(self, key: Any) -> Any:
        return self._take(self.layout.tree[key])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layout.tree)

    def __len__(self) -> int:
        return len(self.layout.tree)

    def __deepcopy__(self, memo: dict[int, Any]) -> Packed:
        return self.clone()

    def __repr__(self) -> str:
        return f"Packed({len(self)} entries, {sum(map(len, self.buffers)):,} values)"

    def _take(self, node: Any) -> Any:
        if isinstance(node, Place):
            view = self.buffers[node.buffer][node.start : node.start + node.numel].view(node.shape)
            return view if node.parameter is None else nn.Parameter(view, node.parameter)
        if isinstance(node, dict):
            return {key: self._take(inside) for key, inside in node.items()}
        return node


def plain(values: Any) -> Any:
    """Return a deep copy of a nested state as plain dicts."""
    if isinstance(values, Mapping):
        return {key: plain(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(plain(value) for value in values)
    return values.detach().clone() if isinstance(values, Tensor) else values


def _parameter(tensor: Tensor) -> bool | None:
    return tensor.requires_grad if isinstance(tensor, nn.Parameter) else None


def _leaves(values: Mapping[Any, Any], kind: type[Leaf]) -> Iterator[Leaf]:
    """Yield the values of this kind in a nested dict."""
    for value in values.values():
        if isinstance(value, Mapping):
            yield from _leaves(value, kind)
        elif isinstance(value, kind):
            yield value
