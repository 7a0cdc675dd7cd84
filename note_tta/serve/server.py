"""The service as a process: it listens, and at its end it finishes open requests and writes every stream to disk."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn

from ..fleet import Fleet
from ..methods.settings import check_count
from .application import create_app
from .guard import is_this_machine
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
    on_listening: Callable[[str], None] = lambda address: None,
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
        on_listening: Called with the service's address, such as `http://127.0.0.1:8000/`, once it has it.

    Raises:
        ValueError: Other machines could reach the service, and there is no token; or there is no such port.
        OSError: The address cannot be listened at, for example because another process does.
    """
    check_address(host, token, port)
    with _listen(host, port) as listening:
        server = make_server(fleet, host, port, token=token, limits=limits, classes=classes, feed=feed)
        name = f"[{host}]" if ":" in host else host
        on_listening(f"http://{name}:{listening.getsockname()[1]}/")
        server.run([listening])


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
    check_address(host, token, port)
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


def check_address(host: str, token: str | None, port: int = 0) -> None:
    """Refuse a port that does not exist, and an address that other machines can reach if there is no token.

    Example:
        >>> check_address("0.0.0.0", None)
        Traceback (most recent call last):
        ValueError: others can reach 0.0.0.0: give a token of at least 16 characters, --token, or listen at 127.0.0.1
    """
    check_count("port", port, 0, 65535)
    if token is not None and len(token) < 16:
        raise ValueError(f"token must have at least 16 characters, got {len(token)}")
    if token is None and not is_this_machine(host):
        raise ValueError(
            f"others can reach {host}: give a token of at least 16 characters, --token, or listen at 127.0.0.1"
        )


def _listen(host: str, port: int) -> socket.socket:
    """A socket at an address; whoever connects now waits until the server runs."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]  # Python adds the address again
        raise OSError(f"cannot listen at {host}, port {port}: {reason}") from error
