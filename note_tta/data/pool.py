"""The same work on many inputs, in several processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

Map = Callable[..., Iterator[Any]]


@contextmanager
def pool(workers: int) -> Iterator[Map]:
    """`map` over `workers` processes; with one worker, the plain `map`.

    >>> with pool(1) as run:
    ...     list(run(lambda a, b: a + b, [1, 3], [2, 4]))
    [3, 7]
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    if workers == 1:
        yield map
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as executor:
        try:
            yield executor.map
        except BaseException:
            executor.shutdown(cancel_futures=True)
            raise
