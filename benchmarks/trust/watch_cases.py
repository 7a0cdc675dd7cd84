"""Methods that go wrong by themselves, each with its source samples and a stream on which it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

import note_tta as tta
from note_tta import streams

from .common import BATCH
from .watch_published import published_model, source_of, stream_of
from .watch_streams import DOMAINS, Pool, at_size, drifting, pool, small_model, source_batches

WINDOW = 512
"""Samples over which the error is taken while a method collapses."""
STRETCH = 3 * WINDOW
"""Samples from one domain to the next of a stream on which they recur."""
ROUNDS = 4
"""So often they come."""


class Case(NamedTuple):
    """A method that goes wrong by itself.

    Attributes:
        make: Makes the method.
        source: Makes its source samples.
        stream: Makes the stream.
        period: The error of a window is compared with that of the first round's window, a round having so many: where
            domains recur, each is compared with itself.
    """

    make: Callable[[], Any]
    source: Callable[[], list[Pool]]
    stream: Callable[[], Iterable[Pool]]
    period: int = 1

    def doubled(self, errors: list[float], errors_of_source: list[float]) -> int | None:
        """The sample by which the error, in percent by window, has doubled, and is twice the source model's as well.

        Windows hold other classes, some of them harder than others; the source model's error allows for that.
        """
        for window, (error, without) in enumerate(zip(errors, errors_of_source, strict=True)):
            if error > 2 * max(errors[window % self.period], without, 1.0):
                return (window + 1) * WINDOW
        return None


RECURRING = ("contrast", "brightness")
VISITS = 20
"""Corruptions of CIFAR10-C that recur for one window at a time, and how often each domain comes."""
SHUFFLED = 2048
"""Samples in no order before a stream becomes correlated."""


def _cifar(corruption: str, samples: int) -> Pool:
    x, y = zip(*stream_of("cifar10", corruption, samples), strict=True)
    return torch.cat(x), torch.cat(y)


def _shuffled_then_correlated(corruption: str, samples: int) -> Iterator[Pool]:
    x, y = _cifar(corruption, samples + SHUFFLED)
    mixed = torch.randperm(SHUFFLED, generator=torch.Generator().manual_seed(0))
    order = torch.cat([mixed, torch.arange(SHUFFLED, len(y))])
    yield from zip(x[order].split(BATCH), y[order].split(BATCH), strict=True)


def _in_order(corruption: str, samples: int) -> Iterator[Pool]:
    x, y = _cifar(corruption, samples)
    yield from zip(x.split(BATCH), y.split(BATCH), strict=True)


def _recurring_corruptions() -> Iterator[Pool]:
    """Correlated CIFAR10-C that goes from one corruption to the next, again and again, without a pause."""
    whole = {corruption: _cifar(corruption, 8 * WINDOW) for corruption in RECURRING}
    for visit in range(VISITS):
        own = slice(visit % 8 * WINDOW, (visit % 8 + 1) * WINDOW)
        for x, y in whole.values():
            yield from zip(x[own].split(BATCH), y[own].split(BATCH), strict=True)


def _sorted(domain: str, rounds: int) -> Iterator[Pool]:
    """A domain sorted by class, again and again."""
    x, y = pool(domain)
    for seed in range(rounds):
        order = streams.sorted(y, torch.Generator().manual_seed(seed))
        yield from zip(x[order].split(BATCH), y[order].split(BATCH), strict=True)


def _recurring(rounds: int = ROUNDS) -> Iterable[Pool]:
    """Digits of 8x8 that go through all domains, several times."""
    return at_size(drifting(rounds * len(DOMAINS) * STRETCH, 60, STRETCH), 8)


def _small_source() -> list[Pool]:
    return list(at_size(source_batches(), 8))


COLLAPSES: dict[str, Case] = {
    "NOTE with LayerNorm, digits of 8x8, sorted by class": Case(
        lambda: tta.NOTE(small_model("ln")),
        _small_source,
        lambda: at_size(_sorted("style", 5), 8),
    ),
    "NOTE with LayerNorm at a hundred times its rate, digits of 8x8, sorted by class": Case(
        lambda: tta.NOTE(small_model("ln"), lr=0.01),
        _small_source,
        lambda: at_size(_sorted("style", 5), 8),
    ),
    "NOTE with LayerNorm at three hundred times its rate, digits of 8x8, sorted by class": Case(
        lambda: tta.NOTE(small_model("ln"), lr=0.03),
        _small_source,
        lambda: at_size(_sorted("style", 5), 8),
    ),
    "RoTTA, digits of 8x8, recurring": Case(
        lambda: tta.RoTTA(small_model("bn")),
        _small_source,
        _recurring,
        len(DOMAINS) * STRETCH // WINDOW,
    ),
    "RoTTA, digits of 8x8, recurring, twenty visits to each domain": Case(
        lambda: tta.RoTTA(small_model("bn")),
        _small_source,
        lambda: _recurring(VISITS),
        len(DOMAINS) * STRETCH // WINDOW,
    ),
    "RoTTA at thirty times its rate, digits of 8x8, recurring": Case(
        lambda: tta.RoTTA(small_model("bn"), lr=0.03, ema=0.97),
        _small_source,
        _recurring,
        len(DOMAINS) * STRETCH // WINDOW,
    ),
    "RoTTA, CIFAR10-C contrast and brightness, twenty visits to each": Case(
        lambda: tta.RoTTA(published_model("cifar10", "bn")),
        lambda: source_of("cifar10"),
        _recurring_corruptions,
        len(RECURRING),
    ),
    "TENT, CIFAR10-C brightness, correlated": Case(
        lambda: tta.TENT(published_model("cifar10", "bn")),
        lambda: source_of("cifar10"),
        lambda: _in_order("brightness", 4096),
    ),
    "TENT, CIFAR10-C brightness, shuffled, then correlated": Case(
        lambda: tta.TENT(published_model("cifar10", "bn")),
        lambda: source_of("cifar10"),
        lambda: _shuffled_then_correlated("brightness", 3072),
    ),
}
"""By name: the method, its source samples, the stream."""
