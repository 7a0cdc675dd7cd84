"""Delayed updates: the same answers whatever the timing, no thread left behind, waiting spread over the calls."""

import gc
import os
import random
import subprocess
import sys
import threading
import time

import pytest
import torch
from networks import images, make, network

import note_tta as tta
from note_tta.checks import equal
from note_tta.methods import delay
from note_tta.methods.delay import Pending
from note_tta.methods.draft import Value


def updates_running():
    return [thread for thread in threading.enumerate() if thread.name == "note-tta update"]


def slowed(method, seconds):
    """The method, each of whose updates takes longer: a pause after every piece."""
    learn = method.learn

    def slow(draft, x):
        done = draft.pieces.done
        draft.report(lambda: (time.sleep(seconds), done()))
        learn(draft, x)

    method.learn = slow
    return method


@pytest.mark.parametrize("name", ["note", "onda"])
@pytest.mark.parametrize("delay", [1, 4, 8])
def test_timing_and_batch_boundaries_make_no_difference(name, delay):
    x = images(100)
    expected = make(name, interval=8, delay=delay)
    answers = expected(x)
    slow = slowed(make(name, interval=8, delay=delay, executor="threads"), 0.002)
    torch.testing.assert_close(torch.cat([slow(part) for part in x.split(3)]), answers, atol=1e-5, rtol=1e-4)
    assert slow.counters == expected.counters
    assert slow.waits > 0
    assert not any("wait" in key for key in slow.state_dict())


def test_a_caller_that_never_pauses_waits_a_little_in_each_call():
    method = slowed(make("note", interval=16, delay=16), 0.02)
    method(images(16))
    waits, before = [], method.waits
    for sample in images(16, seed=2):
        method(sample[None])
        waits.append(method.waits - before)
        before = method.waits
    assert sum(wait > 0.001 for wait in waits) >= 3  # one for each of the pieces, not one for all


def test_several_calls_share_the_wait_for_a_long_piece():
    finish, value = threading.Event(), Value({"a": torch.ones(1)}, {})

    def work(piece_done):
        finish.wait(60)
        piece_done()
        return value

    pending, waits = Pending(work, 4, "thread", pieces=1, pace=[0.01]), []

    def call():
        for _ in range(3):
            pending.countdown -= 1
            waits.append(pending.keep_up())

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    caller.join(20)
    assert len(waits) == 3  # all have come back, and the piece is not done
    finish.set()
    assert pending.result()[0] is value


def test_progress_is_counted_in_the_time_that_the_pieces_took_at_the_last_update():
    go_on, value = threading.Event(), Value({"a": torch.ones(1)}, {})

    def work(piece_done):
        piece_done()
        go_on.wait(60)
        piece_done()
        return value

    pending = Pending(work, 4, "thread", pieces=2, pace=[900.0, 1000.0])
    until(lambda: pending._pieces_done == 1)
    pending.countdown = 1  # three quarters of the samples, half of the pieces and nine tenths of the time
    caller = threading.Thread(target=pending.keep_up, daemon=True)
    caller.start()
    caller.join(20)
    assert not caller.is_alive()
    go_on.set()
    assert pending.result()[0] is value


def test_an_update_does_not_go_on_while_a_call_computes_its_answer(monkeypatch):
    monkeypatch.setattr(delay, "LONGEST", 60.0)
    method = make("note", interval=8, delay=8)
    predict, learn, in_a_call, seen = method.predict, method.learn, threading.Event(), []

    def slow(x):
        pending = method.schedule.pending
        if pending is not None:
            in_a_call.set()
            until(lambda: pending._pieces_done)
            time.sleep(0.2)
            seen.append((pending._pieces_done, pending.done))
        return predict(x)

    method.predict = slow
    method.learn = lambda draft, x: (in_a_call.wait(60), learn(draft, x))
    method(images(9))
    assert seen == [(1, False)]
    method.state_dict()  # waits for the update, and does not keep it from going on
    assert method.schedule.pending.done


def test_an_update_waits_for_a_next_call_unless_it_is_waited_for(monkeypatch):
    monkeypatch.setattr(delay, "PAUSE", 1e6)
    method = make("note", interval=8, delay=8)
    method(images(8))
    until(lambda: method.schedule.pending._pieces_done)
    time.sleep(0.2)
    assert method.schedule.pending._pieces_done == 1 and method.busy
    method.state_dict()
    assert not method.busy


def test_an_interrupt_in_a_call_does_not_stop_the_update_for_good(monkeypatch):
    monkeypatch.setattr(delay, "LONGEST", 0.01)
    method = make("note", interval=8, delay=8)
    learn = method.learn
    method.learn = lambda draft, x: (method.workshop.gate.__enter__(), learn(draft, x))  # and never leaves it
    method(images(8))
    until(lambda: not method.busy)
    assert not method.busy


class FailsOnce(tta.NOTE):
    """The first update of each model fails."""

    def learn(self, draft, x):
        if not hasattr(self.backbone, "failed"):
            self.backbone.failed = True
            raise MemoryError("no memory")
        super().learn(draft, x)


@pytest.mark.parametrize("delay", [0, 7, 8])
@pytest.mark.parametrize("fleet", [False, True])
def test_after_an_update_that_failed_the_stream_goes_on(delay, fleet):
    def make_failing(model):
        return FailsOnce(model, interval=8, delay=delay)

    if fleet:
        streams = tta.Fleet(network("iabn"), make_failing)
        feed, method = (lambda x: streams(["a"], x)), None
    else:
        feed = method = make_failing(network("iabn"))
    errors = 0
    for x in images(40).split(1):
        try:
            feed(x)
        except MemoryError:
            errors += 1
    counters = streams.counters("a") if fleet else method.counters
    assert errors == 1 and counters["rejected_updates"] == 1
    assert counters["updates"] == 4 - bool(delay)
    state = streams.state_dict("a") if fleet else method.state_dict()
    make("note", interval=8).load_state_dict(state | {"method": "NOTE"})


def test_an_interrupt_while_a_call_waits_for_an_update_loses_nothing(monkeypatch):
    x = images(40)
    expected, method = (make("note", interval=8, delay=8) for _ in range(2))
    expected(x[:16])
    method(x[:15])

    def interrupted(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Pending, "keep_up", interrupted)
        method(x[15:16])
    resumed = make("note", interval=8, delay=8)
    resumed.load_state_dict(method.state_dict())
    answers = expected(x[16:])
    torch.testing.assert_close(method(x[16:]), answers)
    torch.testing.assert_close(resumed(x[16:]), answers)


def until(condition):
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


def test_a_method_knows_from_its_last_update_how_long_one_takes():
    method = make("note", interval=8, delay=8)
    method(images(8))
    assert method.schedule.pending._pace == ()
    method(images(8))
    assert method.schedule.pending._pace[-1] > 0
    method.reset()
    method(images(8))
    assert method.schedule.pending._pace == ()


def interleaved(seed, steps):
    """Calls, saves, resets, forks and pauses in random order, on a delayed method and on one without threads."""
    chance = random.Random(seed)
    delay = chance.choice([1, 3, 8])
    model = network("iabn")
    method, inline = (tta.NOTE(model, interval=8, delay=delay, lr=1e-2, momentum=0.2) for _ in range(2))
    inline_executor(inline)
    for _ in range(steps):
        action = chance.choice(["call"] * 6 + ["save", "reset", "fork", "pause", "resume"])
        if action == "call":
            x = images(chance.randint(1, 12), seed=chance.randint(0, 99))
            assert torch.equal(method(x), inline(x))
        elif action == "save":
            state = method.state_dict()
            assert equal(state, inline.state_dict())
            method = tta.NOTE(model, interval=8, delay=delay, lr=1e-2, momentum=0.2)
            method.load_state_dict(state)
        elif action == "fork":
            method, inline = method.fork(), inline_executor(inline.fork())
        else:
            getattr(method, action)()
            getattr(inline, action)()
    assert equal(method.state_dict(), inline.state_dict())


def inline_executor(method):
    """Compute delayed updates at once, in the calling thread."""
    method.executor = None
    return method


@pytest.mark.parametrize("seed", range(20))
def test_random_interleavings_of_calls_saves_resets_and_forks(seed):
    interleaved(seed, 25)


@pytest.mark.slow
def test_ten_thousand_random_interleavings():
    for seed in range(100, 500):
        interleaved(seed, 25)


def test_reset_ends_the_thread_and_forgets_its_update():
    method = slowed(make("note", interval=8, delay=8), 0.05)
    start = method.state_dict()
    method(images(8))
    assert updates_running()
    method.reset()
    until(lambda: not updates_running())
    assert not updates_running()
    assert equal(method.state_dict(), start)


def test_no_thread_outlives_its_method():
    method = make("note", interval=8, delay=8)
    method(images(8))
    del method
    gc.collect()
    until(lambda: not updates_running())
    assert not updates_running()


@pytest.mark.parametrize("saved", [False, True])
def test_an_error_in_the_background_is_raised_once_where_its_result_is_wanted_and_counted(saved):
    method = make("note", interval=8, delay=4)

    def fail(draft, x):
        raise RuntimeError("no memory left")

    method.learn = fail
    method(images(8))
    with pytest.raises(RuntimeError, match="no memory left"):
        method.state_dict() if saved else method(images(4))
    method.state_dict()
    assert method.counters["rejected_updates"] == 1 and method.counters["updates"] == 0
    assert torch.isfinite(method(images(2))).all()


def test_a_process_that_ends_in_mid_delay_ends_cleanly():
    code = (
        "import sys, torch; sys.path.insert(0, sys.argv[1]); torch.set_num_threads(1)\n"
        "from networks import images, make\n"
        "method = make('note', interval=8, delay=8); method(images(8)); print('answered')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, __file__.rpartition("/")[0]], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and done.stdout == "answered\n" and "Traceback" not in done.stderr


def test_the_number_of_threads_of_the_caller_is_left_alone():
    before = torch.get_num_threads()
    make("note", interval=8, delay=8)(images(40))
    assert torch.get_num_threads() == before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives threads priorities of their own")
def test_updates_give_way_to_the_callers_thread():
    method = make("note", interval=8, delay=8)
    learn, seen = method.learn, []

    def noting(draft, x):
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        learn(draft, x)

    method.learn = noting
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    method(images(24))
    method.state_dict()  # waits for the last update
    assert seen == [max(own, 10)] * 3
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == own


def test_an_update_that_is_computed_already_is_not_waited_for():
    value = Value({"a": torch.ones(1)}, {})
    pending = Pending.of(value, 3)
    assert pending.keep_up() == 0.0 and pending.result()[0] is value
