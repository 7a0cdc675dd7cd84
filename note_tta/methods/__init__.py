"""The methods, each in its own file. `METHODS` maps their names to their classes."""

from .method import Method
from .registry import METHODS, find_method, method_class, method_title

globals().update({kind.__name__: kind for kind in METHODS.values()})

__all__ = [
    "METHODS",
    "Method",
    "find_method",
    "method_class",
    "method_title",
    *(kind.__name__ for kind in METHODS.values()),
]
