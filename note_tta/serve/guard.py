"""Access: whoever has the token, or without one this machine only. Also headers that keep browsers strict."""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .limits import Refused

OPEN = ("/", "/healthz", "/readyz", "/openapi.json")
"""What needs no token: the empty page, whether the service is alive, and its OpenAPI document."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Lets a request through to the application, or refuses it.

    Args:
        app: The application.
        token: The token that requests must send as `Authorization: Bearer …`. With None every process of this
            machine may send requests, and the `Host` header must name this machine, so that no page from
            elsewhere can reach the service under its own name.
    """

    def __init__(self, app: ASGIApp, token: str | None = None) -> None:
        self.app = app
        self.token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on or refuse one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_strictly(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        try:
            self.check(scope["path"], Headers(scope=scope))
        except Refused as refused:
            headers = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else None
            response = JSONResponse({"reason": refused.reason}, refused.status, headers)
            await response(scope, receive, send_strictly)
        else:
            await self.app(scope, receive, send_strictly)

    def check(self, path: str, headers: Headers) -> None:
        """Refuse a request without access."""
        host = headers.get("host", "")
        if self.token is None and not is_this_machine(_name(host)):
            raise Refused(403, "without a token the service answers to this machine's own name only")
        origin = headers.get("origin")
        if origin is not None and _split(origin) != host:
            raise Refused(403, "the request comes from a page of another site")
        if self.token is None or path in OPEN or path.startswith("/static/"):
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.token):
            raise Refused(401, "the token is missing or wrong: send Authorization: Bearer <token>")


def is_this_machine(name: str | None) -> bool:
    """Whether a host name or address always means the machine that uses it.

    Example:
        >>> is_this_machine("localhost"), is_this_machine("127.0.0.2"), is_this_machine("192.168.1.5")
        (True, True, False)
    """
    try:
        return name == "localhost" or ipaddress.ip_address(name or "").is_loopback
    except ValueError:
        return False


def _name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _split(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
