"""A pool of processes that keeps a few jobs in flight."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

Run = Callable[[Iterable[tuple[Any, ...]], Callable[..., Any]], Iterator[tuple[int, Any]]]


@contextmanager
def pool(workers: int) -> Iterator[Run]:
    """A function that runs jobs on processes and yields (number, result) as they finish.

    >>> with pool(1) as run:
    ...     list(run([(1, 2), (3, 4)], lambda a, b: a + b))
    [(0, 3), (1, 7)]
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    if workers == 1:
        yield lambda jobs, work: ((number, work(*arguments)) for number, arguments in enumerate(jobs))
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as executor:

        def run(jobs: Iterable[tuple[Any, ...]], work: Callable[..., Any]) -> Iterator[tuple[int, Any]]:
            pending: dict[Future[Any], int] = {}
            for number, arguments in enumerate(jobs):
                pending[executor.submit(work, *arguments)] = number
                if len(pending) >= 2 * workers:
                    yield from _collect(pending)
            while pending:
                yield from _collect(pending)

        try:
            yield run
        except BaseException:
            executor.shutdown(wait=True, cancel_futures=True)
            raise


def _collect(pending: dict[Future[Any], int]) -> Iterator[tuple[int, Any]]:
    for future in wait(pending, return_when=FIRST_COMPLETED).done:
        yield pending.pop(future), future.result()
