"""Read CIFAR's pickled batches safely: arrays of bytes and plain values, nothing callable.

numpy's own unpickling is not used, since a crafted dtype makes it treat bytes of the file as pointers. Stand-ins
collect what the pickle says about an array, and the array is made from checked parts. `check_tuples` checks
every instruction before the unpickler runs.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from ..safe_load import check_tuples
from .base import BadData


class _Type:
    """Stands for `numpy.dtype`; a batch holds bytes only, for which byte order and flags mean nothing."""

    def __init__(self, code: object, *_: object) -> None:
        if code not in ("u1", b"u1"):
            raise pickle.UnpicklingError("an array of anything but bytes")

    def __setstate__(self, _state: object) -> None:
        pass


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
        self.value = np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_columns else "C")


def _bytes(text: object = "", encoding: object = "latin1") -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("only latin1 text may stand for bytes")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], object] = {
    ("numpy", "ndarray"): None,  # it can be named, but not called
    ("numpy", "dtype"): _Type,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("_codecs", "encode"): _bytes,
    ("builtins", "bytes"): _bytes,
    ("__builtin__", "bytes"): _bytes,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not plain data") from None


def read_pickled_dict(path: Path) -> dict[str, Any]:
    """The dict pickled in `path`, its keys as text.

    The result holds only numpy arrays of bytes, numbers, text, bytes and pickle's own containers. Anything that
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
        key.decode("latin1") if isinstance(key, bytes) else str(key): getattr(value, "value", value)
        for key, value in content.items()
    }
