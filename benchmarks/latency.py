"""How long one call takes when every sample is a call: with updates inside the calls, and beside them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

import note_tta as tta
from note_tta.methods.method import Method
from note_tta.models import build_model

from .adaptation import networks
from .measure import Figure, quartiles

PAUSE = 0.060
"""Seconds between two frames of a camera."""
FAST_PAUSE = 0.010
"""The same for a smaller network on one core; a call that takes longer misses the next frame."""
BIND = "OMP_PROC_BIND"
"""The environment variable that binds OpenMP's threads to processors."""
ROUNDS = 4
"""Contenders take turns, and each has so many of them."""
WARM = 130
"""Frames before the first turn that nobody times: two updates, so that threads and workspaces are there."""
SETTLE = 8
"""Frames at the start of each turn that nobody times, until caches hold the contender's tensors."""

Rounds = list[list[float]]
"""Seconds per call, one list for each turn."""


class Contender:
    """A method that answers single frames.

    Args:
        method: The method.
        pause: Seconds from one frame to the next; 0 is back to back.
    """

    def __init__(self, method: Method, pause: float = 0.0) -> None:
        self.method, self.pause = method, pause
        self.rounds: Rounds = []
        self._generator = torch.Generator().manual_seed(0)
        for _ in range(WARM):
            method(self._frame())
        self._finish()

    def take_turn(self, frames: int) -> None:
        """Time some calls."""
        times = []
        due = time.perf_counter()
        for number in range(SETTLE + frames):
            x = self._frame()
            due = max(due + self.pause, time.perf_counter())
            time.sleep(max(0.0, due - time.perf_counter()))
            start = time.perf_counter()
            self.method(x)
            if number >= SETTLE:
                times.append(time.perf_counter() - start)
        self.rounds.append(times)
        self._finish()

    @property
    def calls(self) -> list[float]:
        """Seconds per call, of all turns."""
        return [seconds for turn in self.rounds for seconds in turn]

    def _finish(self) -> None:
        """Wait for the update, which must not run into another contender's turn."""
        while getattr(self.method, "busy", False):
            time.sleep(0.001)

    def _frame(self) -> Tensor:
        return torch.rand(1, 3, 32, 32, generator=self._generator)


def parts(frames: int) -> dict[str, Callable[[], Iterator[Figure]]]:
    """What can be measured, by name, each over `frames` timed frames."""
    found = {"camera": partial(_camera, frames), "back to back": partial(_back_to_back, frames)}
    if hasattr(os, "sched_setaffinity"):
        found["one core"] = partial(_on_one_core, frames)
    return found


def _camera(frames: int) -> Iterator[Figure]:
    """A caller that pauses. The environment says whether threads are bound to processors, and so does the name."""
    bn, iabn = networks()
    source, inside = Contender(tta.Source(bn)), Contender(tta.NOTE(iabn))
    source_paced = Contender(tta.Source(bn), PAUSE)
    paced = Contender(tta.NOTE(iabn, delay=64), PAUSE)
    _take_turns([source, source_paced, inside, paced], frames)
    bound = f", {BIND}=true" if os.environ.get(BIND) == "true" else ""
    others = {"source": source, "inside": inside}
    yield _tail(f"NOTE, updates inside the calls, back to back{bound}", inside, source, None)
    yield _tail(f"Source, a frame every 60 ms{bound}", source_paced, source, None)
    yield _tail(f"delay=64, a frame every 60 ms{bound}", paced, source, 2.0, others)


def _back_to_back(frames: int) -> Iterator[Figure]:
    """A caller that never pauses, and so must wait for updates."""
    bn, iabn = networks()
    source = Contender(tta.Source(bn))
    one = Contender(tta.NOTE(iabn, delay=64))
    all_threads = Contender(tta.NOTE(iabn, delay=64, executor="threads"))
    quarter = Contender(tta.NOTE(iabn, delay=64, learn_from=16))
    _take_turns([source, one, all_threads, quarter], frames)
    for name, contender, tail, middle in (
        ("delay=64, back to back", one, 4.0, 2.7),
        ('delay=64 and executor="threads", back to back', all_threads, 4.0, 2.7),
        ("delay=64 and learn_from=16, back to back", quarter, 2.2, 1.6),
    ):
        yield _tail(name, contender, source, tail)
        ratios = [
            _mean(own) / _mean(theirs) for own, theirs in zip(contender.rounds, source.rounds, strict=True)
        ]
        low, _, high = quartiles(ratios)
        value = _mean(contender.calls) / _mean(source.calls)
        yield Figure(f"ResNet-18, {name}: mean of a call ÷ Source's mean", value, low, high, middle)


def _on_one_core(frames: int) -> Iterator[Figure]:
    with _one_core():
        figure = _one_core_figure(frames)
    yield figure


def _one_core_figure(frames: int) -> Figure:
    """A network for small devices, with the update in a thread on the core that answers."""
    torch.manual_seed(0)
    model = tta.convert_iabn(build_model("resnet20", 10))
    contender = Contender(tta.NOTE(model, delay=64), FAST_PAUSE)
    _take_turns([contender], frames)
    late = [100 * sum(t > FAST_PAUSE for t in times) / len(times) for times in contender.rounds]
    low, _, high = quartiles(late)
    name = "ResNet-20, delay=64, a frame every 10 ms on one core: calls longer than 10 ms"
    detail: dict[str, object] = {"calls": _milliseconds(contender.calls)}
    return Figure(name, _mean(late), low, high, 0.5, unit="%", detail=detail)


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    """Let this thread, and those that it starts, run on one core and compute with one thread."""
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, {min(cores)})
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        os.sched_setaffinity(0, cores)


def _take_turns(contenders: list[Contender], frames: int) -> None:
    for _ in range(ROUNDS):
        for contender in contenders:
            contender.take_turn(-(-frames // ROUNDS))


def _tail(
    name: str,
    contender: Contender,
    source: Contender,
    bar: float | None,
    others: dict[str, Contender] | None = None,
) -> Figure:
    """The slowest calls of all turns in Source's medians; the spread is that of the turns."""
    ratios = [
        _percentile(own, 99) / _percentile(theirs, 50)
        for own, theirs in zip(contender.rounds, source.rounds, strict=True)
    ]
    low, _, high = quartiles(ratios)
    value = _percentile(contender.calls, 99) / _percentile(source.calls, 50)
    shown = {"calls": contender, **(others or {})}
    detail: dict[str, object] = {label: _milliseconds(each.calls) for label, each in shown.items()}
    return Figure(f"ResNet-18, {name}: p99 of a call ÷ Source's median", value, low, high, bar, detail=detail)


def _percentile(times: list[float], percent: int) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _milliseconds(times: list[float]) -> list[float]:
    return [round(1e3 * t, 2) for t in times]
