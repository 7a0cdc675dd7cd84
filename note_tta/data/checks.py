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
    return _counted(dataset, domain, lambda n: (n == expected, f"{n:,} samples, published {expected:,}"))


def _counted(dataset: Dataset, domain: str, tell: Callable[[int], tuple[bool | None, str]]) -> Check:
    return attempt(domain, lambda: Check(domain, *tell(len(dataset.domain(domain)))))


def count_windows(
    dataset: Dataset, domain: str, paper: int | None = None, *, exact: bool = False, missing: str = ""
) -> Check:
    """The number of windows of a domain, beside the paper's; only an `exact` one must be equal.

    If the dataset lacks the domain, the check has failed, and `missing` says which file is not there.
    """
    if domain in dataset.absent:
        return Check(domain, False, f"missing: {missing}")

    def tell(found: int) -> tuple[bool | None, str]:
        beside = "" if paper is None else f", the paper has {paper:,} ({found - paper:+,})"
        return found == paper if exact else None, f"{found:,} windows{beside}"

    return _counted(dataset, domain, tell)
