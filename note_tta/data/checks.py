"""What is looked at when a dataset is verified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .base import BadData, Dataset, MissingData


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: `ok` is None for a fact that has no right or wrong."""

    what: str
    ok: bool | None
    detail: str


def attempt(what: str, check: Callable[[], Check]) -> Check:
    """Make a check; data that is missing or bad is a failed one."""
    try:
        return check()
    except (MissingData, BadData) as error:
        return Check(what, False, str(error))


def count(dataset: Dataset, domain: str, expected: int) -> Check:
    """Whether a domain has as many samples as were published."""

    def check() -> Check:
        found = len(dataset.domain(domain))
        return Check(domain, found == expected, f"{found:,} samples, published {expected:,}")

    return attempt(domain, check)


def beside_paper(dataset: Dataset, domain: str, expected: int, *, exact: bool = False) -> Check:
    """How many samples a domain has, beside the paper's number; only an `exact` one must agree."""

    def check() -> Check:
        found = len(dataset.domain(domain))
        detail = f"{found:,} windows, the paper has {expected:,} ({found - expected:+,})"
        return Check(domain, found == expected if exact else None, detail)

    return attempt(domain, check)
