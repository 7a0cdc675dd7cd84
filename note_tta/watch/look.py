"""One look at a stream: all signals, and how near each kind of trouble is to an alarm."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from ..methods.method import Method
from .bench import Bench
from .reference import Reference, lost
from .signals import copies, dead_share, effective_classes
from .tally import Tally

CALM = 0.25
"""A state is good enough to go back to if no signal has reached more than this share of its limit."""
PARTS = 4
"""While nothing is suspect, each look uses one in this many of the kept source samples, in turn."""
ENOUGH_CLASSES = 10
"""A stream with this many effective classes, or with all classes of the model, counts as broad."""
WITHOUT_STATISTICS = 1 / 3
"""The share of the tolerance that a model without running statistics gets. Running statistics follow the input, which
normally costs source samples some probability; without them, only learning changes the model."""
NARROW = 1.5
"""A memory with fewer effective classes than this is too narrow to learn from for long."""
COPIED = 0.5
"""A memory with a larger share of copies must not be learned from for long; with twice the share, half as long."""
DEAD = 0.1
"""If a larger share of the input no longer varies, it must not be learned from for long."""
LONG = 2
"""A memory that is too narrow, or holds copies or dead input, raises an alarm after this many looks of samples."""
ENOUGH_PAIRS = 64
"""Comparisons with the source model before collapse can be detected."""


class Trouble(NamedTuple):
    """A kind of trouble.

    Attributes:
        strain: How near it is to an alarm; an alarm is at 1.
        name: "forgetting", "collapse", "unsteady", "copies", "dead" or "narrow".
        words: Its description.
    """

    strain: float
    name: str
    words: str


def look_at(
    method: Method,
    tally: Tally,
    reference: Reference | None,
    bench: Bench,
    tolerance: float,
    look: int,
    patience: float,
) -> tuple[dict[str, float], list[Trouble]]:
    """All signals by name, and all kinds of trouble that could be checked.

    The variety of what is learned from is the geometric mean of the effective classes in the memory and among the
    answers over a long time. The labels in the memory are predicted, so they alone look varied if a model is
    often wrong; the answers alone look narrow on a stream sorted by class.

    Args:
        method: The innermost method.
        tally: What was counted; this function updates how long each trouble has lasted.
        reference: What is known about the source.
        bench: Answers with given tensors.
        tolerance: How much probability source samples may lose.
        look: Samples between two looks.
        patience: The expected number of comparisons with the source model between two false calls.
    """
    memory: Any = getattr(method, "memory", None)
    held = memory is not None and len(memory) > 0
    told = effective_classes(tally.long)
    weights = torch.bincount(torch.tensor(memory.labels() if held else [], dtype=torch.long))
    signals = {
        "samples": float(tally.samples),
        "classes": math.sqrt(effective_classes(weights) * told) if held else told,
        **tally.signals(),
        **tally.refused(method.counters),
    }
    troubles = []
    if reference is not None:
        error = tally.error()
        signals |= {"error": error.value, "error_low": error.low, "error_high": error.high}
        if method.backbone.source:
            troubles.append(_forgetting(method, tally, reference, bench, tolerance, signals))
    if held and tally.resting_since is None:
        troubles += _poor_memory(memory, tally, reference, look, signals)
    ours, theirs = effective_classes(tally.ours), effective_classes(tally.theirs)
    signals["classes_of_source"] = theirs
    if tally.pairs >= ENOUGH_PAIRS:
        words = f"the answers have {ours:.1f} effective classes, the source model's have {theirs:.1f}"
        troubles.append(Trouble(theirs / max(ours, 1e-9) - 1, "collapse", words))
    words = "neighbouring samples get the same answer less often than from the source model"
    troubles.append(Trouble(tally.unsteadiness(patience), "unsteady", words))
    levels = {} if reference is None else reference.levels
    return signals, [each._replace(strain=each.strain / levels.get(each.name, 1.0)) for each in troubles]


def _forgetting(
    method: Method,
    tally: Tally,
    reference: Reference,
    bench: Bench,
    tolerance: float,
    signals: dict[str, float],
) -> Trouble:
    """Source samples lose the probability that the source model gave to its answers."""
    allowed = tolerance * min(1.0, max(signals["classes"] / broad(tally.classes), 1 / ENOUGH_CLASSES))
    if not any(name.endswith("running_mean") for name in method.backbone.source):
        allowed *= WITHOUT_STATISTICS
    mean = math.inf
    if tally.strain <= CALM and not reference.own_statistics:
        some = slice(tally.looks % PARTS, None, PARTS)
        mean = float(lost(reference, bench, method.tensors, some).mean())
    if not mean <= CALM * allowed:
        mean = float(lost(reference, bench, method.tensors).mean())
    signals |= {"forgetting": round(mean, 4), "allowed": round(allowed, 4)}
    words = (
        f"source samples have lost {100 * mean:.1f} points of their probability; {100 * allowed:.1f} are "
        f"allowed while the model learns from {signals['classes']:.1f} classes"
    )
    return Trouble(mean / allowed, "forgetting", words)


def _poor_memory(
    memory: Any, tally: Tally, reference: Reference | None, look: int, signals: dict[str, float]
) -> list[Trouble]:
    """A memory that is bad to learn from, if that lasts."""
    looks, samples = signals["watched"] / look, memory.inputs()
    signals["copies"] = copies(samples)
    heavier = looks * signals["copies"] / COPIED
    copied = tally.last_for("copies", heavier if signals["copies"] > COPIED else 0)
    words = f"{100 * signals['copies']:.0f} % of the memory's samples are copies of others"
    troubles = [Trouble(copied / LONG, "copies", words)]
    if reference is None:
        least = min(NARROW, 0.6 * tally.classes)
        narrow = tally.last_for("narrow", looks if signals["classes"] < least else 0)
        words = f"the memory has held only {signals['classes']:.1f} classes for a long time"
        troubles.append(Trouble(narrow / LONG, "narrow", words))
    elif reference.spread.shape == samples.shape[1:]:
        signals["dead"] = round(dead_share(samples, reference.spread), 4)
        dead = tally.last_for("dead", looks if signals["dead"] > DEAD else 0)
        words = f"{100 * signals['dead']:.0f} % of what varied on the source does not vary in the memory"
        troubles.append(Trouble(dead / LONG, "dead", words))
    return troubles


def broad(classes: int) -> int:
    """The number of effective classes of a broad stream."""
    return min(classes, ENOUGH_CLASSES)
