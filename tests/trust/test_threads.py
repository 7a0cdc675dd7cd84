"""Any number of methods on one model, in threads, interrupted at any moment: none disturbs another."""

import ctypes
import random
import signal
import threading

import pytest
import torch
from networks import images, make, network

import note_tta as tta
from note_tta.checks import equal, look

NAMES = sorted(tta.METHODS)


def answers(method, stream):
    return torch.cat([method(part) for part in stream])


@pytest.mark.parametrize("name", NAMES)
def test_two_methods_on_one_model_in_two_threads_answer_as_one_after_the_other(name):
    keywords = {"augmentations": 2} if name == "cotta" else {}
    streams = [images(192, seed=seed).split(16) for seed in (1, 2)]
    model = network("iabn")
    expected = [answers(make(name, model=model, **keywords), stream) for stream in streams]
    methods = [make(name, model=model, **keywords) for _ in range(2)]
    found, together = [None, None], threading.Barrier(2)

    def work(place):
        together.wait()
        found[place] = answers(methods[place], streams[place])

    threads = [threading.Thread(target=work, args=(place,)) for place in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])


class Interrupted(BaseException):
    """Thrown into a thread at a random moment, as Ctrl-C is."""


def continued(name, keywords, victim, stream):
    """A method that was interrupted goes on, and so does its state in another method. Returns what went wrong."""
    try:
        heir = make(name, model=victim.backbone.module, **keywords)
        heir.load_state_dict(victim.state_dict())
        if not torch.equal(answers(heir, stream), answers(victim, stream)):
            return [f"{name} {keywords}: its state continues differently"]
    except Exception as error:
        return [f"{name} {keywords}: {error!r}"]
    return []


def trial(number, model, expected, alone):
    """Two methods and the model itself at work; a third is interrupted. Returns what went wrong."""
    chance = random.Random(number)
    name, keywords = chance.choice(
        [("note", {"interval": 8}), ("tent", {}), ("cotta", {"augmentations": 2}), ("onda", {})]
    )
    before, failures = look(model), []
    stream = images(48, seed=1).split(8)
    victim = make(name, model=model, **keywords)
    started = threading.Event()

    def be_interrupted():
        try:
            started.set()
            while True:
                answers(victim, stream)
        except Interrupted:
            pass

    thread = threading.Thread(target=be_interrupted)
    thread.start()
    started.wait()
    neighbour = make("note", model=model, interval=8)
    if not torch.equal(answers(neighbour, stream), alone):
        failures.append("a neighbour answered differently")
    with torch.no_grad():
        if not torch.equal(model(images(8)), expected):
            failures.append("the model answered differently")
    threading.Event().wait(chance.random() * 0.01)
    while thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(Interrupted)
        )
        thread.join(0.2)
    failures += continued(name, keywords, victim, stream)
    if not equal(look(model), before):
        failures.append("the model was changed")
    return failures


@pytest.fixture
def interrupt_later():
    """A function that raises `Interrupted` in the main thread after some seconds."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals arrive in the main thread, and the tests run in another one")

    def raise_interrupted(*_):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, raise_interrupted)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds, 0.2)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("name", "delay"), [("note", 3), ("note", 8), ("rotta", 8)])
def test_with_an_update_beside_the_calls_interrupts_do_no_harm(name, delay, interrupt_later):
    """In the main thread: another one may not be interrupted while it starts a thread, or Python hangs."""
    chance, model, keywords = random.Random(0), network("iabn"), {"interval": 8, "delay": delay}
    before, stream = look(model), images(48, seed=1).split(8)
    answers(make(name, model=model, **keywords), stream)  # torch imports more at its first update
    for _ in range(20):
        victim = make(name, model=model, **keywords)
        try:
            interrupt_later(0.001 + 0.05 * chance.random())
            while True:
                answers(victim, stream)
        except (Interrupted, RuntimeError) as error:
            interrupt_later(0)
            # an interrupt inside a lock of Python's may end as "release unlocked lock"
            assert isinstance(error, Interrupted) or isinstance(error.__context__, Interrupted)
        assert continued(name, keywords, victim, stream) == []
    assert equal(look(model), before)


def interrupt(trials):
    model = network("iabn")
    with torch.no_grad():
        expected = model(images(8))
    alone = answers(make("note", model=model, interval=8), images(48, seed=1).split(8))
    for number in range(trials):
        assert trial(number, model, expected, alone) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_random_moments_disturb_nobody():
    interrupt(40)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # one may hit anybody's callback
def test_a_thousand_interrupts_at_random_moments_disturb_nobody():
    interrupt(1000)
