"""Keep a trained classifier accurate while its input drifts, on streams correlated in time.

The public names are resolved on first use, so that the command line answers before torch is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "FIFO": "memory",
    "PBRS": "memory",
    "Memory": "memory",
    "Reservoir": "memory",
    "IABN1d": "nn.iabn",
    "IABN2d": "nn.iabn",
    "IABN3d": "nn.iabn",
    "convert_bn": "nn.iabn",
    "convert_iabn": "nn.iabn",
    "METHODS": "methods",
    "BNStats": "methods",
    "CoTTA": "methods",
    "LAME": "methods",
    "Method": "methods",
    "NOTE": "methods",
    "NOTEIID": "methods",
    "ONDA": "methods",
    "PL": "methods",
    "Source": "methods",
    "TENT": "methods",
    "Result": "evaluation",
    "evaluate": "evaluation",
    "load_state": "checkpoint",
    "load_weights": "checkpoint",
    "save_state": "checkpoint",
}
_MODULES = ("nn", "streams")

__all__ = [
    "FIFO",
    "IABN1d",
    "IABN2d",
    "IABN3d",
    "LAME",
    "METHODS",
    "NOTE",
    "NOTEIID",
    "ONDA",
    "PBRS",
    "PL",
    "TENT",
    "BNStats",
    "CoTTA",
    "Memory",
    "Method",
    "Reservoir",
    "Result",
    "Source",
    "__version__",
    "convert_bn",
    "convert_iabn",
    "evaluate",
    "load_state",
    "load_weights",
    "nn",
    "save_state",
    "streams",
]

if TYPE_CHECKING:
    from . import nn, streams
    from .checkpoint import load_state, load_weights, save_state
    from .evaluation import Result, evaluate
    from .memory import FIFO, PBRS, Memory, Reservoir
    from .methods import LAME, METHODS, NOTE, NOTEIID, ONDA, PL, TENT, BNStats, CoTTA, Method, Source
    from .nn.iabn import IABN1d, IABN2d, IABN3d, convert_bn, convert_iabn


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
