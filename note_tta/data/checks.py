"""The checks of `note-tta data verify`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .base import BadData, Dataset, MissingData


@dataclass(frozen=True)
class Check:
    """The outcome of one check; `ok` is None for a fact that is neither right nor wrong."""

    what: str
    ok: bool | None
    detail: str


def attempt(what: str, check: Callable[[], Check]) -> Check:
    """Make a check; missing or bad data is a failed check."""
    try:
        return check()
    except (MissingData, BadData) as error:
        return Check(what, False, str(error))


def count(dataset: Dataset, domain: str, expected: int) -> Check:
    """Whether a domain has the published number of samples."""

    def check() -> Check:
        found = len(dataset.domain(domain))
        return Check(domain, found == expected, f"{found:,} samples, published {expected:,}")

    return attempt(domain, check)


def beside_paper(dataset: Dataset, domain: str, expected: int, *, exact: bool = False) -> Check:
    """The number of samples of a domain beside the paper's; only an `exact` one must be equal."""

    def check() -> Check:
        found = len(dataset.domain(domain))
        detail = f"{found:,} windows, the paper has {expected:,} ({found - expected:+,})"
        return Check(domain, found == expected if exact else None, detail)

    return attempt(domain, check)
