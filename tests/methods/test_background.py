"""The thread of an update computes alone and goes last, and nobody else's threads change."""

import os
import sys
import threading
import time

import pytest
import torch
from networks import images, make

from note_tta.methods import background, delay
from note_tta.methods.background import can_step_aside, compute_alone

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives threads priorities of their own")


def in_a_thread(action):
    """What `action` returns in a thread of its own."""
    found = []
    thread = threading.Thread(target=lambda: found.append(action()))
    thread.start()
    thread.join()
    return found[0]


def policy():
    return os.sched_getscheduler(threading.get_native_id())


def await_policy(wanted):
    end = time.monotonic() + 20
    while policy() != wanted and time.monotonic() < end:
        time.sleep(0.001)


def held(method):
    """Let the method's updates wait for the event that is returned."""
    go_on, learn = threading.Event(), method.learn
    method.learn = lambda draft, x: (go_on.wait(60), learn(draft, x))
    return go_on


def noted(method, note):
    """The method, each of whose updates begins with a note."""
    learn, notes = method.learn, []

    def learn_and_note(draft, x):
        notes.append(note())
        learn(draft, x)

    method.learn = learn_and_note
    return notes


def test_only_the_thread_itself_computes_alone():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert in_a_thread(lambda: (compute_alone(), torch.get_num_threads())[1]) == 1
        assert torch.get_num_threads() == 2
        assert in_a_thread(torch.get_num_threads) == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("executor", "threads"), [("thread", 1), ("threads", 2)])
def test_the_executor_says_how_many_threads_an_update_has(executor, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        method = make("note", interval=8, delay=8, executor=executor)
        seen = noted(method, torch.get_num_threads)
        method(images(24))
        method.state_dict()  # waits for the last update
        assert seen == [threads] * 3
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@linux
@pytest.mark.skipif(not can_step_aside(), reason="this user may not leave Linux's idle class")
def test_an_update_runs_where_a_processor_is_idle_until_a_call_waits_for_it():
    method = make("note", interval=8, delay=8)
    begun = threading.Event()

    def wait_for_the_caller():
        await_policy(os.SCHED_IDLE)
        first = policy()
        begun.set()
        await_policy(os.SCHED_OTHER)
        return first, policy()

    seen = noted(method, wait_for_the_caller)
    method(images(8))
    assert begun.wait(60)
    method.state_dict()
    assert seen == [(os.SCHED_IDLE, os.SCHED_OTHER)]
    assert policy() == os.SCHED_OTHER  # the caller's


@linux
@pytest.mark.skipif(not can_step_aside(), reason="this user may not leave Linux's idle class")
def test_an_update_steps_aside_again_when_a_call_has_waited_for_its_share():
    method = make("note", interval=8, delay=8)
    call_is_back, has_looked, seen = threading.Event(), threading.Event(), []
    pieces = iter(range(100))

    def learn(draft, x, learn=method.learn):
        done = draft.pieces.done

        def piece_done():
            if next(pieces) == 2:
                call_is_back.wait(60)
                seen.append(policy())
                has_looked.set()
            done()

        draft.report(piece_done)
        learn(draft, x)

    method.learn = learn
    method(images(8))
    method(images(1))  # waits for an eighth of the work
    call_is_back.set()
    assert has_looked.wait(60) and seen == [os.SCHED_IDLE]


@pytest.fixture
def moves(monkeypatch):
    """The policies that threads are given, by any user; nothing is really changed."""
    told, lock = [], threading.Lock()

    def note(thread, policy, parameters):
        with lock:
            told.append((thread, policy))

    monkeypatch.setattr(os, "sched_setscheduler", note)
    can_step_aside.cache_clear()
    yield told
    can_step_aside.cache_clear()


@linux
def test_a_call_that_waits_brings_the_update_back_and_lets_it_go_again(moves):
    method = make("note", interval=8, delay=8)
    go_on = held(method)
    method(images(8))
    thread = method.schedule.pending._aside
    assert moves[-1] == (thread, os.SCHED_IDLE)
    threading.Timer(0.2, go_on.set).start()
    method(images(1))  # waits for an eighth of the work
    assert (thread, os.SCHED_OTHER) in moves
    method.state_dict()
    before = len(moves)
    method(images(6))  # the update is done: nothing to wait for
    assert len(moves) == before


@linux
def test_a_cancelled_update_comes_back_to_end_soon(moves):
    method = make("note", interval=8, delay=8)
    go_on = held(method)
    method(images(8))
    thread = method.schedule.pending._aside
    method.reset()
    assert moves[-1] == (thread, os.SCHED_OTHER)
    go_on.set()


@linux
def test_who_may_not_come_back_does_not_step_aside(monkeypatch):
    def refuse(thread, policy, parameters):
        if policy == os.SCHED_OTHER:
            raise PermissionError

    can_step_aside.cache_clear()
    try:
        monkeypatch.setattr(os, "sched_setscheduler", refuse)
        assert not can_step_aside()
        method = make("note", interval=8, delay=8)
        method(images(8))
        assert method.schedule.pending._aside is None
        method.state_dict()
    finally:
        can_step_aside.cache_clear()


def test_an_update_is_computed_even_if_its_thread_cannot_be_prepared(monkeypatch):
    def fail():
        raise RuntimeError("no such thing here")

    monkeypatch.setitem(delay.EXECUTORS, "thread", (fail,))
    method = make("note", interval=8, delay=8)
    method(images(16))
    assert method.counters["updates"] == 1


def test_both_executors_compute_the_same():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        one, both = (make("note", interval=8, delay=8, executor=name) for name in ("thread", "threads"))
        torch.testing.assert_close(one(images(40)), both(images(40)))
        for name, tensor in one.tensors.items():
            torch.testing.assert_close(tensor, both.tensors[name])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("library", [None, object()])
def test_without_the_libraries_functions_nothing_happens(monkeypatch, library):
    monkeypatch.setattr(background, "torch_library", lambda: library)
    assert in_a_thread(lambda: (compute_alone(), True)[1])
