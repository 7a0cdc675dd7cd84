"""Requests as they come over the wire, bounded in what they hold beside their body and in how long they take."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD = 2**16
"""Bytes of a request beside its body: its first line, headers, trailers and the frames of chunks."""


class BoundedProtocol(HttpToolsProtocol):
    """Reads requests of one connection, and closes it where one is too long or too slow.

    Uvicorn keeps headers of any length, and waits for them forever. The length of bodies is the application's
    matter.

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
        """Read bytes; too many that are no body close the connection."""
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
        """All of a request is there."""
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
