"""Compare the adapted model with the frozen source model on samples of a stream: answers, and fit of statistics."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..methods.backbone import Tensors
from ..methods.objectives import entropies
from .bench import Bench
from .reference import Reference
from .signals import rank
from .snapshots import Snapshot
from .tally import Tally

MARGIN = 0.1
"""Going back is not worth it if the source fits better only by a factor of 2 to this power."""
STAKE = 0.9
"""The share of the evidence that is staked on each sample's misfit."""


class Found(NamedTuple):
    """The result of a comparison.

    Attributes:
        drifts: Whether there is enough evidence that the input is unlike the source's.
        worse_by: The factor by which the source's statistics fit better than the adapted ones; None without enough
            evidence of that.
    """

    drifts: bool
    worse_by: float | None


def compare(
    x: Tensor,
    answers: list[int],
    adapted: Tensors | None,
    *,
    bench: Bench,
    tally: Tally,
    reference: Reference | None,
    patience: float,
) -> Found:
    """Let the source model answer samples, and the adapted model too if both have running statistics to compare.

    Args:
        x: The samples.
        answers: The answers that were given to them.
        adapted: The adapted tensors; None while learning is paused, and if answers depend on the batch.
        bench: Answers with given tensors.
        tally: Counts the pairs and adds up the evidence.
        reference: What is known about the source.
        patience: The expected number of comparisons between two false calls.
    """
    logits, expected = bench.ask(bench.backbone.source, x)
    found = bench.ask(adapted, x)[1] if adapted is not None and expected is not None else None
    gaps = [None] * len(x)
    if found is not None and expected is not None:
        gaps = torch.log2((found + 1e-9) / (expected + 1e-9)).nan_to_num().clamp(-1, 1).tolist()
    surprises, finite = entropies(logits).tolist(), torch.isfinite(logits).all(dim=1).tolist()
    drifts, worse_by = False, None
    for row, theirs in enumerate(logits.argmax(dim=1).tolist()):
        if not finite[row]:
            continue
        tally.pair(answers[row], theirs)
        if reference is not None:
            place = rank(surprises[row], reference.entropies[theirs])
            drifts = tally.bet(place, patience) or drifts
        gap = gaps[row]
        if gap is not None and worse_by is None:
            evidence = 1 + STAKE * (gap - MARGIN) / (1 + MARGIN)
            worse_by = 2**gap if tally.misfit.add(evidence, patience) else None
    return Found(drifts, worse_by)


def best_fit(x: Tensor, snapshots: list[Snapshot], bench: Bench) -> tuple[Snapshot | None, float]:
    """The snapshot whose statistics fit samples best (None if the source's do), and how far off they are."""
    best, found = None, _misfit(bench, bench.backbone.source, x)
    for snapshot in snapshots:
        far = _misfit(bench, snapshot.learned["model"], x)
        if far < found:
            best, found = snapshot, far
    return best, found


def _misfit(bench: Bench, tensors: Tensors, x: Tensor) -> float:
    far = bench.ask(tensors, x)[1]
    return 0.0 if far is None else float(far.mean())
