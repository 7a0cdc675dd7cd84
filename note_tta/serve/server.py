"""The service as a process: it listens, and at its end it finishes open requests and writes every stream to disk."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn

from ..fleet import Fleet
from .application import create_app
from .limits import Limits
from .protocol import BoundedProtocol

CONNECTIONS = 1000
"""Connections at the same time; more are refused."""
DRAIN = 4
"""Seconds that open requests have when the service is told to stop."""


def serve(
    fleet: Fleet,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    limits: Limits | None = None,
    classes: list[str] | None = None,
    feed: Callable[..., Any] | None = None,
) -> None:
    """Serve a fleet until the process is told to stop.

    Args:
        fleet: The fleet; it is closed at the end.
        host: The address to listen at.
        port: The port; 0 takes a free one.
        token: The token that requests must send; required if other machines can reach the service.
        limits: The limits beyond which requests are refused.
        classes: Names of the classes, for the dashboard.
        feed: A coroutine function that sends its own samples.

    Raises:
        ValueError: Other machines could reach the service, and there is no token.
    """
    server = make_server(fleet, host, port, token=token, limits=limits, classes=classes, feed=feed)
    server.run()


def make_server(
    fleet: Fleet,
    host: str,
    port: int,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> uvicorn.Server:
    """The server around a fleet; see `serve`."""
    check_address(host, token)
    limits = limits or Limits()
    server: uvicorn.Server
    app = create_app(fleet, token=token, limits=limits, stopping=lambda: server.should_exit, **options)
    config = uvicorn.Config(
        app,
        host,
        port,
        http=partial(BoundedProtocol, patience=2 * limits.patience),  # type: ignore[arg-type]
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=30,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=DRAIN,
        ws="none",
    )
    server = uvicorn.Server(config)
    return server


def check_address(host: str, token: str | None) -> None:
    """Refuse an address that other machines can reach if there is no token.

    Example:
        >>> check_address("0.0.0.0", None)
        Traceback (most recent call last):
        ValueError: others can reach 0.0.0.0: give a token of at least 16 characters, --token, or listen at 127.0.0.1
    """
    if token is not None and len(token) < 16:
        raise ValueError(f"token must have at least 16 characters, got {len(token)}")
    if token is None and not _is_loopback(host):
        raise ValueError(
            f"others can reach {host}: give a token of at least 16 characters, --token, or listen at 127.0.0.1"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
