"""A client of the service in plain Python and numpy. After a crash it continues from where the server is."""

from __future__ import annotations

import http.client
import io
import json
import selectors
import time
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import numpy.typing as npt

from .limits import Refused

BUSY = (429, 503)
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

    Args:
        client: The client.
        stream: The stream. If the server knows it, samples continue from `position`.
        patience: For how many seconds to retry while the server is away or busy.
    """

    def __init__(self, client: Client, stream: str, patience: float = 60.0) -> None:
        self.client = client
        self.stream = stream
        self.patience = patience
        self._kept: dict[int, npt.NDArray[Any]] = {}
        self.position = self._known()

    def __call__(self, x: npt.ArrayLike) -> list[tuple[int | None, list[float] | None]]:
        """Send the next samples `[B, ...]`, of which it keeps copies; returns a class and probabilities for each."""
        start, samples = self.position, np.asarray(x)
        end = start + len(samples)
        self._kept.update((start + n, sample.copy()) for n, sample in enumerate(samples))
        answers: dict[int, tuple[int | None, list[float] | None]] = {}
        until = time.monotonic() + self.patience
        while self.position < end:
            rows = range(self.position, min(end, self.position + AT_ONCE))
            try:
                answer = self.client.send(self.stream, np.stack([self._kept[n] for n in rows]), rows.start)
            except (Refused, ConnectionError) as error:
                self._go_on_after(error, until)
                continue
            answers.update(
                zip(rows, zip(answer["classes"], answer["probabilities"], strict=True), strict=True)
            )
            self.position = rows.stop
            durable = self.position if answer["durable"] is None else answer["durable"]
            for number in [n for n in self._kept if n < durable]:
                del self._kept[number]
        return [answers[number] for number in range(start, end)]

    def _go_on_after(self, error: Exception, until: float) -> None:
        if isinstance(error, Refused) and error.status == 409:
            expected = int(str(error.details["expected"]))
            if expected not in self._kept:
                raise LookupError(
                    f"the server wants sample {expected} of {self.stream}, which is gone here"
                ) from error
            self.position = expected
            return
        self._wait_after(error, until)

    def _wait_after(self, error: Exception, until: float) -> None:
        if (isinstance(error, Refused) and error.status not in BUSY) or time.monotonic() > until:
            raise error
        time.sleep(0.1)

    def _known(self) -> int:
        """How many samples of the stream the server has."""
        until = time.monotonic() + self.patience
        while True:
            try:
                return int(self.client.stream(self.stream)["samples"])
            except (Refused, ConnectionError) as error:
                if isinstance(error, Refused) and error.status == 404:
                    return 0
                self._wait_after(error, until)


def _path(stream: str) -> str:
    return f"/streams/{quote(stream, safe='')}"
