"""How long one call takes when every sample is a call: with updates inside the calls, and beside them."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator

import torch

import note_tta as tta
from note_tta.methods.method import Method
from note_tta.models import build_model

from .measure import Figure

PAUSE = 0.060
"""Seconds between two frames of a camera."""
WARM = 130
"""Frames that nobody times: two updates, so that threads and workspaces are there."""


def figures(frames: int) -> Iterator[Figure]:
    """All figures of this file, each over `frames` timed frames."""
    torch.manual_seed(0)
    bn = build_model("resnet18", 10)
    iabn = tta.convert_iabn(copy.deepcopy(bn))
    source = _calls(tta.Source(bn), frames)
    usual, mean = _percentile(source, 50), sum(source) / len(source)
    inside = _calls(tta.NOTE(iabn), frames)
    paced = _calls(tta.NOTE(iabn, delay=64), frames, PAUSE)
    yield _tail("NOTE, updates inside the calls, back to back", inside, usual, None)
    yield _tail("delay=64, a frame every 60 ms", paced, usual, 2.0, {"source": source, "inside": inside})
    for name, settings, tail, middle in (
        ("delay=64, back to back", {}, 4.0, 2.7),
        ("delay=64 and learn_from=16, back to back", {"learn_from": 16}, 2.2, 1.6),
    ):
        times = _calls(tta.NOTE(iabn, delay=64, **settings), frames)
        yield _tail(name, times, usual, tail)
        value = sum(times) / len(times) / mean
        yield Figure(f"ResNet-18, {name}: mean of a call ÷ Source's mean", value, value, value, middle)


def _tail(
    name: str,
    times: list[float],
    usual: float,
    bar: float | None,
    others: dict[str, list[float]] | None = None,
) -> Figure:
    value = _percentile(times, 99) / usual
    detail = {label: _milliseconds(t) for label, t in {"calls": times, **(others or {})}.items()}
    return Figure(
        f"ResNet-18, {name}: p99 of a call ÷ Source's median", value, value, value, bar, detail=dict(detail)
    )


def _calls(method: Method, frames: int, pause: float = 0.0) -> list[float]:
    """Seconds per call on a stream of single frames, one every `pause` seconds (0: back to back)."""
    generator = torch.Generator().manual_seed(0)
    times = []
    due = time.perf_counter()
    for number in range(WARM + frames):
        x = torch.rand(1, 3, 32, 32, generator=generator)
        due = max(due + pause, time.perf_counter())
        time.sleep(max(0.0, due - time.perf_counter()))
        start = time.perf_counter()
        method(x)
        if number >= WARM:
            times.append(time.perf_counter() - start)
    return times


def _percentile(times: list[float], percent: int) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]


def _milliseconds(times: list[float]) -> list[float]:
    return [round(1e3 * t, 2) for t in times]
