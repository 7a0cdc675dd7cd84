"""The module of every public name. Nothing here imports torch, so that the command line starts fast."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

METHOD_HOMES = {
    "source": "source:Source",
    "bn_stats": "bn_stats:BNStats",
    "onda": "onda:ONDA",
    "pl": "pl:PL",
    "tent": "tent:TENT",
    "lame": "lame:LAME",
    "cotta": "cotta:CoTTA",
    "note": "note:NOTE",
    "note_iid": "note_iid:NOTEIID",
    "rotta": "rotta:RoTTA",
    "sotta": "sotta:SoTTA",
    "eta": "eta:ETA",
    "eata": "eata:EATA",
    "rdumb": "rdumb:RDumb",
    "sar": "sar:SAR",
    "unmix_tns": "unmix_tns:UnMixTNS",
    "roid": "roid:ROID",
    "petta": "petta:PeTTA",
}
"""The key of each method with its file in `methods/` and its class. A new method is one file and one line here."""

DATASET_HOMES = {
    "cifar10": "cifar:CIFAR10",
    "cifar100": "cifar:CIFAR100",
    "imagenet": "imagenet:IMAGENET",
    "mnist": "mnist:MNIST",
    "kitti": "kitti:KITTI",
    "harth": "harth:HARTH",
    "extrasensory": "extrasensory:EXTRASENSORY",
    "hapt": "hapt:HAPT",
    "digits": "digits:DIGITS",
}
"""The key of each dataset with its file in `data/` and its record. A new dataset is one file and one line here."""

WRAPPER_HOMES = {"filter": "filter:TemporalFilter", "watch": "watch:Watch"}
"""Wrappers by their name on the command line and in result files."""

COMPOSITION_HOMES = {"adapt": ("recommended:adapt", "recommended:Adapted")}
"""Compositions of methods by name: the function that makes one, and the class with its facts."""

HOMES = {
    "recommended": ("adapt",),
    "memory": ("CSTU", "FIFO", "HUS", "Memory", "PBRS", "Reservoir"),
    "nn.iabn": ("IABN1d", "IABN2d", "IABN3d", "convert_bn", "convert_iabn"),
    "nn.prepacked": ("prepack_convolutions",),
    "nn.unmix": ("UnMixTNS2d", "convert_unmix_tns"),
    "methods": ("METHODS", "Method"),
    "evaluation": ("Result", "evaluate"),
    "checkpoint": ("load_state", "load_weights", "save_state"),
    "checks": ("check_method",),
    "filter": ("TemporalFilter",),
    "fleet": ("Fleet",),
    "watch": ("Watch",),
}
"""All other public names by module."""

MODULES = ("data", "methods", "models", "nn", "streams")
"""Modules that are attributes of the package."""


def load(home: str) -> Any:
    """The object `module:name` of this package.

    Example:
        >>> load("extras:MissingExtra").__name__
        'MissingExtra'
    """
    module, _, name = home.partition(":")
    return getattr(import_module(f"note_tta.{module}"), name)


def load_own(name: str, what: str) -> Any:
    """The user's own object `module:name`; the module may be in the working folder.

    Args:
        name: The name as typed.
        what: Its purpose, for messages: "method", "model".

    Raises:
        ValueError: The name does not have this form, or there is no such object.
    """
    module, _, own = name.partition(":")
    if not module or not own:
        raise ValueError(f"your own {what} is named module:name, got {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(import_module(module), own)
    except ImportError as error:
        raise ValueError(f"cannot import {module} for the {what} {name}: {error}") from error
    except AttributeError:
        raise ValueError(f"{module} has no {own} to make a {what} with") from None


def check_known(what: str, name: str, known: Iterable[str], *, of: str = "", hint: str = "") -> None:
    """Refuse a name that is not among the known ones.

    Example:
        >>> check_known("stream", "fast", ("iid", "sorted"))
        Traceback (most recent call last):
        ...
        ValueError: unknown stream 'fast'; known are iid, sorted
    """
    if name not in known:
        whose = f" of {of}" if of else ""
        raise ValueError(f"unknown {what} {name!r}{whose}; known are {', '.join(known)}{hint}")


def homes() -> dict[str, str]:
    """The module of every public name."""
    classes = {home.partition(":")[2]: f"methods.{home.partition(':')[0]}" for home in METHOD_HOMES.values()}
    return {name: module for module, names in HOMES.items() for name in names} | classes
