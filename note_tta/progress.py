"""Progress bars on a terminal; elsewhere nothing is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Follow = Callable[..., None]
"""Called with the name of the work, how much is done, how much there is, and further fields of the bar."""


@contextmanager
def progress_bars(
    text: str = "{task.description}",
    *,
    in_bytes: bool = False,
    enabled: bool = True,
    transient: bool = False,
) -> Iterator[Follow]:
    """Bars on standard error, one for each kind of work.

    Args:
        text: The text before a bar, as a template of rich; the calls give its fields.
        in_bytes: Whether amounts are bytes.
        enabled: Whether to show bars at all.
        transient: Whether they vanish at the end.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    amount = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn(text), BarColumn(), amount, TimeRemainingColumn())
    disabled = not (enabled and console.is_terminal)
    with Progress(*columns, console=console, disable=disabled, transient=transient) as bars:
        tasks: dict[str, Any] = {}

        def follow(what: str, done: int, total: int, **shown: Any) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total or None, **shown)
            bars.update(tasks[what], completed=done, **shown)

        yield follow
