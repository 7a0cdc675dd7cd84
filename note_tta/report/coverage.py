"""What a mean is over: samples, domains and seeds, and their description in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ..data import DATASETS

_STREAMS = {
    "iid": "Uniformly distributed (i.i.d.)",
    "ptta": "Practical",
    "recurring": "Recurring",
    "continual": "Continual",
    "mixed": "Mixed",
    "mixed-correlated": "Mixed and correlated",
}


class Coverage(NamedTuple):
    """The samples, domains and seeds of a mean."""

    samples: int | None
    domains: tuple[str, ...]
    seeds: tuple[int, ...]
    regenerated: bool = False


def coverage_text(dataset: str, coverage: Coverage, *, brief: bool = False) -> str:
    """What a mean is over, in words: the seeds, and whatever else is not complete.

    `brief` leaves out the names of the domains and whether they were regenerated.

    Example:
        >>> coverage_text("cifar10", Coverage(500, ("fog", "frost"), (0, 1, 2)))
        'first 500 samples of each domain, 2 of 15 domains (Fog, Frost), seeds 0–2'
    """
    words = ["regenerated"] if coverage.regenerated and not brief else []
    if coverage.samples is not None:
        words.append(f"first {coverage.samples:,} samples of each domain")
    domains = [name for name in coverage.domains if name not in ("train", "test")]
    whole = len(DATASETS[dataset].targets) if dataset in DATASETS else len(domains)
    if domains and len(domains) < whole:
        names = ", ".join(domain_title(dataset, name) for name in domains)
        words.append(f"{len(domains)} of {whole} domains" + ("" if brief else f" ({names})"))
    words.append(_seeds(coverage.seeds))
    return ", ".join(words)


def usual(coverages: Sequence[Coverage]) -> Coverage:
    """The most common coverage; among several, the one with the most domains."""
    found = Counter(coverages)
    most = max(found.values())
    return max((c for c, n in found.items() if n == most), key=lambda c: (len(c.domains), str(c)))


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if len(seeds) > 2 and all(after - before == 1 for before, after in pairwise(seeds)):
        return f"seeds {seeds[0]}–{seeds[-1]}"
    return "seeds " + ", ".join(map(str, seeds))


def comparable(one: Coverage | None, other: Coverage | None) -> bool:
    """Whether two means can be compared: same samples, seeds and domains. The source's own domain fits any targets."""
    if one is None or other is None:
        return True
    home = ("test",) in (one.domains, other.domains)
    return (one.samples, one.seeds) == (other.samples, other.seeds) and (home or one.domains == other.domains)


def stream_title(stream: str, dataset: str = "") -> str:
    """The heading over a stream's columns.

    Example:
        >>> stream_title("correlated"), stream_title("correlated", "harth"), stream_title("iid")
        ('Temporally correlated', 'Real stream', 'Uniformly distributed (i.i.d.)')
    """
    if stream in _STREAMS:
        return _STREAMS[stream]
    real = dataset in DATASETS and DATASETS[dataset].stream == "chronological"
    return "Real stream" if real else "Temporally correlated"


def domain_title(dataset: str, domain: str) -> str:
    """A domain's name as a heading: a corruption in words, a user or a recording by its name.

    Example:
        >>> domain_title("cifar10", "gaussian_noise"), domain_title("mnist", "dotted_line")
        ('Gaussian', 'Dotted line')
    """
    if dataset in DATASETS and DATASETS[dataset].stream == "chronological":
        return domain
    words = domain.removesuffix("_noise").removesuffix("_blur").removesuffix("_transform")
    words = words.removesuffix("_compression").replace("_", " ")
    return "JPEG" if words == "jpeg" else words.capitalize()
