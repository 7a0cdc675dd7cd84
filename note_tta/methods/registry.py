"""Methods by name: the library's own, those of users, and wrappers around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from ..names import COMPOSITION_HOMES, METHOD_HOMES, WRAPPER_HOMES, load, load_own
from .method import Method

METHODS: dict[str, type[Method]] = {key: load(f"methods.{home}") for key, home in METHOD_HOMES.items()}
"""Every method, by its name on the command line and in result files. You can add your own."""


def find_method(name: str) -> Callable[..., Method]:
    """Return the class, or another callable, that makes the method of this name from a model.

    Args:
        name: A key of `METHODS`, `adapt`, or `module:Class` for your own method (the module may be in the working
            folder). Wrappers may follow, as in `note+filter` and `note+watch+filter`.

    Raises:
        ValueError: There is no such method. The message lists the known ones.

    Example:
        >>> find_method("note").__name__
        'NOTE'
    """
    inner, *around = name.split("+")
    unknown = [word for word in around if word not in WRAPPER_HOMES]
    if unknown:
        raise ValueError(f"unknown wrapper {unknown[0]!r} in {name!r}; known are {', '.join(WRAPPER_HOMES)}")
    make: Callable[..., Method]
    make = load(COMPOSITION_HOMES[inner][0]) if inner in COMPOSITION_HOMES else method_class(inner)
    if not around:
        return make
    wrappers = [load(WRAPPER_HOMES[word]) for word in around]

    def wrapped(model: nn.Module, **settings: Any) -> Method:
        method = make(model, **settings)
        for wrapper in wrappers:
            method = wrapper(method)
        return method

    return wrapped


def method_class(name: str) -> type[Method]:
    """Return the class of a method without its wrappers; its attributes say what the method needs.

    Example:
        >>> method_class("note+filter").trained_with, method_class("adapt").trained_with
        ('iabn', 'iabn')
    """
    inner = name.partition("+")[0]
    if inner in COMPOSITION_HOMES:
        found: type[Method] = load(COMPOSITION_HOMES[inner][1])
        return found
    return METHODS[inner] if inner in METHODS else _own_method(inner)


def method_title(name: str) -> str:
    """Return the title of a method in tables, by its name for `find_method`.

    Example:
        >>> method_title("bn_stats"), method_title("note+filter")
        ('BN Stats', 'NOTE + filter')
    """
    inner, *around = name.split("+")
    known = inner in METHODS or inner in COMPOSITION_HOMES
    return " + ".join([method_class(inner).title if known else inner, *around])


def _own_method(name: str) -> type[Method]:
    if ":" not in name:
        raise ValueError(
            f"unknown method {name!r}; known are {', '.join([*METHODS, *COMPOSITION_HOMES])}, or your own module:Class"
        )
    found = load_own(name, "method")
    if not isinstance(found, type) or not issubclass(found, Method):
        raise ValueError(f"{name} is not a subclass of note_tta.Method")
    return found
