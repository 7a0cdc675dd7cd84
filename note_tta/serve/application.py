"""The application: its HTTP requests. It runs under uvicorn, Ray Serve or any other ASGI server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ..fleet import Fleet
from . import bodies, desk
from .gathering import Gathering
from .guard import Guard
from .limits import Limits, Pending, Rates, Refused, checked_id
from .metrics import Metrics
from .schema import openapi
from .wall import Wall

_HERE = Path(__file__).parent / "static"
_UPLOT = Path(__file__).parents[1] / "report" / "templates" / "uplot"
STATE = "application/octet-stream"
SMALL = 2**16
"""An image or text of at most this many bytes is read at once, not in another thread."""

Take = Callable[[int], None]


def create_app(
    fleet: Fleet,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    classes: list[str] | None = None,
    stopping: Callable[[], bool] = lambda: False,
    feed: Callable[[Gathering], Any] | None = None,
) -> Starlette:
    """Make the application around a fleet. It takes the fleet over and closes it when it ends.

    Args:
        fleet: The streams' fleet.
        token: The bearer token that requests must send; None answers only requests of this machine.
        limits: The limits beyond which requests are refused.
        classes: Names of the classes, for the dashboard.
        stopping: Whether the server is shutting down; open dashboards are then disconnected.
        feed: A coroutine function that runs beside the application and sends its own samples, as the demo does.

    Example:
        >>> import note_tta as tta, torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
        >>> app = create_app(tta.Fleet(tta.convert_iabn(model)))
        >>> len(app.routes) > 10
        True
    """
    service = Service(fleet, limits or Limits(), classes, stopping, feed)
    return Starlette(
        routes=service.routes(),
        middleware=[Middleware(Guard, token=token)],
        exception_handlers={
            Refused: _refused,
            HTTPException: _refused,
            ClientDisconnect: _gone,
            Exception: _broken,
        },
        lifespan=service.lifespan,
    )


class Service:
    """The handlers of an application; see `create_app`."""

    def __init__(
        self,
        fleet: Fleet,
        limits: Limits,
        classes: list[str] | None,
        stopping: Callable[[], bool],
        feed: Callable[[Gathering], Any] | None,
    ) -> None:
        self.limits = limits
        self.classes = classes
        self.stopping = stopping
        self.feed = feed
        self.metrics = Metrics()
        self.rates = Rates(limits.rate, limits.streams)
        self.channels = bodies.channels_of(fleet.model)
        self.desk = desk.Desk(fleet, limits)
        self.gathering = Gathering(self.desk, limits, self.metrics.call)
        self.wall = Wall(self.desk.records, self.desk.names, stopping)
        self.pending = Pending(limits.pending)
        self.decoders = asyncio.Semaphore(2)

    def routes(self) -> list[Route | Mount]:
        """All routes of the application."""
        one = "/streams/{id}"
        routes: list[Route | Mount] = [
            Route(f"{one}/samples", self.samples, methods=["POST"]),
            Route("/streams", self.streams),
            Route(one, self.stream),
            Route(one, self.drop, methods=["DELETE"]),
            Route(f"{one}/memory", self.memory),
            Route(f"{one}/state", self.state),
            Route(f"{one}/state", self.put_state, methods=["PUT"]),
            Route("/live", self.live),
            Route("/metrics", self.metrics_text),
            Route("/healthz", self.healthz),
            Route("/readyz", self.readyz),
            Route("/openapi.json", self.schema),
            Route("/", lambda request: FileResponse(_HERE / "index.html")),
            Mount("/static/uplot", StaticFiles(directory=_UPLOT)),
            Mount("/static", StaticFiles(directory=_HERE)),
        ]
        for what in ("reset", "rollback", "pause", "resume"):
            routes.insert(0, Route(f"{one}/{what}", self.changing(what), methods=["POST"]))
        return routes

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Run the wall and the feed. At the end, finish open requests and write every stream to disk."""
        running = [asyncio.create_task(self.wall.keep())]
        if self.feed is not None:
            running.append(asyncio.create_task(self.feed(self.gathering)))
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await asyncio.to_thread(self.gathering.close)
            await asyncio.to_thread(self.desk.close)

    async def samples(self, request: Request) -> Response:
        """Answer samples of a stream."""
        with self.pending.share() as take:
            try:
                self.gathering.arriving += 1
                try:
                    future, start = await self.accept(request, take)
                finally:
                    self.gathering.arriving -= 1
                answer = await self.answered(future)
            except Refused as refused:
                self.metrics.refused.labels(refused.status).inc()
                raise
        self.metrics.answer_seconds.observe(time.perf_counter() - start)
        return JSONResponse(answer)

    async def accept(self, request: Request, take: Take) -> tuple[Future[Any], float]:
        """Read samples and queue them; also return the time at which all of them had arrived."""
        stream = checked_id(request.path_params["id"])
        sequence = _sequence(request)
        body = await self.body(request, take)
        start = time.perf_counter()
        kind = request.headers.get("content-type", "")
        arguments = (body, kind, self.channels, self.limits)
        if kind in bodies.ARRAYS or len(body) < SMALL:
            x = bodies.samples(*arguments)
        else:
            async with self.decoders:
                x = await asyncio.to_thread(bodies.samples, *arguments)
        take(x.nbytes)
        self.rates.take(stream, len(x))
        return self.gathering.samples(desk.Request(stream, x, sequence)), start

    async def streams(self, request: Request) -> Response:
        """All streams: first those seen since the start, the most trouble first, then the ids of the others."""
        asleep = sorted(self.desk.names - self.desk.records.keys())
        return JSONResponse(
            {**self.wall.look(), "asleep": asleep[: self.limits.streams], "classes": self.classes}
        )

    async def stream(self, request: Request) -> Response:
        """One stream: health, counters, events, history."""
        name = checked_id(request.path_params["id"])
        page = await self.ask(lambda desk: {**desk.record(name).page(name), "events": desk.events(name)})
        return JSONResponse({**page, "classes": self.classes})

    def changing(self, what: str) -> Callable[[Request], Any]:
        """A handler that pauses, resumes, resets or rolls back a stream."""

        async def change(request: Request) -> Response:
            name = checked_id(request.path_params["id"])
            return JSONResponse(await self.ask(lambda desk: desk.change(name, what)))

        return change

    async def drop(self, request: Request) -> Response:
        """Delete a stream."""
        name = checked_id(request.path_params["id"])
        await self.ask(lambda desk: desk.drop(name))
        return Response(status_code=204)

    async def memory(self, request: Request) -> Response:
        """What a stream's memory holds."""
        name = checked_id(request.path_params["id"])
        return JSONResponse(await self.ask(lambda desk: desk.memory(name)))

    async def state(self, request: Request) -> Response:
        """A stream's state as a file."""
        name = checked_id(request.path_params["id"])
        return Response(await self.ask(lambda desk: desk.state(name)), media_type=STATE)

    async def put_state(self, request: Request) -> Response:
        """Continue a stream from a state."""
        name = checked_id(request.path_params["id"])
        with self.pending.share() as take:
            body = await self.body(request, take)
            return JSONResponse(await self.ask(lambda desk: desk.put_state(name, body)))

    async def live(self, request: Request) -> Response:
        """The wall as server-sent events."""
        if self.wall.viewers >= self.limits.viewers:
            raise Refused(429, f"{self.limits.viewers} pages are open, which is the limit: close one")
        return StreamingResponse(self.wall.live(), media_type="text/event-stream")

    async def metrics_text(self, request: Request) -> Response:
        """The metrics, for Prometheus."""
        text = self.metrics.text(self.wall.look()["states"], self.gathering.waiting)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def healthz(self, request: Request) -> Response:
        """Whether the service is alive."""
        alive = self.gathering.alive
        return JSONResponse({"alive": alive}, 200 if alive else 503)

    async def readyz(self, request: Request) -> Response:
        """Whether the service takes samples."""
        ready = self.gathering.alive and not self.stopping()
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def schema(self, request: Request) -> Response:
        """The OpenAPI document."""
        return JSONResponse(openapi())

    async def ask(self, task: Callable[[desk.Desk], Any]) -> Any:
        """Run something in the thread that owns the fleet."""
        return await self.answered(self.gathering.ask(task))

    async def answered(self, future: Future[Any]) -> Any:
        """Wait for a result; refuse the request if the service ends first."""
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not self.stopping():
                raise
            raise Refused(503, "the service is being shut down: ask again when it is back") from None

    async def body(self, request: Request, take: Take) -> bytes:
        """Read a request's body; refuse it if it is too large or too slow, or if all bodies together are too large."""
        most = self.limits.body
        declared = request.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared[:20]) > most:
            raise Refused(413, f"the body has {declared[:20]} bytes, the limit is {most}: send less at once")

        async def read() -> bytes:
            body = bytearray()
            async for chunk in request.stream():
                if len(body) + len(chunk) > most:
                    raise Refused(413, f"the body has more than {most} bytes: send less at once")
                take(len(chunk))
                body += chunk
            return bytes(body)

        try:
            return await asyncio.wait_for(read(), self.limits.patience)
        except asyncio.TimeoutError:
            raise Refused(408, f"the body took more than {self.limits.patience:g} seconds") from None


def _sequence(request: Request) -> int | None:
    text = request.query_params.get("sequence")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise Refused(
            400, "sequence must be a whole number from 0 on: the place of the first sample in its stream"
        )
    return int(text)


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return JSONResponse({"reason": error.detail}, error.status_code, error.headers)
    assert isinstance(error, Refused)
    headers = {"Retry-After": "1"} if error.status in (429, 503) else None
    return JSONResponse({"reason": error.reason, **error.details}, error.status, headers)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


async def _broken(request: Request, error: Exception) -> Response:
    return JSONResponse({"reason": "an error in the service: its log says which"}, 500)
