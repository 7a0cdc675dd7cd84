"""Read CIFAR's pickled batches without trusting them: numpy arrays and plain values, nothing callable."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from .base import BadData


class _ArrayType:
    """Stands for `numpy.ndarray` inside a pickle: it can be named, never called."""

    def __new__(cls, *_: object) -> NoReturn:
        raise pickle.UnpicklingError("an array may only be rebuilt, not constructed")


def _empty_array(_subtype: object, shape: object, _typecode: object) -> np.ndarray[Any, Any]:
    # numpy always starts from shape (0,) and fills in the state afterwards; any other shape would
    # let a few crafted bytes allocate as much memory as they like.
    if shape != (0,):
        raise pickle.UnpicklingError(f"an array must be rebuilt from shape (0,), not {shape}")
    empty: np.ndarray[Any, Any] = np.zeros((0,), np.uint8)
    return empty


def _encode(text: object, encoding: object = "latin1") -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("only latin1 text may stand for bytes")
    return text.encode("latin1")


def _no_bytes(*args: object) -> bytes:
    if args:
        raise pickle.UnpicklingError("bytes may not be built from arguments")
    return b""


_ALLOWED: dict[tuple[str, str], object] = {
    ("numpy", "ndarray"): _ArrayType,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("_codecs", "encode"): _encode,
    ("builtins", "bytes"): _no_bytes,
    ("__builtin__", "bytes"): _no_bytes,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not plain data") from None


def read_pickled_dict(path: Path) -> dict[str, Any]:
    """The dict pickled in `path`, its keys as text.

    Only numpy arrays, numbers, text, bytes and the containers pickle has opcodes for come out;
    anything that would call other code is refused before it runs.
    """
    try:
        with path.open("rb") as file:
            content = _Unpickler(file, encoding="bytes").load()
    except FileNotFoundError:
        raise
    except Exception as error:  # a crafted pickle can make the unpickler raise nearly anything
        raise BadData(path, f"not a readable batch of plain arrays ({error})") from error
    if not isinstance(content, dict):
        raise BadData(path, f"expected a dict, found {type(content).__name__}")
    return {
        key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in content.items()
    }
