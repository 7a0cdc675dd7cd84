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


def count_windows(
    dataset: Dataset, domain: str, paper: int | None = None, *, exact: bool = False, missing: str = ""
) -> Check:
    """The number of windows of a domain, beside the paper's; only an `exact` one must be equal.

    If the dataset lacks the domain, the check has failed, and `missing` says which file is not there.
    """

    def check() -> Check:
        if domain in dataset.absent:
            return Check(domain, False, f"missing: {missing}")
        found = len(dataset.domain(domain))
        beside = "" if paper is None else f", the paper has {paper:,} ({found - paper:+,})"
        return Check(domain, found == paper if exact else None, f"{found:,} windows{beside}")

    return attempt(domain, check)
