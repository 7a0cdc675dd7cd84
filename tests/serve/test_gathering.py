import threading
import time

import pytest
import torch

from note_tta.serve import gathering as module
from note_tta.serve.desk import Request
from note_tta.serve.gathering import TOGETHER, Gathering
from note_tta.serve.limits import Limits, Refused


class Slow:
    """A desk that notes its calls, and holds them until it is let go."""

    def __init__(self, hold=False):
        self.calls = []
        self.go = threading.Event()
        if not hold:
            self.go.set()

    def answer(self, requests):
        self.go.wait(10)
        self.calls.append([request.stream for request in requests])
        if any(request.stream == "broken" for request in requests):
            raise RuntimeError("broken")
        return [Refused(422, "bad") if r.stream == "bad" else {"stream": r.stream} for r in requests]


def request(name="a", count=1, size=4):
    return Request(name, torch.zeros(count, size))


def at_work(**limits):
    """A desk that holds a first call, and its gathering: what comes next is gathered."""
    desk = Slow(hold=True)
    gathering = Gathering(desk, Limits(**limits))
    gathering.samples(request("first"))
    while gathering.waiting:
        time.sleep(0.001)
    return desk, gathering


def test_what_waits_is_answered_together_and_in_order():
    desk, gathering = at_work()
    futures = [gathering.samples(request(name)) for name in "abcab"]
    desk.go.set()
    assert [future.result(5)["stream"] for future in futures] == list("abcab")
    assert desk.calls == [["first"], list("abcab")]
    gathering.close()


def test_a_call_has_at_most_64_samples_of_one_shape():
    desk, gathering = at_work()
    for one in (
        request("a", 40),
        request("b", 24),
        request("c"),
        request("d", 1, 5),
        request("e"),
        request("f", 100),
    ):
        last = gathering.samples(one)
    desk.go.set()
    last.result(5)
    assert TOGETHER == 64
    assert desk.calls[1:] == [["a", "b"], ["c"], ["d"], ["e"], ["f"]]
    gathering.close()


def test_a_task_waits_for_one_call_only_and_holds_up_one_call_only():
    desk, gathering = at_work()
    for name in "abc":
        gathering.samples(request(name, 64))
    tasks = [gathering.ask(lambda desk, n=n: desk.calls.append(n)) for n in range(3)]
    desk.go.set()
    gathering.close()
    assert all(task.done() for task in tasks)
    assert desk.calls == [["first"], 0, ["a"], 1, ["b"], 2, ["c"]]


def test_tasks_that_wait_are_limited():
    desk, gathering = at_work(queue=2)
    gathering.ask(lambda desk: None)
    gathering.ask(lambda desk: None)
    with pytest.raises(Refused, match="too many requests wait"):
        gathering.ask(lambda desk: None)
    desk.go.set()
    gathering.close()


def test_an_error_belongs_to_who_asked_and_the_thread_goes_on():
    gathering = Gathering(Slow(), Limits())
    with pytest.raises(Refused, match="bad"):
        gathering.samples(request("bad")).result(5)
    with pytest.raises(RuntimeError, match="broken"):
        gathering.samples(request("broken")).result(5)
    with pytest.raises(ZeroDivisionError):
        gathering.ask(lambda desk: 1 / 0).result(5)
    assert gathering.samples(request("fine")).result(5) == {"stream": "fine"}
    assert gathering.alive
    gathering.close()


def test_the_queue_is_limited():
    desk, gathering = at_work(queue=10)
    gathering.samples(request("a", 6))
    with pytest.raises(Refused, match="6 samples wait, the limit is 10") as refused:
        gathering.samples(request("b", 5))
    assert refused.value.status == 429
    gathering.samples(request("c", 4))
    assert gathering.waiting == 10
    desk.go.set()
    gathering.close()
    assert gathering.waiting == 0


def test_closing_does_what_was_asked_and_takes_no_more():
    desk = Slow(hold=True)
    gathering = Gathering(desk, Limits())
    futures = [gathering.samples(request("a", 50)) for _ in range(5)]
    closing = threading.Thread(target=gathering.close)
    closing.start()
    while not gathering._closing:
        time.sleep(0.001)
    with pytest.raises(Refused, match="shut down"):
        gathering.samples(request("b"))
    desk.go.set()
    closing.join(5)
    assert all(future.result(0) for future in futures) and not gathering.alive


def test_it_waits_for_requests_that_are_arriving_and_for_nobody_else(monkeypatch):
    monkeypatch.setattr(module, "WAIT", 5.0)
    desk = Slow()
    gathering = Gathering(desk, Limits())
    start = time.monotonic()
    gathering.samples(request("alone")).result(5)
    assert time.monotonic() - start < 4  # at once: nobody else is arriving
    gathering.arriving = 1
    first = gathering.samples(request("a"))
    time.sleep(0.05)
    assert not first.done()
    gathering.arriving = 0
    gathering.samples(request("b")).result(5)
    assert desk.calls == [["alone"], ["a", "b"]]
    gathering.close()


def test_who_gave_up_waiting_is_left_out():
    desk, gathering = at_work()
    given_up, other = gathering.samples(request("a")), gathering.samples(request("b"))
    assert given_up.cancel()
    desk.go.set()
    other.result(5)
    assert desk.calls[1] == ["b"]
    gathering.close()
