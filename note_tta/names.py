"""Where every public name lives. Nothing here imports torch, so that the command line answers at once."""

from __future__ import annotations

import sys
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
"""Each method's key, its file in `methods/` and its class: a new method is one file and one line here."""

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
"""Each dataset's key, its file in `data/` and its record: a new dataset is one file and one line here."""

WRAPPER_HOMES = {"filter": "filter:TemporalFilter", "watch": "watch:Watch"}
"""What goes around a method, by the word that the command line and result files use."""

COMPOSITION_HOMES = {"adapt": ("recommended:adapt", "recommended:Adapted")}
"""What is put together from methods, by the same kind of word: what makes it, and the class that says its facts."""

HOMES = {
    "recommended": ("adapt",),
    "memory": ("CSTU", "FIFO", "HUS", "Memory", "PBRS", "Reservoir"),
    "nn.iabn": ("IABN1d", "IABN2d", "IABN3d", "convert_bn", "convert_iabn"),
    "nn.unmix": ("UnMixTNS2d", "convert_unmix_tns"),
    "methods": ("METHODS", "Method"),
    "evaluation": ("Result", "evaluate"),
    "checkpoint": ("load_state", "load_weights", "save_state"),
    "checks": ("check_method",),
    "filter": ("TemporalFilter",),
    "fleet": ("Fleet",),
    "watch": ("Watch",),
}
"""The other names, by their module."""

MODULES = ("data", "methods", "models", "nn", "streams")
"""Modules that are reachable as attributes of the package."""


def load(home: str) -> Any:
    """What lives at `module:name` in this package.

    Example:
        >>> load("extras:MissingExtra").__name__
        'MissingExtra'
    """
    module, _, name = home.partition(":")
    return getattr(import_module(f"note_tta.{module}"), name)


def load_own(name: str, what: str) -> Any:
    """What a user calls `module:name`; the module may be in the working folder.

    Args:
        name: As typed.
        what: What it is for, in messages: "method", "model".

    Raises:
        ValueError: The name is not of that form, or nothing by that name is there.
    """
    module, _, own = name.partition(":")
    if not module or not own:
        raise ValueError(f"a {what} of your own is named module:name, got {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(import_module(module), own)
    except ImportError as error:
        raise ValueError(f"cannot import {module} for the {what} {name}: {error}") from error
    except AttributeError:
        raise ValueError(f"{module} has no {own} to make a {what} with") from None


def homes() -> dict[str, str]:
    """The module of every public name."""
    classes = {home.partition(":")[2]: f"methods.{home.partition(':')[0]}" for home in METHOD_HOMES.values()}
    return {name: module for module, names in HOMES.items() for name in names} | classes
