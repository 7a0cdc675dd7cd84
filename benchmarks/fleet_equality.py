"""How far answers and states of a fleet lie from those of separate methods, on real streams too."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import note_tta as tta
from note_tta.data import open_dataset
from note_tta.models import build_model

from .measure import Figure

CALL = 256
"""Samples of a call."""


def on_real_streams(weights: Path) -> Iterator[Figure]:
    """The same for 50 streams of CIFAR10-C and 20 updates each.

    Args:
        weights: A ResNet-20 with IABN of CIFAR-10.
    """
    model = tta.load_weights(tta.convert_iabn(build_model("resnet20", 10)), weights).eval()
    for figure in equality(model, cifar10_streams(50), 20):
        yield dataclasses.replace(figure, name=f"CIFAR10-C, ResNet-20, {figure.name}")


def equality(
    model: nn.Module, sources: Sequence[Callable[[Tensor], Tensor]], updates: int, **settings: Any
) -> Iterator[Figure]:
    """How far answers and states of a fleet lie from those of separate methods.

    Args:
        model: The model that all share.
        sources: For each stream, what gives its samples by their numbers.
        updates: How many each stream makes.
        **settings: Of the methods.
    """
    fleet, methods = (
        tta.Fleet(model, partial(tta.NOTE, **settings)),
        [tta.NOTE(model, **settings) for _ in sources],
    )
    rows = torch.arange(len(sources)).repeat(updates * methods[0].interval)
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
    taken = [0] * len(sources)
    apart, same, size = 0.0, 0, 0.0
    for ids in rows.split(CALL):
        x = torch.empty(len(ids), 3, 32, 32)
        for stream in ids.unique().tolist():
            own = ids == stream
            count = int(own.sum())
            x[own] = sources[stream](torch.arange(taken[stream], taken[stream] + count))
            taken[stream] += count
        ours, theirs = fleet(ids.tolist(), x), one_by_one(methods)(ids.tolist(), x)
        apart, size = max(apart, float((ours - theirs).abs().max())), max(size, float(theirs.abs().max()))
        same += int((ours.argmax(1) == theirs.argmax(1)).sum())
    states = [(fleet.state_dict(name), method.state_dict()) for name, method in enumerate(methods)]
    far = max(_apart(ours, theirs) for ours, theirs in states)
    assert all(method.counters["updates"] == updates for method in methods)
    words = f"{len(sources)} streams, {updates} updates each, against separate NOTEs"
    detail: dict[str, object] = {"largest logit": size, "samples": len(rows), "settings": settings}
    yield Figure(
        f"{words}: largest difference of a logit", *[apart] * 3, 1e-4 * max(1.0, size), detail=detail
    )
    yield Figure(f"{words}: largest difference in a state", *[far] * 3, 1e-4)
    share = 100 * same / len(rows)
    yield Figure(f"{words}: equal predictions", *[share] * 3, 99.9, at_most=False, unit="%")


def _apart(a: Any, b: Any) -> float:
    """The largest difference between two states; infinity where anything but floating-point values differs."""
    if isinstance(a, dict):
        return max((_apart(a[key], b[key]) for key in a), default=0.0) if a.keys() == b.keys() else math.inf
    if isinstance(a, Tensor) and a.is_floating_point():
        return float((a - b).abs().max()) if a.numel() else 0.0
    return 0.0 if bool(torch.equal(a, b) if isinstance(a, Tensor) else a == b) else math.inf


def cifar10_streams(streams: int) -> list[Callable[[Tensor], Tensor]]:
    """Correlated streams of CIFAR10-C, each of a corruption and an order of its own."""
    dataset = open_dataset("cifar10")
    found = []
    for stream in range(streams):
        domain = dataset.domain(dataset.targets[stream % len(dataset.targets)])
        order = tta.streams.dirichlet(domain.labels, 0.1, torch.Generator().manual_seed(stream))
        found.append(partial(_samples, domain, order))
    return found


def _samples(domain: Any, order: Tensor, numbers: Tensor) -> Tensor:
    samples: Tensor = domain.inputs(order[numbers])
    return samples


def one_by_one(methods: Sequence[tta.NOTE]) -> Callable[[Sequence[int], Tensor], Tensor]:
    """Calls of a method per stream, one after another."""

    def call(ids: Sequence[int], x: Tensor) -> Tensor:
        answers = torch.empty(len(x), 10)
        for name in dict.fromkeys(ids):
            rows = [row for row, other in enumerate(ids) if other == name]
            answers[rows] = methods[name](x[rows])
        return answers

    return call
