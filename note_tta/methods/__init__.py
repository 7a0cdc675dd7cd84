"""The methods, each in its own file. `METHODS` maps their names to their classes."""

from importlib import import_module

from ..names import METHOD_HOMES
from .method import Method


def _load(home: str) -> type[Method]:
    module, _, name = home.partition(":")
    kind: type[Method] = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = kind
    return kind


METHODS: dict[str, type[Method]] = {key: _load(home) for key, home in METHOD_HOMES.items()}
"""Every method by the name that the command line and result files use; open to methods of your own."""

__all__ = ["METHODS", "Method", *(kind.__name__ for kind in METHODS.values())]
