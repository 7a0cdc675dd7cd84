"""The limits of a service, and how it refuses."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")


class Refused(Exception):
    """A request that is answered with an error.

    Args:
        status: The HTTP status.
        reason: What is wrong and how to do it right.
        **details: More for a program to read.
    """

    def __init__(self, status: int, reason: str, **details: int | str | None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.details = details


@dataclass(frozen=True)
class Limits:
    """How much a service accepts before it refuses.

    Attributes:
        body: Bytes of a request.
        pixels: Pixels of an image, checked before it is decoded.
        samples: Samples of a request.
        streams: Streams in all.
        rate: Samples per second of one stream, on average; a tenfold burst is accepted.
        queue: Samples that wait for an answer, in all.
        pending: Bytes of all open requests together.
        viewers: Open dashboards.
        patience: Seconds that a request may take to arrive.
    """

    body: int = 16 * 2**20
    pixels: int = 4_000_000
    samples: int = 1024
    streams: int = 10_000
    rate: float = 1000.0
    queue: int = 2048
    pending: int = 256 * 2**20
    viewers: int = 32
    patience: float = 20.0


def checked_id(stream: str) -> str:
    """A stream's id, checked to consist of letters, digits and `._:@-`.

    Example:
        >>> checked_id("cam-17")
        'cam-17'
        >>> checked_id("../etc")
        Traceback (most recent call last):
        note_tta.serve.limits.Refused: a stream's id is 1 to 128 letters, digits or ._:@- and begins with ...
    """
    if not ID.fullmatch(stream):
        raise Refused(
            400, "a stream's id is 1 to 128 letters, digits or ._:@- and begins with a letter or digit"
        )
    return stream


class Rates:
    """How fast each stream sends: one token bucket per stream, which fills with time and empties with samples.

    Args:
        rate: Samples per second that a stream may send on average; up to ten seconds' worth at once.
        streams: How many streams are remembered; a forgotten one begins with a full bucket.
    """

    def __init__(self, rate: float, streams: int) -> None:
        self.rate = rate
        self.streams = streams
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, stream: str, samples: int) -> None:
        """Count samples of a stream; `Refused` if they come too fast."""
        full, now = 10 * self.rate, time.monotonic()
        left, then = self._buckets.pop(stream, (full, now))
        left = min(full, left + (now - then) * self.rate)
        enough = left >= samples or left == full
        self._buckets[stream] = (left - samples if enough else left, now)
        if len(self._buckets) > self.streams:
            self._buckets.popitem(last=False)
        if not enough:
            raise Refused(
                429, f"stream {stream} sends faster than {self.rate:g} samples per second: send it slower"
            )


class Pending:
    """The memory that all open requests take together.

    Args:
        limit: Bytes, in all.

    Example:
        >>> pending = Pending(100)
        >>> with pending.share() as take:
        ...     take(60)
        ...     pending.taken
        60
        >>> pending.taken
        0
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    @contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """The share of one request: what it takes is given back at its end."""
        mine = 0

        def take(size: int) -> None:
            nonlocal mine
            if self.taken + size > self.limit:
                raise Refused(429, "too much is being sent at once: send it later")
            self.taken += size
            mine += size

        try:
            yield take
        finally:
            self.taken -= mine
