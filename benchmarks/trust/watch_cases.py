"""Methods that go wrong by themselves, each with its source samples and a stream on which it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import note_tta as tta
from note_tta import streams

from .common import BATCH, source_model
from .watch_published import cifar_model, cifar_source, cifar_stream
from .watch_streams import Pool, correlated, drifting, pool, source_batches

Case = tuple[Callable[[], Any], Callable[[], list[Pool]], Callable[[], Iterator[Pool]]]

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


COLLAPSES: dict[str, Case] = {
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
    "TENT at thirty times its rate, digits, correlated": (
        lambda: tta.TENT(source_model("bn"), lr=0.03),
        source_batches,
        lambda: correlated("contrast", 6000, 50),
    ),
    "NOTE with GroupNorm at a hundred times its rate, digits, sorted by class": (
        lambda: tta.NOTE(source_model("gn"), lr=0.01),
        source_batches,
        lambda: _sorted("style", 5),
    ),
    "NOTE with GroupNorm, digits, sorted by class": (
        lambda: tta.NOTE(source_model("gn")),
        source_batches,
        lambda: _sorted("style", 5),
    ),
    "RoTTA, digits, recurring": (
        lambda: tta.RoTTA(source_model("bn")),
        source_batches,
        lambda: drifting(12_000, 60, 1500),
    ),
    "RoTTA at thirty times its rate, digits, recurring": (
        lambda: tta.RoTTA(source_model("bn"), lr=0.03, ema=0.97),
        source_batches,
        lambda: drifting(12_000, 60, 1500),
    ),
}
"""By name: the method, its source samples, the stream."""
