"""Methods that go wrong by themselves, each with its source samples and a stream on which it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

import note_tta as tta
from note_tta import streams

from .common import BATCH
from .watch_published import cifar_model, cifar_source, cifar_stream
from .watch_streams import Pool, at_size, correlated, drifting, pool, small_model, source_batches

Case = tuple[Callable[[], Any], Callable[[], list[Pool]], Callable[[], Iterable[Pool]]]

SHUFFLED = 2048
"""Samples in no order before a stream becomes correlated."""


def _shuffled_then_correlated(corruption: str, samples: int) -> Iterator[Pool]:
    x, y = cifar_stream(corruption, samples + SHUFFLED)
    mixed = torch.randperm(SHUFFLED, generator=torch.Generator().manual_seed(0))
    order = torch.cat([mixed, torch.arange(SHUFFLED, len(y))])
    yield from zip(x[order].split(BATCH), y[order].split(BATCH), strict=True)


def _in_order(corruption: str, samples: int) -> Iterator[Pool]:
    x, y = cifar_stream(corruption, samples)
    yield from zip(x.split(BATCH), y.split(BATCH), strict=True)


def _sorted(domain: str, rounds: int) -> Iterator[Pool]:
    """A domain sorted by class, again and again."""
    x, y = pool(domain)
    for seed in range(rounds):
        order = streams.sorted(y, torch.Generator().manual_seed(seed))
        yield from zip(x[order].split(BATCH), y[order].split(BATCH), strict=True)


def _small_source() -> list[Pool]:
    return list(at_size(source_batches(), 8))


COLLAPSES: dict[str, Case] = {
    "NOTE with LayerNorm, digits of 8x8, sorted by class": (
        lambda: tta.NOTE(small_model("ln")),
        _small_source,
        lambda: at_size(_sorted("style", 5), 8),
    ),
    "NOTE with LayerNorm at a hundred times its rate, digits of 8x8, sorted by class": (
        lambda: tta.NOTE(small_model("ln"), lr=0.01),
        _small_source,
        lambda: at_size(_sorted("style", 5), 8),
    ),
    "RoTTA, digits of 8x8, recurring": (
        lambda: tta.RoTTA(small_model("bn")),
        _small_source,
        lambda: at_size(drifting(12_000, 60, 1500), 8),
    ),
    "RoTTA at thirty times its rate, digits of 8x8, recurring": (
        lambda: tta.RoTTA(small_model("bn"), lr=0.03, ema=0.97),
        _small_source,
        lambda: at_size(drifting(12_000, 60, 1500), 8),
    ),
    "TENT at thirty times its rate, digits of 8x8, correlated": (
        lambda: tta.TENT(small_model("bn"), lr=0.03),
        _small_source,
        lambda: at_size(correlated("brightness", 6000, 50), 8),
    ),
    "TENT, CIFAR10-C brightness, correlated": (
        lambda: tta.TENT(cifar_model("bn")),
        cifar_source,
        lambda: _in_order("brightness", 4096),
    ),
    "TENT, CIFAR10-C brightness, shuffled, then correlated": (
        lambda: tta.TENT(cifar_model("bn")),
        cifar_source,
        lambda: _shuffled_then_correlated("brightness", 3072),
    ),
}
"""By name: the method, its source samples, the stream."""
