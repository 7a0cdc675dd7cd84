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


def test_samples_whose_answer_was_lost_are_sent_first_in_the_next_call(server, feed):
    feed(frames(0, 10))
    server.loses_answers = True
    with pytest.raises(ConnectionError):
        feed(frames(10, 20))
    server.loses_answers = server.away = False
    assert classes(feed(frames(20, 30))) == list(range(20, 30))
    assert server.learned == list(range(30))


def test_samples_of_calls_that_found_no_server_are_sent_first_in_the_next_call(server, feed):
    server.away = True
    for start in (0, 100):
        with pytest.raises(ConnectionError):
            feed(frames(start, start + 100))
    server.away = False
    assert classes(feed(frames(200, 210))) == list(range(200, 210))
    assert server.learned == list(range(210))


def test_a_call_without_samples_sends_those_that_are_kept(server, feed):
    server.away = True
    with pytest.raises(ConnectionError):
        feed(frames(0, 10))
    server.away = False
    assert feed(frames(0, 0)) == []
    assert server.learned == list(range(10))


def test_a_server_may_go_again_while_samples_are_sent_again(server, feed, monkeypatch):
    for start in range(0, 150, 10):
        feed(frames(start, start + 10))
    server.crash()
    send = server.send

    def send_until_64_are_learned(*args):
        server.away = len(server.learned) == 64
        return send(*args)

    monkeypatch.setattr(server, "send", send_until_64_are_learned)
    with pytest.raises(ConnectionError):
        feed(frames(150, 160))
    assert feed.position == 64
    monkeypatch.undo()
    server.away = False
    assert classes(feed(frames(160, 170))) == list(range(160, 170))
    assert server.learned == list(range(170))


def test_kept_bytes_are_not_sent_as_floats(server, feed):
    server.away = True
    with pytest.raises(ConnectionError):
        feed(frames(0, 10).astype(np.uint8))
    server.away = False
    feed(frames(10, 20))
    assert server.batches == [(10, "uint8"), (10, "float64")]
    assert server.learned == list(range(20))


def test_samples_that_the_server_refuses_are_forgotten(server, feed):
    feed(frames(0, 10))
    with pytest.raises(Refused, match="samples must be of shape"):
        feed(np.zeros((5, 2)))
    with pytest.raises(Refused, match="no npy file of numbers"):
        feed(np.zeros((5, 1), complex))
    feed(frames(10, 20))
    assert server.learned == list(range(20))


def test_samples_that_are_no_numbers_are_not_taken(server, feed):
    with pytest.raises(TypeError, match="samples must be numbers, got dtype object"):
        feed([[None]])
    feed(frames(0, 10))
    assert server.learned == list(range(10))


def test_samples_from_an_outage_that_the_server_refuses_do_not_block_the_feed(server, feed):
    server.away = True
    for wrong in (frames(0, 10), np.zeros((5, 2))):
        with pytest.raises(ConnectionError):
            feed(wrong)
    server.away = False
    with pytest.raises(Refused, match="samples must be of shape"):
        feed(frames(90, 100))
    feed(frames(10, 20))
    assert server.learned == list(range(20))


def test_a_refusal_while_samples_are_sent_again_loses_none_that_were_accepted(server, feed, monkeypatch):
    feed(frames(0, 100))
    server.crash()
    send = server.send

    def send_until_64_are_learned(*args):
        server.at_most = 0 if len(server.learned) == 64 else 1024
        return send(*args)

    monkeypatch.setattr(server, "send", send_until_64_are_learned)
    with pytest.raises(Refused, match="send less at once"):
        feed(frames(900, 910))
    monkeypatch.undo()
    server.at_most = 1024
    feed(frames(100, 110))
    assert server.learned == list(range(110))


def test_a_feed_that_cannot_go_on_does_not_grow(server, feed):
    server.learned = list(range(10))
    feed = Feed(server, "cam-1")
    feed(frames(10, 20))
    server.crash()
    for _ in range(2):
        with pytest.raises(LookupError, match="the server wants sample 0 of cam-1, which is gone here"):
            feed(frames(20, 30))
    assert list(feed._kept) == list(range(10, 20))


def test_samples_are_sent_again_in_smaller_batches_if_the_server_refuses_large_ones(server, feed):
    server.at_most = 15
    for start in range(0, 150, 15):
        feed(frames(start, start + 15))
    server.crash()
    assert classes(feed(frames(150, 160))) == list(range(150, 160))
    assert server.learned == list(range(160))


def test_a_single_sample_that_is_too_large_is_refused_and_does_not_slow_the_next_ones(server, feed):
    server.at_most = 0
    with pytest.raises(Refused, match="send less at once"):
        feed(frames(0, 10))
    server.at_most = 1024
    feed(frames(10, 20))
    assert server.batches == [(10, "float64")]


def test_a_long_call_may_take_longer_than_the_patience(server, feed, clock, monkeypatch):
    send, calls = server.send, []

    def slow_send(*args):
        calls.append(args)
        clock.now += 1
        if len(calls) % 2:
            raise Refused(429, "send it slower")
        return send(*args)

    monkeypatch.setattr(server, "send", slow_send)
    feed(frames(0, 640))
    assert server.learned == list(range(640))


def test_patience_ends_without_progress(server, feed, clock):
    feed(frames(0, 10))
    clock.now += 100
    server.away = True
    with pytest.raises(ConnectionError):
        feed(frames(10, 20))
    assert 105 < clock.now < 106
