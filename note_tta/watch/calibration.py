"""Alarm limits from the source itself, measured on streams of class runs that are drawn from it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..methods.settings import check_count
from .reference import inputs_and_labels

if TYPE_CHECKING:
    from .watch import Watch

RUNS = (1, 16, 64, 256)
"""Mean lengths of the class runs, from a shuffled stream to a nearly sorted one."""
CALIBRATED = ("forgetting", "collapse")
"""The kinds of trouble whose limits are measured; not copies, because draws with replacement repeat samples."""
LEAST = 0.01
"""A smaller strain counts as this."""
BATCH = 64


def class_runs(classes: Tensor, samples: int, length: int, generator: torch.Generator) -> Tensor:
    """A correlated order of source samples: a random class, a run of it of random length, then the next class.

    Args:
        classes: The class of each source sample.
        samples: The number of indices to draw, with replacement.
        length: The mean length of a run; lengths are geometric.
        generator: The source of randomness.

    Example:
        >>> order = class_runs(torch.tensor([0, 0, 1, 1]), 6, 3, torch.Generator().manual_seed(0))
        >>> torch.tensor([0, 0, 1, 1])[order].tolist()
        [0, 0, 0, 0, 0, 1]
    """
    kinds = classes.unique()
    parts, drawn = [], 0
    while drawn < samples:
        own = (classes == kinds[torch.randint(len(kinds), (), generator=generator)]).nonzero()[:, 0]
        run = int(torch.empty(()).geometric_(1 / length, generator=generator)) if length > 1 else 1
        parts.append(own[torch.randint(len(own), (run,), generator=generator)])
        drawn += run
    return torch.cat(parts)[:samples]


def level(strains: list[float], share: float) -> float:
    """The strain that this share of looks exceeds; never below 1, the default limit.

    The logarithms of strains are assumed to be normal; Student's distribution corrects for their small number.

    Args:
        strains: The strain at each look of honest streams.
        share: The share of looks that may exceed it.

    Example:
        >>> level([0.1, 0.2, 0.1, 0.2], share=0.01), level([1.0, 2.0, 1.0, 2.0], share=0.01) > 2
        (1.0, True)
    """
    if len(strains) < 3:
        return 1.0
    logs = torch.tensor(strains, dtype=torch.float64).clamp(min=LEAST).log()
    z = float(torch.special.ndtri(torch.tensor(1 - share, dtype=torch.float64)))
    wider = z + (z**3 + z) / (4 * (len(logs) - 1))
    beyond = float(logs.mean()) + wider * float(logs.std()) * math.sqrt(1 + 1 / len(logs))
    return max(1.0, math.exp(beyond))


def calibrated(watch: Watch, source: Iterable[Any], samples: int) -> dict[str, float]:
    """The limit of each trouble, as a multiple of its default, found on streams of class runs of the source.

    Args:
        watch: A watch at the start of a stream; it is not changed.
        source: Batches of inputs, or of inputs and labels.
        samples: The number of samples of all streams together.
    """
    check_count("samples", samples, 1)
    batches = [watch.inner.checked(inputs_and_labels(batch)[0]) for batch in source]
    if not batches:
        raise ValueError("source has no batches: give samples of the source to calibrate with")
    x = torch.cat(batches)
    classes = torch.cat([watch.bench.answer(watch.backbone.source, inputs).argmax(1) for inputs in batches])
    generator = torch.Generator().manual_seed(0)
    strains: dict[str, list[float]] = {name: [] for name in CALIBRATED}
    twin = watch.fork()
    twin.announce = lambda event: None  # type: ignore[method-assign]  # these streams are not real
    for length in RUNS:
        twin.reset()
        twin.rollback = False
        order = class_runs(classes.cpu(), -(-samples // len(RUNS)), length, generator).to(x.device)
        for part in order.split(BATCH):
            twin(x[part])
        for name, found in strains.items():
            found += [each for each in twin.journal.column(f"strain:{name}") if each is not None]
    return {name: level(found, watch.look / watch.expected_run) for name, found in strains.items()}
