"""The HTTP protocol, with limits on the size of headers and on the time that a request takes to arrive."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD = 2**16
"""Bytes of a request besides its body: first line, headers, trailers and chunk frames."""


class BoundedProtocol(HttpToolsProtocol):
    """Reads the requests of one connection, and closes it if one is too long or too slow.

    Uvicorn accepts headers of any length and waits for them forever. The application limits the bodies.

    Args:
        *args: For uvicorn's protocol.
        patience: Seconds for a request to arrive, counted from its first byte or from the connection's beginning.
        **kwargs: For uvicorn's protocol.
    """

    def __init__(self, *args: Any, patience: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._patience = patience
        self._held = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request."""
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read bytes; too many besides the body close the connection."""
        self._held += len(data)
        super().data_received(data)
        if self._held > HEAD and not self.transport.is_closing():
            self.send_400_response(f"A request has at most {HEAD} bytes beside its body.")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._expect()

    def on_body(self, body: bytes) -> None:
        """A part of a body goes to the application."""
        self._held -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is complete."""
        self._held = 0
        self._arrived()
        super().on_message_complete()

    def _expect(self) -> None:
        self._arrived()
        self._timer = self.loop.call_later(self._patience, self.transport.abort)

    def _arrived(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
