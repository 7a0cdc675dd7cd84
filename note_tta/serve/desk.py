"""What a service does with the streams of a fleet. All of it runs in one thread, so it needs no locks."""

from __future__ import annotations

import base64
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..fleet import Fleet
from ..fleet.codec import Codec
from ..methods.method import Method
from ..methods.packed import plain
from .limits import Limits, Refused
from .record import Record

LOG = logging.getLogger("note_tta.serve")
KEPT_WITHIN = 256
"""A stream is written after this many samples, even if there was no update."""
PICTURE = 64
"""The largest height or width of an image of the memory; larger ones are thinned out."""


class Request(NamedTuple):
    """Samples of one stream: `x` is `[B, ...]`, `sequence` the place of the first one in the stream, if told."""

    stream: str
    x: Tensor
    sequence: int | None = None


class Plan(NamedTuple):
    """The place of a request's first sample in its stream; the first `repeated` samples were already learned from."""

    start: int
    repeated: int


class Desk:
    """The streams of a fleet, with a record of each.

    Args:
        fleet: The fleet; nobody else calls it.
        limits: How many streams there may be.
    """

    def __init__(self, fleet: Fleet, limits: Limits) -> None:
        self.fleet = fleet
        self.limits = limits
        self.records: dict[str, Record] = {}
        self.names = {name for name in fleet if isinstance(name, str)}

    def answer(self, requests: Sequence[Request]) -> list[dict[str, Any] | Exception]:
        """Answer requests in one call of the fleet; if it refuses them together, answer each by itself.

        An error that belongs to one request is its own result; the other requests are answered.
        """
        plans = self._plan(requests)
        pairs = [*zip(requests, plans, strict=True)]
        fresh = [(r.stream, r.x[p.repeated :]) for r, p in pairs if isinstance(p, Plan)]
        ids = [stream for stream, x in fresh for _ in x]
        try:
            new = rows_of(self.fleet(ids, torch.cat([x for _, x in fresh]))) if ids else []
        except (ValueError, TypeError) as error:
            if len(requests) == 1:
                return [Refused(422, str(error))]
            return [self._alone(request, plan) for request, plan in pairs]
        except OSError as error:
            LOG.error("%s", error)
            return [
                Refused(503, "the store cannot be written: send the samples again later") for _ in requests
            ]
        finally:
            self.names.update(stream for stream in {*ids} if stream in self.fleet)
        results: list[dict[str, Any] | Exception] = []
        for request, plan in pairs:
            if isinstance(plan, Exception):
                results.append(plan)
                continue
            count = len(request.x) - plan.repeated
            mine, new = new[:count], new[count:]
            try:
                known = request.x[: plan.repeated]
                old = rows_of(self._present(request.stream, known)) if plan.repeated else []
                results.append(self._written(request.stream, old, mine))
            except Exception as error:
                results.append(error)
        return results

    def _alone(self, request: Request, plan: Plan | Exception) -> dict[str, Any] | Exception:
        """Answer one request of a call that failed, without learning again what that call has learned from."""
        try:
            if isinstance(plan, Plan) and request.sequence is None:
                # An earlier request of the same stream may have failed: then this one begins before its plan.
                start = min(plan.start, self.position(request.stream))
                request = request._replace(sequence=start)
            return self.answer([request])[0]
        except Exception as error:
            return error

    def _plan(self, requests: Sequence[Request]) -> list[Plan | Exception]:
        """For each request, where it begins, or why it is not answered."""
        positions: dict[str, int] = {}
        plans: list[Plan | Exception] = []
        for stream, x, sequence in requests:
            if stream not in positions and not self._room_for({*positions, stream}):
                plans.append(self._too_many())
                continue
            try:
                at = positions[stream] if stream in positions else self.position(stream)
            except Exception as error:
                plans.append(error)
                continue
            if sequence is not None and sequence > at:
                plans.append(
                    Refused(
                        409, f"sequence must be at most {at}, got {sequence}: send on from there", expected=at
                    )
                )
                continue
            start = at if sequence is None else sequence
            repeated = min(len(x), at - start)
            positions[stream] = at + len(x) - repeated
            plans.append(Plan(start, repeated))
        return plans

    def _room_for(self, streams: set[str]) -> bool:
        return streams <= self.names or len(self.names | streams) <= self.limits.streams

    def _too_many(self) -> Refused:
        return Refused(
            429, f"there are {len(self.names)} streams, the limit is {self.limits.streams}: drop one"
        )

    def position(self, stream: str) -> int:
        """How many samples a stream has had: the sequence number of the next one, also after a call that failed."""
        return int(self._method(stream).counters["samples"]) if stream in self.fleet else 0

    def record(self, stream: str) -> Record:
        """The record of a stream; `Refused` if there is no stream of that name, or its stored state is damaged."""
        self._check_known(stream)
        if stream not in self.records:
            self._method(stream)
            self.records[stream] = Record()
            self._look(stream)
        return self.records[stream]

    def change(self, stream: str, what: str) -> dict[str, Any]:
        """Pause, resume, reset or roll back a stream."""
        record = self.record(stream)
        if what == "reset":
            self._reset(stream, record.samples)
            record.forget()
        elif what == "rollback":
            self.fleet.roll_back(stream)
            record.forget()
        elif what == "pause":
            self.fleet.pause(stream)
        else:
            self.fleet.resume(stream)
        self._look(stream, anew=True)
        record.tell(what, "asked for")
        return record.summary(stream)

    def drop(self, stream: str) -> None:
        """Delete a stream."""
        self._check_known(stream)
        self.fleet.drop(stream)
        self.records.pop(stream, None)
        self.names.discard(stream)

    def state(self, stream: str) -> bytes:
        """A stream's state as a record of the store: JSON and numbers."""
        self.record(stream)
        return Codec().encode(self.fleet.state_dict(stream))

    def put_state(self, stream: str, data: bytes) -> dict[str, Any]:
        """Continue a stream, new or known, from a state."""
        if not self._room_for({stream}):
            raise self._too_many()
        try:
            self.fleet.load_state_dict(stream, plain(Codec().decode(data)))
        except (ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
            raise Refused(422, f"the body is no state of a stream of this model: {error}"[:300]) from None
        self.names.add(stream)
        record = self.record(stream)
        record.forget()
        self._look(stream, anew=True)
        record.tell("state", "loaded by a request")
        return record.summary(stream)

    def memory(self, stream: str) -> dict[str, Any]:
        """What a stream's memory holds: labels, and the images as bytes if the samples are images."""
        self.record(stream)
        memory = self.fleet.method(stream).inner.memory  # type: ignore[attr-defined]
        x = memory.inputs()
        content: dict[str, Any] = {"labels": memory.labels(), "shape": None, "pixels": None}
        if x.ndim == 4 and x.shape[1] in (1, 3) and len(x):
            x = x[:, :, :: -(-x.shape[2] // PICTURE), :: -(-x.shape[3] // PICTURE)].float()
            low, high = min(0.0, float(x.min())), max(1.0, float(x.max()))
            pixels = ((x - low) * (255 / (high - low))).round().to(torch.uint8).contiguous()
            content["shape"] = list(x.shape[1:])
            content["pixels"] = base64.b64encode(pixels.numpy().tobytes()).decode()
        return content

    def events(self, stream: str) -> list[dict[str, Any]]:
        """What happened to a stream, the latest last: the watch's events, where it is watched, and the service's."""
        own = list(self.record(stream).events)
        watched = getattr(self.fleet.method(stream), "events", None) or []
        told = [
            {"samples": e.samples, "time": e.time, "kind": e.kind, "cause": e.cause} for e in watched[-50:]
        ]
        return sorted(told + own, key=lambda event: event["samples"])

    def close(self) -> None:
        """Write every stream that is not on disk yet."""
        self.fleet.close()

    def _check_known(self, stream: str) -> None:
        if stream not in self.names:
            raise Refused(404, f"there is no stream {stream}")

    def _method(self, stream: str) -> Method:
        """The method of a stream; `Refused` if its stored state is damaged."""
        try:
            return self.fleet.method(stream)
        except ValueError as error:
            raise Refused(
                500, f"the stored state of stream {stream} is damaged: delete the stream, or PUT a good state"
            ) from error

    def _reset(self, stream: str, samples: int) -> None:
        """Start again from the source; the count of samples continues, since it is the place in the stream."""
        method = self.fleet.fork(stream)
        method.reset()
        state = method.state_dict()
        inside: dict[str, Any] | None = state
        while inside is not None:
            inside["counters"] = {**inside["counters"], "samples": samples}
            inside = inside.get("inner")
        self.fleet.load_state_dict(stream, state)

    def _present(self, stream: str, x: Tensor) -> Tensor:
        """Answers by a stream's current state, without changing it; `Refused` if the samples do not fit."""
        method = self.fleet.fork(stream)
        method.pause()
        try:
            return method(x)
        except (ValueError, TypeError) as error:
            raise Refused(422, str(error)) from None

    def _look(self, stream: str, *, anew: bool = False) -> None:
        record = self.records[stream]
        record.look(self.fleet.method(stream), anew=anew)
        record.durable = self.fleet.durable(stream)
        if record.durable is not None and record.samples - record.durable >= KEPT_WITHIN:
            self.fleet.keep(stream)
            record.durable = self.fleet.durable(stream)

    def _written(self, stream: str, old: list[Row], new: list[Row]) -> dict[str, Any]:
        record = self.record(stream)
        self._look(stream)
        if new:
            record.count([row.label for row in new], [row.confidence for row in new])
        state, why = record.follow()
        return {
            "stream": stream,
            "classes": [row.label for row in old + new],
            "probabilities": [row.probabilities for row in old + new],
            "repeated": len(old),
            "samples": record.samples,
            "durable": record.durable,
            "health": {"state": state, "why": why, "expected_error": record.expected_error},
        }


class Row(NamedTuple):
    """The answer to one sample; None if the sample could not be used."""

    label: int | None
    probabilities: list[float] | None
    confidence: float


def rows_of(logits: Tensor) -> list[Row]:
    """Logits `[B, K]` as plain answers.

    Example:
        >>> rows_of(torch.tensor([[0.0, 100.0], [torch.nan, torch.nan]]))
        [Row(label=1, probabilities=[0.0, 1.0], confidence=1.0), Row(label=None, probabilities=None, confidence=0.0)]
    """
    probabilities = logits.double().softmax(dim=1)
    best, classes = probabilities.max(dim=1)
    values = zip(classes.tolist(), probabilities.round(decimals=6).tolist(), best.tolist(), strict=True)
    return [Row(c, p, b) if b == b else Row(None, None, 0.0) for c, p, b in values]
