"""Orders over one domain. All except `label_shift` and `thinned` return every index exactly once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_TRIES = 1000


def iid(labels: Tensor | Sequence[int], generator: torch.Generator | None = None) -> Tensor:
    """Shuffle uniformly: the stream that most adaptation methods assume.

    Args:
        labels: One label per sample; only their number matters.
        generator: Source of randomness; None means a new generator with torch's default seed.

    Returns:
        Indices, a LongTensor.
    """
    return torch.randperm(len(checked(labels)), generator=generator or torch.Generator())


def sorted(labels: Tensor | Sequence[int], generator: torch.Generator | None = None) -> Tensor:
    """Sort by class; shuffle within each class if a generator is given.

    Example:
        >>> sorted([2, 0, 1, 0]).tolist()
        [1, 3, 2, 0]
    """
    labels = checked(labels)
    order = (
        torch.arange(len(labels)) if generator is None else torch.randperm(len(labels), generator=generator)
    )
    return order[torch.argsort(labels[order], stable=True)]


def chronological(labels: Tensor | Sequence[int]) -> Tensor:
    """Keep the dataset's own order, for data that was recorded over time."""
    return torch.arange(len(checked(labels)))


def dirichlet(
    labels: Tensor | Sequence[int], delta: float = 0.1, generator: torch.Generator | None = None
) -> Tensor:
    """Make a temporally correlated order: the paper's synthetic stream (appendix, "Dirichlet").

    There are as many tokens (stretches of time) as classes. Each class is divided among the tokens in proportions
    drawn from Dir(`delta`); a token that has its share of samples gets no more. Within a token the classes come one
    after another in random order.

    Args:
        labels: One label per sample.
        delta: The concentration. The smaller it is, the fewer tokens contain a class. The same value gives very
            different correlation with 10 and with 1,000 classes, so report `mean_run_length` with it.
        generator: Source of randomness; None means a new generator with torch's default seed.

    Returns:
        Indices, a LongTensor.

    Raises:
        ValueError: `delta` is not positive, or none of 1,000 draws fills every token.

    Example:
        >>> labels = torch.arange(1000) % 4
        >>> order = dirichlet(labels, delta=0.1, generator=torch.Generator().manual_seed(0))
        >>> order.unique().numel(), mean_run_length(labels[order]) > 20
        (1000, True)
    """
    _check_concentration("delta", delta)
    labels = checked(labels)
    if len(labels) == 0:
        return torch.empty(0, dtype=torch.long)
    rng = _numpy_generator(generator)
    members = _members(labels)
    tokens = len(members)
    fewest = min(10, len(labels) / (2 * tokens))
    for _ in range(_TRIES):
        stretches = _deal(members, delta, rng)
        if min(sum(map(len, stretch)) for stretch in stretches) >= fewest:
            parts = [stretch[i] for stretch in stretches for i in rng.permutation(len(stretch))]
            return torch.from_numpy(np.concatenate(parts))
    raise ValueError(
        f"in {_TRIES} tries, no Dirichlet({delta:g}) stream of {len(labels)} samples in {tokens} classes gave every "
        f"token {fewest:g} samples: raise delta, or give more samples per class"
    )


def slotted(
    labels: Tensor | Sequence[int],
    gamma: float = 0.1,
    generator: torch.Generator | None = None,
    *,
    most_slots: int = 100,
) -> Tensor:
    """Make a temporally correlated order: the sampler of RoTTA (Yuan et al., CVPR 2023) within one domain.

    Each class, in the order of the data, is cut into as many pieces as there are slots, in proportions drawn from
    Dir(`gamma`). Within a slot the classes come one after another in random order. Unlike `dirichlet`, this does not
    balance the slots, so a slot may be empty. There are at most 100 slots, so at the same concentration a stream of
    a hundred classes or more is less correlated.

    Args:
        labels: One label per sample.
        gamma: The concentration. The smaller it is, the fewer slots contain a class.
        generator: Source of randomness; None means a new generator with torch's default seed.
        most_slots: The largest number of slots. Below it there is one slot per class.

    Returns:
        Indices, a LongTensor.

    Example:
        >>> labels = torch.arange(1000) % 4
        >>> order = slotted(labels, gamma=0.1, generator=torch.Generator().manual_seed(0))
        >>> order.unique().numel(), mean_run_length(labels[order]) > 20
        (1000, True)
    """
    _check_concentration("gamma", gamma)
    if most_slots < 1:
        raise ValueError(f"most_slots must be at least 1, got {most_slots}")
    labels = checked(labels)
    rng = _numpy_generator(generator)
    members = _members(labels)
    room = np.ones(min(len(members), most_slots), dtype=bool)
    pieces = [_cut(member, _proportions(gamma, room, rng)) for member in members]
    parts = [pieces[k][slot] for slot in range(len(room)) for k in rng.permutation(len(members))]
    return torch.from_numpy(np.concatenate([*parts, np.empty(0, np.int64)]))


def label_shift(
    labels: Tensor | Sequence[int],
    imbalance: float = 500_000.0,
    generator: torch.Generator | None = None,
    *,
    draws: int = 100,
) -> Tensor:
    """Draw with replacement from a label distribution that shifts: the stream of SAR (Niu et al., 2023).

    The classes take turns of `draws` samples, in random order. During its turn a class is `imbalance` times as likely
    as each other class.

    Args:
        labels: One label per sample.
        imbalance: 1 gives a uniform stream, infinity gives one class after another.
        generator: Source of randomness; None means a new generator with torch's default seed.
        draws: Samples per turn.

    Returns:
        Indices, a LongTensor of `draws` times the number of classes. A sample may occur several times or never.

    Example:
        >>> labels = torch.tensor([0, 0, 1, 1])
        >>> drawn = labels[label_shift(labels, math.inf, draws=3)]
        >>> mean_run_length(drawn)
        3.0
    """
    if not imbalance >= 1:
        raise ValueError(f"imbalance must be at least 1, got {imbalance}")
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")
    rng = _numpy_generator(generator)
    members = _members(checked(labels))
    count = len(members)
    own = 1.0 if count == 1 or imbalance == math.inf else imbalance / (imbalance + count - 1)
    drawn = [np.empty(0, np.int64)]
    for turn in rng.permutation(count):
        others = (turn + rng.integers(1, max(2, count), draws)) % count
        classes = np.where(rng.random(draws) < own, turn, others)
        drawn.append(np.array([rng.choice(members[k]) for k in classes], dtype=np.int64))
    return torch.from_numpy(np.concatenate(drawn))


def thinned(
    labels: Tensor | Sequence[int],
    imbalance: float,
    generator: torch.Generator | None = None,
    *,
    vary: bool = False,
) -> Tensor:
    """Select samples so that each class is rarer than the one before (TRIBE, Su et al., 2024).

    Of K classes, the i-th (from 0) keeps `int(n · imbalance ** (-i / (K - 1)))` samples, chosen at random, where n is
    the size of the first class.

    Args:
        labels: One label per sample.
        imbalance: The frequency of the first class divided by that of the last, at least 1.
        generator: Source of randomness; None means a new generator with torch's default seed.
        vary: Assign these sizes to the classes at random.

    Returns:
        Indices in ascending order, a LongTensor.

    Example:
        >>> labels = torch.arange(300) % 3
        >>> labels[thinned(labels, imbalance=100)].bincount().tolist()
        [100, 10, 1]
    """
    if not 1 <= imbalance < math.inf:
        raise ValueError(f"imbalance must be at least 1 and finite, got {imbalance}")
    rng = _numpy_generator(generator)
    members = _members(checked(labels))
    if not members:
        return torch.empty(0, dtype=torch.long)
    shares = imbalance ** (-np.arange(len(members)) / max(1, len(members) - 1))
    sizes = (len(members[0]) * shares).astype(int)
    if vary:
        sizes = rng.permutation(sizes)
    kept = [rng.permutation(member)[:size] for member, size in zip(members, sizes, strict=True)]
    return torch.from_numpy(np.sort(np.concatenate(kept)))


def mean_run_length(labels: Tensor | Sequence[int]) -> float:
    """Return the mean number of consecutive samples of the same class in a stream of `labels`.

    Example:
        >>> mean_run_length([0, 0, 0, 1, 1, 0])
        2.0
    """
    labels = checked(labels)
    if len(labels) == 0:
        return 0.0
    return len(labels) / (1 + int((labels[1:] != labels[:-1]).sum()))


def _deal(members: list[np.ndarray], delta: float, rng: np.random.Generator) -> list[list[np.ndarray]]:
    """Divide each class among the tokens; return one array of indices per token and class."""
    tokens = len(members)
    share = sum(map(len, members)) / tokens
    held = np.zeros(tokens)
    stretches: list[list[np.ndarray]] = [[] for _ in range(tokens)]
    for member in members:
        proportions = _proportions(delta, held < share, rng)
        for token, part in enumerate(_cut(rng.permutation(member), proportions)):
            stretches[token].append(part)
            held[token] += len(part)
    return stretches


def _cut(member: np.ndarray, proportions: np.ndarray) -> list[np.ndarray]:
    """Cut a class into pieces of these proportions; the cuts are rounded down."""
    return np.split(member, np.floor(np.cumsum(proportions)[:-1] * len(member)).astype(int))


def _proportions(delta: float, room: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw from Dir(delta), set the values without room to zero, and renormalise.

    The draw uses logarithms, because with a small delta almost every Gamma variate underflows to zero. Thus every
    token has a positive value, and the renormalisation is always defined.
    """
    logs = np.log(rng.standard_gamma(delta + 1, len(room))) + np.log1p(-rng.random(len(room))) / delta
    logs[~room] = -np.inf
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def _members(labels: Tensor) -> list[np.ndarray]:
    """Return the indices of each class that occurs, in ascending order."""
    values = labels.numpy()
    return [np.flatnonzero(values == label) for label in np.unique(values)]


def _numpy_generator(generator: torch.Generator | None) -> np.random.Generator:
    """Make a numpy generator, seeded by one draw from torch's generator."""
    seed = torch.randint(2**62, (), generator=generator or torch.Generator()).item()
    return np.random.default_rng(int(seed))


def _check_concentration(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be greater than 0, got {value}")
    if value == math.inf:
        raise ValueError(f"{name} must be finite: for a stream without correlation, use iid")


def checked(labels: Tensor | Sequence[int]) -> Tensor:
    """Return the labels as a one-dimensional tensor on the CPU."""
    labels = torch.as_tensor(labels)
    if labels.ndim != 1:
        raise ValueError(f"labels must be one-dimensional, got shape {tuple(labels.shape)}")
    if not torch.isfinite(labels).all():
        raise ValueError("labels must be finite, got NaN or Inf")
    return labels.cpu()
