"""Orders in which a dataset meets a method: each returns every index exactly once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_TRIES = 1000


def iid(labels: Tensor | Sequence[int], generator: torch.Generator | None = None) -> Tensor:
    """Uniformly shuffled: the stream that most adaptation methods assume.

    Args:
        labels: One label a sample; only their number matters.
        generator: Source of randomness; None is a new generator with torch's default seed.

    Returns:
        Indices, a LongTensor.
    """
    return torch.randperm(len(_checked(labels)), generator=generator or torch.Generator())


def sorted(labels: Tensor | Sequence[int], generator: torch.Generator | None = None) -> Tensor:
    """Class after class, in the order of the labels; shuffled inside a class where a generator is given.

    Example:
        >>> sorted([2, 0, 1, 0]).tolist()
        [1, 3, 2, 0]
    """
    labels = _checked(labels)
    order = (
        torch.arange(len(labels)) if generator is None else torch.randperm(len(labels), generator=generator)
    )
    return order[torch.argsort(labels[order], stable=True)]


def chronological(labels: Tensor | Sequence[int]) -> Tensor:
    """The dataset's own order, for data that was recorded over time."""
    return torch.arange(len(_checked(labels)))


def dirichlet(
    labels: Tensor | Sequence[int], delta: float = 0.1, generator: torch.Generator | None = None
) -> Tensor:
    """Temporally correlated: the paper's synthetic stream (appendix, "Dirichlet").

    There are as many tokens (stretches of time) as classes. Each class is shared out over the tokens by
    proportions drawn from Dir(`delta`), where a token that has its share of samples already gets no more.
    Inside a token the classes come one after another in random order.

    Args:
        labels: One label a sample.
        delta: Concentration: the smaller, the fewer tokens a class lives in. The same value means very
            different correlation at 10 and at 1,000 classes: report `mean_run_length` beside it.
        generator: Source of randomness; None is a new generator with torch's default seed.

    Returns:
        Indices, a LongTensor.

    Raises:
        ValueError: `delta` is not positive, or no draw in 1,000 fills every token.

    Example:
        >>> labels = torch.arange(1000) % 4
        >>> order = dirichlet(labels, delta=0.1, generator=torch.Generator().manual_seed(0))
        >>> order.unique().numel(), mean_run_length(labels[order]) > 20
        (1000, True)
    """
    if not delta > 0:
        raise ValueError(f"delta must be greater than 0, got {delta}")
    if delta == math.inf:
        raise ValueError("delta must be finite: a stream without correlation is iid")
    labels = _checked(labels)
    if len(labels) == 0:
        return torch.empty(0, dtype=torch.long)
    seed = torch.randint(2**62, (), generator=generator or torch.Generator()).item()
    rng = np.random.default_rng(int(seed))
    members = [np.flatnonzero(labels.numpy() == label) for label in labels.unique().tolist()]
    tokens = len(members)
    fewest = min(10, len(labels) / (2 * tokens))
    for _ in range(_TRIES):
        stretches = _deal(members, delta, rng)
        if min(sum(map(len, stretch)) for stretch in stretches) >= fewest:
            parts = [stretch[i] for stretch in stretches for i in rng.permutation(len(stretch))]
            return torch.from_numpy(np.concatenate(parts))
    raise ValueError(
        f"no Dirichlet({delta:g}) stream of {len(labels)} samples in {tokens} classes gave every token "
        f"{fewest:g} samples in {_TRIES} tries: raise delta, or give more samples a class"
    )


def mean_run_length(labels: Tensor | Sequence[int]) -> float:
    """The mean number of consecutive samples of one class in a stream of `labels`.

    Example:
        >>> mean_run_length([0, 0, 0, 1, 1, 0])
        2.0
    """
    labels = _checked(labels)
    if len(labels) == 0:
        return 0.0
    return len(labels) / (1 + int((labels[1:] != labels[:-1]).sum()))


def _deal(members: list[np.ndarray], delta: float, rng: np.random.Generator) -> list[list[np.ndarray]]:
    """Share each class out over the tokens; per token, one array of indices a class."""
    tokens = len(members)
    share = sum(map(len, members)) / tokens
    held = np.zeros(tokens)
    stretches: list[list[np.ndarray]] = [[] for _ in range(tokens)]
    for member in members:
        proportions = _proportions(delta, held < share, rng)
        cuts = np.floor(np.cumsum(proportions)[:-1] * len(member)).astype(int)
        for token, part in enumerate(np.split(rng.permutation(member), cuts)):
            stretches[token].append(part)
            held[token] += len(part)
    return stretches


def _proportions(delta: float, room: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A draw from Dir(delta), set to zero where there is no room and renormalised.

    Drawn through logarithms, since at a small delta almost every Gamma variate underflows to zero. They
    also leave something in every token, so that the renormalisation is always defined.
    """
    logs = np.log(rng.standard_gamma(delta + 1, len(room))) + np.log1p(-rng.random(len(room))) / delta
    logs[~room] = -np.inf
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def _checked(labels: Tensor | Sequence[int]) -> Tensor:
    labels = torch.as_tensor(labels)
    if labels.ndim != 1:
        raise ValueError(f"labels must be one-dimensional, got shape {tuple(labels.shape)}")
    return labels.cpu()
