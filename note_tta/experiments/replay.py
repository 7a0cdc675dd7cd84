"""Lets a cell with a temporal filter use the answers of the same cell without it, if that one was run just before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from ..evaluation import Result, evaluate
from ..filter import Runs
from .cell import Cell

Batches = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Run:
    """A method on a stream: its answers to each batch, the result, and its counters at the end."""

    cell: Cell
    answers: list[Tensor]
    outcome: Result
    counters: dict[str, int]


def run_method(cell: Cell, method: Any, batches: Batches) -> Run:
    """Run a cell's method over its stream."""
    recorder = _Recorder(method, method.model)
    outcome = evaluate(recorder, batches, progress=False)
    return Run(cell, recorder.answers, outcome, dict(method.counters))


def run_filter(cell: Cell, inner: Run) -> Run:
    """Run a cell's filter over the answers of its inner method. The times are those of both."""
    recorder = _Recorder(Runs())
    labels = inner.outcome.labels.split([len(answer) for answer in inner.answers])
    outcome = evaluate(recorder, zip(inner.answers, labels, strict=True), progress=False)
    latencies = [sum(both) for both in zip(inner.outcome.latencies, outcome.latencies, strict=True)]
    outcome = replace(outcome, seconds=sum(latencies), latencies=latencies)
    return Run(cell, recorder.answers, outcome, inner.counters)


class _Recorder:
    """A callable that keeps what it returns."""

    def __init__(self, answer: Callable[[Tensor], Tensor], model: nn.Module | None = None) -> None:
        self.model = model
        self.answers: list[Tensor] = []
        self._answer = answer

    def __call__(self, x: Tensor) -> Tensor:
        self.answers.append(self._answer(x))
        return self.answers[-1]
