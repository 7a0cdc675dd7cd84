"""What a mean was taken over, and how to say it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..data import DATASETS
from ..experiments.catalog import CORRELATED

_STREAMS = {
    "iid": "Uniformly distributed (i.i.d.)",
    "ptta": "Practical",
    "recurring": "Recurring",
    "continual": "Continual",
    "mixed": "Mixed",
    "mixed-correlated": "Mixed and correlated",
}

__all__ = ["Coverage", "comparable", "coverage_text", "domain_title", "stream_title", "usual"]


class Coverage(NamedTuple):
    """Over what a mean was taken."""

    samples: int | None
    domains: tuple[str, ...]
    seeds: tuple[int, ...]
    regenerated: bool = False


def coverage_text(dataset: str, coverage: Coverage, *, brief: bool = False) -> str:
    """What a mean was taken over, where that is less than everything; else the seeds alone.

    Args:
        dataset: The domains are of.
        coverage: Of the mean.
        brief: Leave out the names of the domains and whether they were regenerated.

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
    """The coverage that most have; of several, the one over most domains."""
    found = Counter(coverages)
    most = max(found.values())
    return max((c for c, n in found.items() if n == most), key=lambda c: (len(c.domains), str(c)))


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 2:
        return f"seeds {seeds[0]}–{seeds[-1]}"
    return "seeds " + ", ".join(map(str, seeds))


def comparable(one: Coverage | None, other: Coverage | None) -> bool:
    """Whether two means are over the same; the source's own domain goes with any targets."""
    if one is None or other is None:
        return True
    home = ("test",) in (one.domains, other.domains)
    return (one.samples, one.seeds) == (other.samples, other.seeds) and (home or one.domains == other.domains)


def stream_title(stream: str, dataset: str | None = None) -> str:
    """The heading over a stream's columns.

    Example:
        >>> stream_title("correlated"), stream_title("correlated", "harth"), stream_title("iid")
        ('Temporally correlated', 'Real stream', 'Uniformly distributed (i.i.d.)')
    """
    if stream in _STREAMS:
        return _STREAMS[stream]
    real = dataset is not None and CORRELATED.get(dataset) == "chronological"
    return "Real stream" if real else "Temporally correlated"


def domain_title(dataset: str, domain: str) -> str:
    """A domain's name as a heading: a corruption in words, a user or a recording as it is called.

    Example:
        >>> domain_title("cifar10", "gaussian_noise"), domain_title("mnist", "dotted_line")
        ('Gaussian', 'Dotted line')
    """
    if dataset in DATASETS and DATASETS[dataset].stream == "chronological":
        return domain
    words = domain.removesuffix("_noise").removesuffix("_blur").removesuffix("_transform")
    words = words.removesuffix("_compression").replace("_", " ")
    return "JPEG" if words == "jpeg" else words.capitalize()
