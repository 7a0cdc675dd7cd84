"""A client of the service in plain Python and numpy. After a crash it continues from where the server is."""

from __future__ import annotations

import http.client
import io
import itertools
import json
import selectors
import time
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import numpy.typing as npt

from .limits import Refused

BUSY = (429, 503)
UNFIT = (400, 413, 422)
AT_ONCE = 64


class Client:
    """Sends requests to a service over one connection, so from one thread at a time.

    Args:
        address: The address of the service.
        token: The token that the service was started with.
        timeout: Seconds to wait for an answer.

    Example:
        >>> client = Client("http://127.0.0.1:8000")
        >>> client.send("cam-1", images)["classes"]  # doctest: +SKIP
        [3, 3, 7]
        >>> client.ask("POST", "/streams/cam-1/rollback")  # doctest: +SKIP
    """

    def __init__(
        self, address: str = "http://127.0.0.1:8000", token: str | None = None, timeout: float = 30.0
    ) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"address must be like http://127.0.0.1:8000, got {address!r}")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=timeout)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def ask(self, verb: str, path: str, body: bytes | None = None, kind: str = "application/x-npy") -> Any:
        """Send any request. A JSON answer is returned as values, any other as bytes.

        Raises:
            Refused: The service refused; `status` and `reason` say why.
            OSError: The service cannot be reached.
        """
        self._drop_if_closed()
        headers = self._headers if body is None else {**self._headers, "Content-Type": kind}
        try:
            self._connection.request(verb, path, body, headers)
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ConnectionError(f"no answer from the service: {error!r}") from error
        said_json = response.headers.get_content_type() == "application/json"
        answer = json.loads(content) if said_json else content
        if response.status >= 400:
            details = answer if isinstance(answer, dict) else {}
            reason = details.pop("reason", f"status {response.status}")
            raise Refused(response.status, reason, **details)
        return answer

    def _drop_if_closed(self) -> None:
        """Use a new connection if the server has closed this one because it was idle."""
        if self._connection.sock is not None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._connection.sock, selectors.EVENT_READ)
                if selector.select(0):
                    self._connection.close()

    def send(self, stream: str, x: npt.ArrayLike, sequence: int | None = None) -> dict[str, Any]:
        """Send samples `[B, ...]` of a stream; returns classes, probabilities, health and what is durable.

        Args:
            stream: The stream.
            x: The samples; bytes from 0 to 255 are scaled to values from 0 to 1.
            sequence: The place of the first sample in the stream; None means that all are new.
        """
        file = io.BytesIO()
        np.save(file, np.asarray(x), allow_pickle=False)
        query = "" if sequence is None else f"?sequence={sequence}"
        answer: dict[str, Any] = self.ask("POST", f"{_path(stream)}/samples{query}", file.getvalue())
        return answer

    def stream(self, stream: str) -> dict[str, Any]:
        """A stream's health, counters, events and history."""
        answer: dict[str, Any] = self.ask("GET", _path(stream))
        return answer

    def state(self, stream: str) -> bytes:
        """A stream's state, for `put_state` of this service or another one on the same model."""
        answer: bytes = self.ask("GET", f"{_path(stream)}/state")
        return answer

    def put_state(self, stream: str, state: bytes) -> dict[str, Any]:
        """Continue a stream, new or known, from a state."""
        answer: dict[str, Any] = self.ask("PUT", f"{_path(stream)}/state", state, "application/octet-stream")
        return answer

    def feed(self, stream: str, patience: float = 60.0) -> Feed:
        """Send a stream so that each sample is learned from exactly once, even if the server crashes."""
        return Feed(self, stream, patience)


class Feed:
    """Sends a stream in order, and sends again what the server had not written when it crashed.

    A call copies its samples. If it raises because the server is away or busy, do not pass them again: they are kept,
    and the next call sends them first. A call returns answers for its own samples only. `feed(x[:0])` has none of its
    own and sends only those that are kept.

    Args:
        client: The client.
        stream: The stream. If the server knows it, samples continue from `position`.
        patience: For how many seconds to retry while the server is away or busy, from the last accepted batch on.
    """

    def __init__(self, client: Client, stream: str, patience: float = 60.0) -> None:
        self.client = client
        self.stream = stream
        self.patience = patience
        self._kept: dict[int, npt.NDArray[Any]] = {}
        self._at_once = AT_ONCE
        self._until = time.monotonic() + patience
        self.position = self._known()
        self._accepted = self.position  # up to here the server has had the samples, perhaps before a crash
        self._end = self.position  # the number of the next new sample

    def __call__(self, x: npt.ArrayLike) -> list[tuple[int | None, list[float] | None]]:
        """Send the next samples `[B, ...]`; returns a class and probabilities for each.

        Raises:
            ConnectionError: The server was away for longer than `patience`. The samples are kept.
            Refused: The server was busy for longer than `patience`, or refuses the request. The samples are kept. Only
                if they are the reason (status 400, 413 or 422), all that it has not accepted yet are forgotten.
            LookupError: The server wants samples that are gone here. All that it has not accepted yet are forgotten.
            TypeError: The samples are not numbers. None is taken.
        """
        samples = np.asarray(x)
        if samples.dtype.hasobject:
            raise TypeError(f"samples must be numbers, got dtype {samples.dtype}")
        start, end = self._end, self._end + len(samples)
        self._kept.update((start + n, sample.copy()) for n, sample in enumerate(samples))
        self._end = end
        answers: dict[int, tuple[int | None, list[float] | None]] = {}
        self._until = time.monotonic() + self.patience
        while self.position < end:
            batch = self._batch()
            rows = range(self.position, self.position + len(batch))
            try:
                answer = self.client.send(self.stream, batch, rows.start)
            except (Refused, ConnectionError) as error:
                self._go_on_after(error, len(rows))
                continue
            answers.update(
                zip(rows, zip(answer["classes"], answer["probabilities"], strict=True), strict=True)
            )
            self._until = time.monotonic() + self.patience
            self.position = rows.stop
            self._accepted = max(self._accepted, self.position)
            durable = self.position if answer["durable"] is None else answer["durable"]
            for number in [n for n in self._kept if n < durable]:
                del self._kept[number]
        return [answers[number] for number in range(start, end)]

    def _batch(self) -> npt.NDArray[Any]:
        """The next samples to send, all of one shape and dtype: stacked with floats, bytes would not be scaled."""
        first = self._kept[self.position]
        following = range(self.position, min(self._end, self.position + self._at_once))
        alike = itertools.takewhile(
            lambda sample: (sample.shape, sample.dtype) == (first.shape, first.dtype),
            (self._kept[number] for number in following),
        )
        return np.stack(list(alike))

    def _go_on_after(self, error: Refused | ConnectionError, sent: int) -> None:
        """Choose what to send next after a refusal, wait for a server that is away, or raise."""
        if not isinstance(error, Refused) or error.status in BUSY:
            self._wait_after(error)
        elif error.status == 409:
            expected = int(str(error.details["expected"]))
            if expected not in self._kept:
                self._forget_new()
                raise LookupError(
                    f"the server wants sample {expected} of {self.stream}, which is gone here"
                ) from error
            self.position = expected
        elif error.status == 413 and sent > 1:
            self._at_once = sent // 2
        else:
            if error.status in UNFIT:
                self._forget_new()
            raise error

    def _forget_new(self) -> None:
        """Forget the samples that the server has not accepted: it would refuse them again in every later call."""
        self._kept = {number: sample for number, sample in self._kept.items() if number < self._accepted}
        self._end, self._at_once = self._accepted, AT_ONCE

    def _wait_after(self, error: Refused | ConnectionError) -> None:
        if (isinstance(error, Refused) and error.status not in BUSY) or time.monotonic() > self._until:
            raise error
        time.sleep(0.1)

    def _known(self) -> int:
        """How many samples of the stream the server has."""
        while True:
            try:
                return int(self.client.stream(self.stream)["samples"])
            except (Refused, ConnectionError) as error:
                if isinstance(error, Refused) and error.status == 404:
                    return 0
                self._wait_after(error)


def _path(stream: str) -> str:
    return f"/streams/{quote(stream, safe='')}"
