"""Signals about an adapting model that need no labels; each is one small function or object."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

MOST_EVIDENCE = 1e200
"""The maximum of the evidence."""

ALIKE = 0.01
"""Two samples are copies if they differ by less than this share of their norm."""
STILL = 0.01
"""A value is dead if it varies by less than this share of its variation on the source."""


def effective_classes(weights: Tensor) -> float:
    """Return the effective number of classes of a distribution: the exponential of its entropy.

    It is computed over the memory or a long window, never over a batch, because on a correlated stream a batch may
    rightly hold one class. (ASR, Lim et al. 2026, uses the batch.)

    Args:
        weights: One non-negative weight per class; their sum need not be 1.

    Example:
        >>> effective_classes(torch.tensor([5.0, 5.0, 0.0]))
        2.0
    """
    total = float(weights.sum())
    if total <= 0:
        return 0.0
    shares = weights[weights > 0].double() / total
    return round(math.exp(-float((shares * shares.log()).sum())), 9)


def lost_probability(logits: Tensor, answers: Tensor, chances: Tensor) -> Tensor:
    """Return how much of the probability of the source model's answer each source sample has lost.

    On the kept source samples this shows what adaptation has cost. The samples are always the same, so the correlation
    of the stream does not matter.

    Args:
        logits: The adapted model's logits `[N, K]`; an answer of NaN has lost everything.
        answers: The source model's answers `[N]`.
        chances: The probabilities that the source model gave to them, `[N]`.

    Example:
        >>> lost_probability(torch.tensor([[0.0, 0.0]]), torch.tensor([0]), torch.tensor([0.75]))
        tensor([0.2500])
    """
    now = logits.float().softmax(dim=1).gather(1, answers[:, None])[:, 0]
    return (chances - now.nan_to_num(0.0)).clamp(min=0)


def persistence(answer: int, before: int, weights: Tensor) -> float:
    """Return, for one sample, how much more often than by chance an answer repeats the previous one; the mean is 0.

    On a correlated stream neighbours share their class, so a good model repeats its answers more often than their
    frequencies explain. A model that goes wrong repeats them less: answers that are spread over the classes do not
    repeat, and a single answer for everything repeats no more often than its frequency explains.

    Args:
        answer: The answer to a sample.
        before: The same model's answer to a sample shortly before.
        weights: The weight of each class among its earlier answers, over a long time.

    Example:
        >>> persistence(1, 1, torch.tensor([3.0, 1.0])), persistence(0, 1, torch.tensor([3.0, 1.0]))
        (0.75, -0.75)
    """
    share = float(weights[answer]) / max(float(weights.sum()), 1e-9)
    return float(answer == before) - share


def copies(samples: Tensor) -> float:
    """Return the share of samples that have a near copy among the others, as with a frozen sensor or repeated frames.

    Example:
        >>> copies(torch.ones(4, 1, 2, 2)), copies(torch.eye(4))
        (1.0, 0.0)
    """
    if len(samples) < 2:
        return 0.0
    flat = samples.flatten(1).float()
    distances = torch.cdist(flat, flat).fill_diagonal_(torch.inf)
    sizes = flat.norm(dim=1) + 1e-6
    return float((distances.amin(dim=1) <= ALIKE * sizes).float().mean())


def dead_share(samples: Tensor, spread: Tensor) -> float:
    """Return the share of the input that no longer varies, as with dead rows of a camera or a disconnected sensor.

    Values that varied more on the source have more weight, so a border that is nearly always black counts little.

    Args:
        samples: `[N, ...]`, of several classes, because images of one class may rightly have empty parts.
        spread: The standard deviation of each value of a sample on the source.

    Example:
        >>> dead_share(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([0.5, 0.5]))
        0.5
    """
    flat, expected = samples.flatten(1).float(), spread.flatten().to(samples.device)
    away = torch.linalg.vector_norm(flat - flat.mean(dim=0), dim=0) / math.sqrt(len(flat))
    return float(expected[away < STILL * expected].sum() / (expected.sum() + 1e-12))


def drift(tensors: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> dict[str, float]:
    """Return how far the adapted tensors of each layer are from the source's.

    Running means are compared in standard deviations of the source, running variances by the logarithm of their
    ratio. A norm layer's scale and offset are compared directly, since their input has a deviation of 1, and weights
    relative to the size of the source's. Each distance is a root mean square over the tensor; a layer has the largest
    of its tensors.

    Args:
        tensors: The adapted tensors, by name.
        source: The source's tensors, by name.

    Example:
        >>> source = {"norm.running_mean": torch.zeros(2), "norm.running_var": torch.ones(2)}
        >>> drift({**source, "norm.running_mean": torch.full((2,), 0.5)}, source)
        {'norm': 0.5}
    """
    layers: dict[str, float] = {}
    for name, tensor in tensors.items():
        layer, _, kind = name.rpartition(".")
        origin = source[name].detach().double()
        moved = tensor.detach().double() - origin
        if kind == "running_var":
            moved = torch.log((tensor.detach().double() + 1e-12) / (origin + 1e-12))
        elif kind == "running_mean":
            moved = moved / (source[name.removesuffix("mean") + "var"].double() + 1e-12).sqrt()
        elif kind == "num_batches_tracked":
            continue
        elif moved.ndim > 1:
            moved = moved / (origin.square().mean().sqrt() + 1e-12)
        far = float(moved.square().mean().sqrt())
        layers[layer] = max(layers.get(layer, 0.0), round(far, 6))
    return layers


class Detector:
    """Adds up evidence against a hypothesis and raises a call when there is enough, rarely by chance.

    Each piece of evidence is an e-value: not negative, and with an expectation of at most 1 given the past, while the
    hypothesis holds. The Shiryaev-Roberts recursion `R ← e (1 + R)` then takes at least `patience` steps on average
    until it reaches `patience` (e-detectors: Shin, Ramdas, Rinaldo 2022). Samples may depend on each other, as long as
    the expectation of each step holds given the past.

    Example:
        >>> detector = Detector()
        >>> [detector.add(2.0, patience=100) for _ in range(6)]
        [False, False, False, False, False, True]
    """

    def __init__(self) -> None:
        self.sum = 0.0

    def add(self, evidence: float, patience: float) -> bool:
        """Add an e-value and return whether there is enough evidence.

        Args:
            evidence: The e-value of this step.
            patience: The expected number of steps between false calls.
        """
        self.sum = min(evidence * (1 + self.sum), MOST_EVIDENCE)
        return self.sum >= patience

    def clear(self) -> None:
        """Start again."""
        self.sum = 0.0


class Wager:
    """Bets that ranks are not uniform: POEM's martingale (Bar, Shaer, Romano, NeurIPS 2024).

    The rank `u` in [0, 1] of a sample among the source's is uniform while the stream is like the source. Betting the
    share `bet` on high ranks multiplies the wealth by `1 + bet (u - 1/2)`, which has the expectation 1. The bet follows
    past wins by an online Newton-like step.

    Example:
        >>> wager = Wager()
        >>> wealth = 1.0
        >>> for _ in range(200):
        ...     wealth *= wager.play(0.9)
        >>> wealth > 1e6
        True
    """

    LARGEST = 1.8
    RATE = 1 / (8 * math.sqrt(3))

    def __init__(self) -> None:
        self.bet = 0.0
        self.squares = 0.0

    def play(self, rank: float) -> float:
        """Return what one unit of wealth becomes, an e-value; the bet is made before the rank is seen."""
        offset = rank - 0.5
        won = 1 + self.bet * offset
        slope = offset / won
        if abs(self.bet) > self.LARGEST and slope * self.bet > 0:
            slope = 0.0
        if slope:
            self.squares += slope * slope
            self.bet += self.RATE * slope / math.sqrt(self.squares)
        return won

    def clear(self) -> None:
        """Start again."""
        self.bet = self.squares = 0.0


def rank(value: float, quantiles: Tensor) -> float:
    """Return the rank in [0, 1] of a value among sorted quantiles, with linear interpolation.

    Example:
        >>> rank(0.5, torch.tensor([0.0, 1.0, 2.0]))
        0.25
    """
    last = len(quantiles) - 1
    above = int(torch.searchsorted(quantiles, torch.tensor(value, dtype=quantiles.dtype)))
    if above == 0 or above > last:
        return 0.0 if above == 0 else 1.0
    low, high = float(quantiles[above - 1]), float(quantiles[above])
    return (above - 1 + (value - low) / (high - low) if high > low else above) / last
