"""How a feed numbers, keeps and sends samples again, with a stand-in for the client and the server behind it."""

import numpy as np
import pytest

from note_tta.serve import client
from note_tta.serve.client import Feed
from note_tta.serve.limits import Refused


class StandIn:
    """A server that learns from the values of samples, answers with them, and writes nothing to its store."""

    def __init__(self):
        self.learned = []
        self.batches = []
        self.away = False
        self.loses_answers = False
        self.at_most = 1024

    def stream(self, name):
        return {"samples": len(self.learned)}

    def send(self, name, x, sequence):
        if self.away:
            raise ConnectionError("away")
        if sequence > len(self.learned):
            raise Refused(409, "a gap", expected=len(self.learned))
        if x.dtype.kind == "c":
            raise Refused(400, "the body is no npy file of numbers")
        if x[0].size > 1:
            raise Refused(422, "samples must be of shape [1]")
        if x.nbytes > 8 * self.at_most:
            raise Refused(413, "send less at once")
        self.batches.append((len(x), x.dtype.name))
        values = [float(value) for (value,) in x]
        self.learned += values[len(self.learned) - sequence :]
        if self.loses_answers:
            self.away = True
            raise ConnectionError("answer lost")
        return {"classes": values, "probabilities": [[1.0]] * len(x), "durable": 0}

    def crash(self):
        self.learned.clear()


def frames(start, end):
    return np.arange(start, end, dtype=float)[:, None]


def classes(answers):
    return [label for label, _ in answers]


@pytest.fixture
def server():
    return StandIn()


@pytest.fixture
def feed(server, clock):
    return Feed(server, "cam-1", patience=5)


@pytest.fixture
def clock(monkeypatch):
    """A time that passes only when the feed sleeps or a test adds to it."""

    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

        def sleep(self, seconds):
            self.now += seconds

    monkeypatch.setattr(client, "time", Clock())
    return client.time


def test_the_caller_may_reuse_its_array(server, feed):
    array = frames(0, 10)
    feed(array)
    array[:] = frames(10, 20)
    feed(array)
    server.crash()
    array[:] = frames(20, 30)
    feed(array)
    assert server.learned == list(range(30))


def test_patience_ends_without_progress(server, feed, clock):
    feed(frames(0, 10))
    clock.now += 100
    server.away = True
    with pytest.raises(ConnectionError):
        feed(frames(10, 20))
    assert 105 < clock.now < 106
