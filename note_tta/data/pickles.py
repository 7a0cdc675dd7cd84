"""Read CIFAR's pickled batches safely: numpy arrays and plain values, nothing callable.

numpy's own unpickling is not used, since a crafted dtype makes it treat bytes of the file as pointers. Stand-ins
collect what the pickle says about an array, and the array is made from checked parts. `check_tuples` checks
every instruction before the unpickler runs.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..safe_load import check_tuples
from .base import BadData

_KINDS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)} | {"f4", "f8", "b1"}


class _ArrayType:
    """Stands for `numpy.ndarray` in a pickle: it can be named, but not called."""

    def __new__(cls, *_: object) -> NoReturn:
        raise pickle.UnpicklingError("an array may only be rebuilt, not constructed")


class _Type:
    """Stands for `numpy.dtype`: a plain number and its byte order."""

    def __init__(self, code: object, *_: object) -> None:
        name = code.decode("latin1") if isinstance(code, bytes) else code
        if not isinstance(name, str) or name not in _KINDS:
            raise pickle.UnpicklingError("an array of anything but plain numbers")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: Any) -> None:
        order: Any = state[1].decode("latin1") if isinstance(state[1], bytes) else state[1]
        if order not in ("<", ">", "|", "=") or any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("an array of records is not one of plain numbers")
        self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """Stands for an array that is being rebuilt; `value` is the array once its parts are complete."""

    value: np.ndarray[Any, Any] | None = None

    def __init__(self, _subtype: object, shape: object, _typecode: object) -> None:
        if shape != (0,):
            raise pickle.UnpicklingError("an array must be rebuilt from shape (0,)")

    def __setstate__(self, state: Any) -> None:
        _version, shape, kind, by_columns, content = state
        if not isinstance(kind, _Type) or not isinstance(content, bytes):
            raise pickle.UnpicklingError("an array must be rebuilt from a type and its bytes")
        values = np.frombuffer(content, dtype=kind.dtype)
        self.value = values.reshape(shape, order="F" if by_columns else "C")


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
    ("numpy", "dtype"): _Type,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
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

    The result holds only numpy arrays of numbers, numbers, text, bytes and pickle's own containers. Anything that
    would call other code is refused before it runs.
    """
    try:
        text = path.read_bytes()
        check_tuples(text)
        content = _Unpickler(io.BytesIO(text), encoding="bytes").load()
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # a crafted pickle can make the unpickler raise nearly anything
        raise BadData(path, f"not a readable batch of plain arrays ({error})") from error
    if not isinstance(content, dict):
        raise BadData(path, f"expected a dict, found {type(content).__name__}")
    return {
        key.decode("latin1") if isinstance(key, bytes) else str(key): _finished(path, value)
        for key, value in content.items()
    }


def _finished(path: Path, value: Any) -> Any:
    if not isinstance(value, _Array):
        return value
    if value.value is None:
        raise BadData(path, "not a readable batch of plain arrays (an array without its bytes)")
    return value.value
