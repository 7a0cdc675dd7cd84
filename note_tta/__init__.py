"""Test-time adaptation: keep a trained classifier accurate while its input drifts, on streams correlated in time.

Public names are imported on first use, so that the command line starts before torch is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .names import MODULES, homes

__version__ = "0.2.0"

__all__ = sorted([*homes(), *MODULES, "__version__"])

if TYPE_CHECKING:
    from . import data as data
    from . import methods as methods
    from . import models as models
    from . import nn as nn
    from . import streams as streams
    from .checkpoint import *  # noqa: F403
    from .checks import *  # noqa: F403
    from .evaluation import *  # noqa: F403
    from .filter import *  # noqa: F403
    from .memory import *  # noqa: F403
    from .methods import *  # noqa: F403
    from .nn.iabn import *  # noqa: F403
    from .nn.prepacked import *  # noqa: F403
    from .recommended import *  # noqa: F403
    from .watch import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f".{name}", __name__)
    home = homes().get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
