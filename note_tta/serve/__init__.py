"""Live streams over HTTP: samples in, answers out, state that survives restarts, and a dashboard.

The client needs only numpy, so the other names are resolved on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..extras import require

if TYPE_CHECKING:
    from .application import create_app as create_app
    from .client import Client as Client
    from .limits import Limits as Limits
    from .server import serve as serve

_HOMES = {"Client": "client", "Limits": "limits", "create_app": "application", "serve": "server"}

__all__ = sorted(_HOMES)


def check_packages() -> None:
    """Say in one line what is missing if the service's packages are not installed."""
    require("note_tta.serve", "serve", "starlette", "uvicorn", "prometheus_client", "PIL")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("create_app", "serve"):
        check_packages()
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
