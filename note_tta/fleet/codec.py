"""States as records: a JSON header that says where everything is, then the bytes of the tensors; no code is run."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..methods.packed import Layout, Packed, Place

_MAGIC = b"note-tta stream\n"
_ALIGNED = 16
_PLAIN = frozenset((type(None), bool, int, float, str))


class Codec:
    """Converts states to bytes and back. A state may hold only dicts, lists, tuples, tensors and plain values.

    All streams of a model have the same layouts. Every record contains its layouts, so that it can be read without
    any other record. The codec converts each layout only once and keeps the result.
    """

    def __init__(self) -> None:
        self._spelled: dict[int, tuple[Layout, bytes]] = {}
        self._read: dict[bytes, Layout] = {}

    def encode(self, state: Mapping[str, Any]) -> bytes:
        """Return a state as a record."""
        tensors: list[Tensor] = []
        layouts: dict[bytes, int] = {}

        def put(tensor: Tensor) -> int:
            tensors.append(tensor.detach().cpu().contiguous())
            return len(tensors) - 1

        def node(value: Any) -> Any:
            if type(value) in _PLAIN:  # the most frequent case and the fastest test, so it comes first
                return value
            if isinstance(value, Packed):
                layout = layouts.setdefault(self.spell(value.layout), len(layouts))
                return {"packed": [layout, [put(buffer) for buffer in value.buffers]]}
            if isinstance(value, Mapping):
                return {"dict": [[key, node(inside)] for key, inside in value.items()]}
            if isinstance(value, tuple):
                return {"tuple": [node(inside) for inside in value]}
            if isinstance(value, list):
                return [inside if type(inside) in _PLAIN else node(inside) for inside in value]
            return {"tensor": put(value)} if isinstance(value, Tensor) else _scalar(value)

        tree = node(state)
        index = [[str(t.dtype).removeprefix("torch."), list(t.shape)] for t in tensors]
        header = json.dumps(
            {"tree": tree, "tensors": index, "layouts": [len(text) for text in layouts]}
        ).encode()
        parts = [_padded(header + b"".join(layouts))]
        parts += [_padded(_bytes(tensor)) for tensor in tensors]
        body = b"".join(parts)
        return _MAGIC + b"%12d%12d" % (len(header), zlib.crc32(body)) + b" " * 8 + body

    def decode(self, record: bytes) -> dict[str, Any]:
        """Return the state that a record holds, in newly allocated tensors.

        Raises:
            ValueError: The record is damaged.
        """
        start = len(_MAGIC) + 32
        try:
            if not record.startswith(_MAGIC) or int(record[28:40]) != zlib.crc32(memoryview(record)[start:]):
                raise ValueError("its checksum is wrong")
            return self._decode(record, start, int(record[16:28]))
        except (LookupError, TypeError, AttributeError, RuntimeError, RecursionError) as error:
            raise ValueError(f"it is not a state: {error}") from error

    def _decode(self, data: bytes, at: int, length: int) -> dict[str, Any]:
        header = json.loads(data[at : at + length])
        at += length
        layouts = []
        for length in header["layouts"]:
            layouts.append(self._layout(data[at : at + length]))
            at += length
        tensors = []
        for dtype, shape in header["tensors"]:
            at += -at % _ALIGNED
            tensor = torch.empty(shape, dtype=_dtype(dtype))
            if tensor.numel():
                own = tensor.view(-1).view(torch.uint8).numpy()
                own[:] = np.frombuffer(data, np.uint8, tensor.nbytes, at)
            tensors.append(tensor)
            at += tensor.nbytes

        def value(node: Any) -> Any:
            if isinstance(node, list):
                return [inside if type(inside) in _PLAIN else value(inside) for inside in node]
            if not isinstance(node, dict):
                return node
            ((kind, inside),) = node.items()
            if kind == "dict":
                return {key: value(entry) for key, entry in inside}
            if kind == "tuple":
                return tuple(value(entry) for entry in inside)
            if kind == "tensor":
                return tensors[inside]
            return Packed(layouts[inside[0]], [tensors[buffer] for buffer in inside[1]])

        state: dict[str, Any] = value(header["tree"])
        return state

    def spell(self, layout: Layout) -> bytes:
        """Return a layout as text. Reading the same text later gives this layout object again."""
        known = self._spelled.get(id(layout))
        if known is None:
            buffers = [[str(t).removeprefix("torch."), n] for t, _, n in layout.buffers]
            text = json.dumps([_spelled(layout.tree), buffers]).encode()
            known = self._spelled[id(layout)] = (layout, text)  # keeping the layout keeps its id unique
            if all(device.type == "cpu" for _, device, _ in layout.buffers):
                self._read.setdefault(text, layout)
        return known[1]

    def _layout(self, text: bytes) -> Layout:
        if text not in self._read:
            tree, buffers = json.loads(text)
            cpu = torch.device("cpu")
            self._read[text] = Layout(_unspelled(tree), [(_dtype(t), cpu, n) for t, n in buffers])
        return self._read[text]


def _spelled(node: Any) -> Any:
    if isinstance(node, Place):
        return {"place": [node.buffer, node.start, list(node.shape), node.parameter]}
    if isinstance(node, dict):
        return {"dict": [[key, _spelled(inside)] for key, inside in node.items()]}
    return _scalar(node)


def _unspelled(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if "place" in node:
        buffer, start, shape, parameter = node["place"]
        return Place(buffer, start, tuple(shape), parameter)
    return {key: _unspelled(inside) for key, inside in node["dict"]}


def _scalar(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    raise TypeError(f"a state can hold only tensors and plain values, got {type(value).__name__}")


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"there is no dtype {name!r:.40}")
    return dtype


def _bytes(tensor: Tensor) -> bytes | memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b""


def _padded(data: bytes | memoryview) -> bytes | memoryview:
    return data if len(data) % _ALIGNED == 0 else bytes(data) + bytes(-len(data) % _ALIGNED)
