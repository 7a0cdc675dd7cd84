"""The progress of a training run on a terminal; nothing where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Show(Protocol):
    """Called after each step."""

    def __call__(self, step: int, epoch: int, loss: float, error: float) -> None:
        """Show the number of steps done, the epoch from 1, and its loss and error so far."""


@contextmanager
def progress(steps: int, epochs: int, *, enabled: bool = True) -> Iterator[Show]:
    """Draw a bar with loss, error and the time left, on standard error."""
    console = Console(stderr=True)
    if not enabled or not console.is_terminal:
        yield lambda step, epoch, loss, error: None
        return
    columns = (
        TextColumn("epoch {task.fields[epoch]}/" + str(epochs)),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}  error {task.fields[error]:.1f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("train", total=steps, epoch=0, loss=float("nan"), error=float("nan"))

        def show(step: int, epoch: int, loss: float, error: float) -> None:
            bar.update(task, completed=step, epoch=epoch, loss=loss, error=error)

        yield show
