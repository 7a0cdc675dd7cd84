"""The wall: all streams on the dashboard, sent again whenever something has changed."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

from .record import Record

SHOWN = 240
"""The number of streams on the wall: those with the most trouble."""
EVERY = 1.0
"""Seconds between two points of a stream's history, and between two updates of a page."""


class Wall:
    """What dashboards show of the streams.

    Records are written by another thread, one value at a time; what is read here may be of two moments.

    Args:
        records: Of the streams that were seen since the start, by id.
        names: Of all streams.
        stopping: Whether the service is being shut down.
    """

    def __init__(self, records: dict[str, Record], names: set[str], stopping: Callable[[], bool]) -> None:
        self.records = records
        self.names = names
        self.stopping = stopping
        self.viewers = 0
        self._shown: dict[str, Any] = {"streams": [], "states": {}}

    async def keep(self) -> None:
        """While the service runs, add a point of history each second to streams that had samples."""
        while True:
            await asyncio.sleep(EVERY)
            self.mark()

    def mark(self) -> None:
        """Add a point to the history of each stream that changed, and send the wall again."""
        now = time.time()
        for record in list(self.records.values()):
            if record.changed:
                record.changed = False
                record.mark(now)
        self._shown = self.look()

    def look(self) -> dict[str, Any]:
        """All streams, those with the most trouble first, up to the limit."""
        judged = [(name, record, record.judge()[0]) for name, record in list(self.records.items())]
        asleep = len(self.names) - len(judged)
        worst = sorted(judged, key=lambda one: (-one[1].trouble, one[0]))[:SHOWN]
        states = Counter(state for _, _, state in judged)
        if asleep > 0:
            states["asleep"] = asleep
        return {
            "time": round(time.time(), 2),
            "states": dict(states),
            "count": len(self.names),
            "streams": [record.summary(name) for name, record, _ in worst],
        }

    async def live(self) -> AsyncIterator[str]:
        """The wall as server-sent events, whenever it has changed."""
        self.viewers += 1
        try:
            sent: Any = None
            while not self.stopping():
                if self._shown is not sent:
                    sent = self._shown
                    yield f"data: {json.dumps(sent, separators=(',', ':'))}\n\n"
                await asyncio.sleep(EVERY / 4)
        finally:
            self.viewers -= 1
