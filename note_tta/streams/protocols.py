"""Streams over several domains: one after another, repeated, or mixed.

Each protocol takes the labels of its domains, in the order of the domains, and returns a `DomainOrder`. `in_turn` and
`pooled` are general; the others are protocols from the literature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from . import orders

Labels = Mapping[str, Tensor | Sequence[int]]
Order = Callable[[Tensor, torch.Generator], Tensor]


class Samples(Protocol):
    """The part of a domain that `DomainOrder.batches` uses; the domains of `note_tta.data` provide it."""

    @property
    def labels(self) -> Tensor:
        """One class index per sample."""

    def inputs(self, indices: Tensor, /) -> Tensor:
        """The samples at these indices, `[n, ...]`."""


class Begin(NamedTuple):
    """Where a stretch of one domain begins."""

    position: int
    domain: str
    visit: int


@dataclass(frozen=True, eq=False)
class DomainOrder:
    """The order of a stream over several domains.

    Attributes:
        names: The names of the domains.
        domain: For each sample of the stream, the position of its domain in `names`.
        index: For each sample, its index within its domain.
        visit: For each sample, how many times the stream has gone through all domains before.

    Example:
        >>> stream = in_turn({"fog": [0, 1], "snow": [1, 1, 0]}, orders.sorted, visits=2)
        >>> len(stream), stream.begins[1]
        (10, Begin(position=2, domain='snow', visit=0))
        >>> wrong = torch.tensor([0, 1, 0, 0, 0, 1, 1, 0, 0, 0])
        >>> stream.errors(wrong).tolist()
        [[50.0, 0.0], [100.0, 0.0]]
    """

    names: tuple[str, ...]
    domain: Tensor
    index: Tensor
    visit: Tensor

    def __len__(self) -> int:
        return len(self.index)

    @property
    def visits(self) -> int:
        """How many times the stream goes through all domains."""
        return int(self.visit.max()) + 1 if len(self) else 0

    @property
    def begins(self) -> list[Begin]:
        """Where each stretch of one domain in one visit begins; in a mixed stream, at nearly every sample."""
        changes = (self.domain[1:] != self.domain[:-1]) | (self.visit[1:] != self.visit[:-1])
        positions = torch.cat([torch.zeros(min(1, len(self)), dtype=torch.long), changes.nonzero()[:, 0] + 1])
        return [
            Begin(position, self.names[int(self.domain[position])], int(self.visit[position]))
            for position in positions.tolist()
        ]

    def labels(self, labels: Labels) -> Tensor:
        """Return the labels of the stream, given the labels of its domains."""
        parts = [torch.as_tensor(labels[name]).cpu() for name in self.names]
        starts = torch.tensor([0, *(len(part) for part in parts)]).cumsum(0)
        return torch.cat(parts)[starts[self.domain] + self.index]

    def batches(self, domains: Mapping[str, Samples], size: int = 64) -> Batches:
        """Return the stream as batches of inputs and labels for `evaluate`. A batch may hold several domains.

        Args:
            domains: The domains by name.
            size: Samples per batch; the last one may be smaller.
        """

        def read(positions: slice) -> tuple[Tensor, Tensor]:
            places, indices = self.domain[positions], self.index[positions]
            order = places.argsort(stable=True)
            inputs, labels = [], []
            for place in places.unique().tolist():
                chosen, domain = indices[places == place], domains[self.names[place]]
                inputs.append(domain.inputs(chosen))
                labels.append(domain.labels[chosen])
            back = order.argsort()
            return torch.cat(inputs)[back], torch.cat(labels)[back]

        return Batches(len(self), size, read)

    def errors(self, wrong: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the error in percent per visit and domain, `[visits, domains]`; NaN if a visit lacks a domain.

        The error of a visit is the mean of its row.

        Args:
            wrong: For each sample of the stream, whether its answer was wrong.
            labels: The labels of the stream. If given, every class has the same weight, regardless of its size.
        """
        if len(wrong) != len(self):
            raise ValueError(f"wrong must have {len(self)} values, one per sample, got {len(wrong)}")
        groups = self.visit * len(self.names) + self.domain
        cells = self.visits * len(self.names)
        if labels is None:
            means = _group_means(wrong, groups, cells)
        else:
            kinds, places = labels.cpu().unique(return_inverse=True)
            classes = len(kinds)
            by_class = _group_means(wrong, groups * classes + places, cells * classes)
            means = by_class.view(cells, classes).nanmean(dim=1)
        return 100 * means.view(self.visits, len(self.names))


class Batches:
    """The batches of a stream. They are read when needed, and can be iterated any number of times."""

    def __init__(self, samples: int, size: int, read: Callable[[slice], tuple[Tensor, Tensor]]) -> None:
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        self._samples, self._size, self._read = samples, size, read

    def __len__(self) -> int:
        return -(-self._samples // self._size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, self._samples, self._size):
            yield self._read(slice(start, min(start + self._size, self._samples)))


def in_turn(
    labels: Labels, order: Order, *, visits: int = 1, generator: torch.Generator | None = None
) -> DomainOrder:
    """Go through one domain after another, `visits` times; each domain has a new order in every visit.

    Args:
        labels: The labels of each domain, in the order of the domains.
        order: Maps one domain's labels and a generator to its order, as `iid` does.
        visits: How many times to go through all domains.
        generator: Source of randomness; None means a new generator with torch's default seed.
    """
    if visits < 1:
        raise ValueError(f"visits must be at least 1, got {visits}")
    names, values = _checked(labels)
    generator = generator or torch.Generator()
    parts = [
        (place, order(values[place], generator), visit)
        for visit in range(visits)
        for place in range(len(names))
    ]
    return DomainOrder(
        names,
        domain=torch.cat([torch.full_like(indices, place) for place, indices, _ in parts]),
        index=torch.cat([indices for _, indices, _ in parts]),
        visit=torch.cat([torch.full_like(indices, visit) for _, indices, visit in parts]),
    )


def pooled(labels: Labels, order: Order, *, generator: torch.Generator | None = None) -> DomainOrder:
    """Put the samples of all domains into one pool and order them together.

    Args:
        labels: The labels of each domain.
        order: Maps the pool's labels and a generator to an order, as `iid` does.
        generator: Source of randomness; None means a new generator with torch's default seed.
    """
    names, values = _checked(labels)
    chosen = order(torch.cat(values), generator or torch.Generator())
    domain = torch.cat([torch.full((len(each),), place) for place, each in enumerate(values)])
    index = torch.cat([torch.arange(len(each)) for each in values])
    return DomainOrder(names, domain[chosen], index[chosen], torch.zeros_like(chosen))


def continual(labels: Labels, *, generator: torch.Generator | None = None) -> DomainOrder:
    """One domain after another, each shuffled (CoTTA, Wang et al., CVPR 2022)."""
    return in_turn(labels, orders.iid, generator=generator)


def practical(labels: Labels, *, gamma: float = 0.1, generator: torch.Generator | None = None) -> DomainOrder:
    """One domain after another, each correlated in time (PTTA; RoTTA, Yuan et al., CVPR 2023)."""
    return recurring(labels, visits=1, gamma=gamma, generator=generator)


def recurring(
    labels: Labels, *, visits: int = 20, gamma: float = 0.1, generator: torch.Generator | None = None
) -> DomainOrder:
    """`practical` repeated, with a new order in every visit (PeTTA, Hoang et al., NeurIPS 2024)."""
    return in_turn(labels, lambda y, g: orders.slotted(y, gamma, g), visits=visits, generator=generator)


def mixed(
    labels: Labels, *, delta: float | None = None, generator: torch.Generator | None = None
) -> DomainOrder:
    """All domains at once (ROID, Marsden et al., WACV 2024): shuffled, or correlated in time by `delta`.

    Args:
        labels: The labels of each domain.
        delta: Concentration of the paper's Dirichlet stream over the whole pool; None shuffles the pool.
        generator: Source of randomness; None means a new generator with torch's default seed.
    """
    order = orders.iid if delta is None else lambda y, g: orders.dirichlet(y, delta, g)
    return pooled(labels, order, generator=generator)


def class_sorted(labels: Labels, *, generator: torch.Generator | None = None) -> DomainOrder:
    """One domain after another, each sorted by class and shuffled within a class."""
    return in_turn(labels, orders.sorted, generator=generator)


def imbalanced(
    labels: Labels,
    *,
    imbalance: float = 10.0,
    vary: bool = False,
    gamma: float = 0.1,
    generator: torch.Generator | None = None,
) -> DomainOrder:
    """`practical` with classes of unequal size (GLI; TRIBE, Su et al., AAAI 2024).

    Args:
        labels: The labels of each domain.
        imbalance: The frequency of the first class divided by that of the last.
        vary: Let the frequent class differ between domains; otherwise it is the first class in all domains.
        gamma: Concentration of the stream within a domain.
        generator: Source of randomness; None means a new generator with torch's default seed.
    """

    def order(values: Tensor, generator: torch.Generator) -> Tensor:
        kept = orders.thinned(values, imbalance, generator, vary=vary)
        return kept[orders.slotted(values[kept], gamma, generator)]

    return in_turn(labels, order, generator=generator)


def shifted(
    labels: Labels,
    *,
    imbalance: float = 500_000.0,
    draws: int = 100,
    generator: torch.Generator | None = None,
) -> DomainOrder:
    """One domain after another, each drawn from a shifting label distribution (SAR, Niu et al., ICLR 2023).

    SAR's authors start every domain from the source model.
    """
    return in_turn(labels, lambda y, g: orders.label_shift(y, imbalance, g, draws=draws), generator=generator)


PROTOCOLS: dict[str, Callable[..., DomainOrder]] = {
    "continual": continual,
    "ptta": practical,
    "recurring": recurring,
    "mixed": mixed,
    "mixed-correlated": partial(mixed, delta=0.1),
    "class-sorted": class_sorted,
    "gli": imbalanced,
    "label-shift": shifted,
}
"""Every protocol by name: a function of the domains' labels, with settings and a `generator` as keywords."""


def _checked(labels: Labels) -> tuple[tuple[str, ...], list[Tensor]]:
    if not labels:
        raise ValueError("a stream needs the labels of at least one domain, got none")
    return tuple(labels), [orders.checked(each) for each in labels.values()]


def _group_means(values: Tensor, groups: Tensor, count: int) -> Tensor:
    sums = torch.zeros(count, dtype=torch.float64).index_add_(0, groups, values.cpu().double())
    return sums / groups.bincount(minlength=count)
