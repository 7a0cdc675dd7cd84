"""The requests of the service as an OpenAPI document."""

from __future__ import annotations

from typing import Any

from .. import __version__
from .bodies import ARRAYS, IMAGES
from .limits import ID
from .record import LEVELS

Json = dict[str, Any]

_ID: Json = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "The stream.",
    "schema": {"type": "string", "pattern": f"^{ID.pattern}$"},
}
_SEQUENCE: Json = {
    "name": "sequence",
    "in": "query",
    "description": "The place of the first sample in its stream, from 0 on. Samples that the stream has learned from "
    "already are answered by its present state and are not learned from again.",
    "schema": {"type": "integer", "minimum": 0, "maximum": 999_999_999_999_999},
}
_WHOLE: Json = {"type": "integer", "minimum": 0}
_ANSWER: Json = {
    "type": "object",
    "required": ["stream", "classes", "probabilities", "repeated", "samples", "durable", "health"],
    "properties": {
        "stream": {"type": "string"},
        "classes": {"type": "array", "items": {"type": ["integer", "null"]}},
        "probabilities": {"type": "array", "items": {"type": ["array", "null"], "items": {"type": "number"}}},
        "repeated": {
            **_WHOLE,
            "description": "How many of the samples, the first ones, were not learned from again.",
        },
        "samples": {**_WHOLE, "description": "The sequence number of the next sample."},
        "durable": {
            "type": ["integer", "null"],
            "description": "Up to this sequence number the state is on disk: after a crash, send on from here.",
        },
        "health": {
            "type": "object",
            "properties": {
                "state": {"enum": [*LEVELS]},
                "why": {"type": "string"},
                "expected_error": {"type": ["number", "null"]},
            },
        },
    },
}
_SUMMARY: Json = {
    "type": "object",
    "required": ["id", "state", "why", "trouble", "paused", "samples", "updates", "durable"],
    "properties": {
        "id": {"type": "string"},
        "state": {"enum": [*LEVELS]},
        "why": {"type": "string"},
        "trouble": {"type": "number"},
        "paused": {"type": "boolean"},
        "samples": _WHOLE,
        "updates": _WHOLE,
        "durable": {"type": ["integer", "null"]},
        "expected_error": {"type": ["number", "null"]},
        "distance": {"type": "number"},
    },
}
_REASON: Json = {"type": "object", "required": ["reason"], "properties": {"reason": {"type": "string"}}}


def openapi() -> Json:
    """The document.

    Example:
        >>> sorted(openapi()["paths"])[:3]
        ['/healthz', '/live', '/metrics']
    """
    one = "/streams/{id}"
    array: Json = {"schema": {"type": "string", "format": "binary"}}
    numbers = {
        "type": "object",
        "required": ["samples"],
        "properties": {"samples": {"type": "array", "items": {}}},
    }
    bodies = dict.fromkeys((*ARRAYS, *IMAGES), array) | {"application/json": {"schema": numbers}}
    state = {"application/octet-stream": array}
    sent = {"200": {"description": "JSON and numbers; nothing in it is executed.", "content": state}}
    forgotten = {"204": {"description": "It is forgotten."}}
    paths: Json = {
        f"{one}/samples": {
            "parameters": [_ID],
            "post": _operation(
                "Answer samples, and let the stream learn from them",
                _ANSWER,
                *(400, 408, 409, 413, 415, 422, 429, 503),
            )
            | {"parameters": [_SEQUENCE], "requestBody": {"required": True, "content": bodies}},
        },
        "/streams": {"get": _operation("All streams, those with the most trouble first", {"type": "object"})},
        one: {
            "parameters": [_ID],
            "get": _operation("A stream: health, counters, events, history", _SUMMARY, 400, 404, 429),
            "delete": _request("Forget a stream", forgotten, 400, 404, 429),
        },
        f"{one}/memory": {
            "parameters": [_ID],
            "get": _operation("What a stream's memory holds", {"type": "object"}, 400, 404, 429),
        },
        f"{one}/state": {
            "parameters": [_ID],
            "get": _request("A stream's state, to move it elsewhere", sent, 400, 404, 429),
            "put": _operation("Continue a stream from a state", _SUMMARY, 400, 408, 413, 422, 429)
            | {"requestBody": {"required": True, "content": state}},
        },
        "/live": {"get": _text("The wall, as server-sent events", "text/event-stream", 429)},
        "/metrics": {"get": _text("The metrics, for Prometheus", "text/plain")},
        "/healthz": {"get": _operation("Whether the service is alive", {"type": "object"}, 503)},
        "/readyz": {"get": _operation("Whether the service takes samples", {"type": "object"}, 503)},
    }
    for what, summary in _CHANGES.items():
        paths[f"{one}/{what}"] = {"parameters": [_ID], "post": _operation(summary, _SUMMARY, 400, 404, 429)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "note-tta",
            "version": __version__,
            "description": "Streams that adapt, over HTTP.",
        },
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
    }


_CHANGES = {
    "reset": "Start again from the source model; the sequence continues",
    "rollback": "Discard what was learned since the last good snapshot, or everything if the stream is not watched",
    "pause": "Answer without learning",
    "resume": "Learn again",
}


def _operation(summary: str, answer: Json, *refusals: int) -> Json:
    content = {"application/json": {"schema": answer}}
    return _request(summary, {"200": {"description": "Done.", "content": content}}, *refusals)


def _text(summary: str, kind: str, *refusals: int) -> Json:
    content = {kind: {"schema": {"type": "string"}}}
    return _request(summary, {"200": {"description": "Text.", "content": content}}, *refusals)


def _request(summary: str, answers: Json, *refusals: int) -> Json:
    """A request with its answers by status; without access, each one is refused with 401 or 403."""
    refused = {"description": "Refused, with a reason.", "content": {"application/json": {"schema": _REASON}}}
    statuses = map(str, (401, 403, *refusals))
    return {"summary": summary, "responses": answers | dict.fromkeys(statuses, refused)}
