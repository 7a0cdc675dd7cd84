"""The paper's claims, checked against results: a verdict with its evidence.

A claim about several methods has "held so far" if some of them were not run and all others agree with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Literal, NamedTuple

from ..data import DATASETS
from ..experiments.experiment import Point
from ..experiments.variants import BASELINES, METHOD_ROWS, VARIANTS
from .coverage import coverage_text, stream_title, usual
from .markdown_tables import number
from .paper_numbers import Number
from .scores import Score, Scores, Setup

Verdict = Literal["held", "held so far", "not held", "not measured", "does not apply"]
SIGNS: dict[Verdict, str] = {
    "held": "✓",
    "held so far": "(✓)",
    "not held": "✗",
    "not measured": "?",
    "does not apply": "–",
}

STEADY_POINTS = 3.0
COMPETITIVE_POINTS = 1.0
_NO_IID: tuple[Verdict, str] = ("does not apply", "a recording has only one order")
_TOGETHER = {"note": "IABN+PBRS"}

CLAIMS = {
    "i": "On correlated streams BN Stats, PL, TENT and CoTTA are worse than Source.",
    "ii": "On correlated streams NOTE beats Source and every baseline.",
    "iii": f"NOTE's correlated and i.i.d. errors differ by less than {STEADY_POINTS:g} points.",
    "iv": "IABN and PBRS each help alone, and most together.",
    "v": "PBRS is at least as good as plain reservoir sampling (RS).",
    "vi": f"On i.i.d. streams NOTE* is within {COMPETITIVE_POINTS:g} point of the best baseline.",
}


class Claim(NamedTuple):
    """A claim on one dataset with one setup."""

    id: str
    subject: str  # the dataset and the setup
    verdict: Verdict
    evidence: str  # the numbers


class Ordering(NamedTuple):
    """The methods of one column from best to worst, ours and the paper's."""

    subject: str  # the dataset, the stream and the setup
    ours: tuple[str, ...]  # names with errors, lowest first
    apart: tuple[str, ...]  # methods over other samples, domains or seeds, which have no place in the order
    paper: tuple[str, ...]  # the paper's order of the rows that both have; empty if it has none
    agreement: float | None  # Spearman's rank correlation of the two; None if there is nothing to compare


class _Pair(NamedTuple):
    """Two rows over what both have. The claim is that the first has the lower error."""

    low: Number
    high: Number
    first: str  # the row's name and error
    second: str
    over: str

    @property
    def gap(self) -> float:
        return self.low.mean - self.high.mean


Compare = Callable[..., _Pair | None]
"""Compares two rows of one setup, by default on correlated streams."""


def _compare(
    scores: Scores,
    setup: Setup,
    lower: str,
    higher: str,
    streams: tuple[str, str] = ("correlated", "correlated"),
    names: Mapping[str, str] = MappingProxyType({}),
) -> _Pair | None:
    pair = scores.pair(setup.row(lower, Point(streams[0])), setup.row(higher, Point(streams[1])))
    if pair is None:
        return None
    low, high = pair
    shared = low.coverage
    if shared.samples != high.coverage.samples:
        shared = shared._replace(samples=None)
    over = coverage_text(setup.dataset, shared, brief=True)
    said = _said(lower, low, high, names), _said(higher, high, low, names)
    return _Pair(low.number, high.number, *said, over)


def check_claims(scores: Scores) -> list[Claim]:
    """Check every claim on every dataset and setup that has correlated results."""
    claims = []
    for setup in filter(lambda setup: setup.has_batch_norm, scores.setups()):
        if scores.of(setup.row("note")) is None:
            continue
        compare = partial(_compare, scores, setup)
        recorded = DATASETS[setup.dataset].stream == "chronological"
        verdicts = {
            "i": _all({row: compare("source", row) for row in ("bn_stats", "pl", "tent", "cotta")}),
            "ii": _all({row: compare("note", row) for row in BASELINES}),
            "iii": _NO_IID if recorded else _note_is_steady(compare),
            "iv": _parts_help(compare),
            "v": _pbrs_against_rs(setup, compare),
            "vi": _NO_IID if recorded else _note_iid_competes(compare),
        }
        claims += [Claim(name, setup.title, *told) for name, told in verdicts.items()]
    return claims


def orderings(scores: Scores) -> list[Ordering]:
    """The order of the methods in each column, ours beside the paper's."""
    columns = [(setup, stream) for setup in scores.setups() for stream in ("correlated", "iid")]
    return [order for column in columns if (order := _ordering(scores, *column))]


def _ordering(scores: Scores, setup: Setup, stream: str) -> Ordering | None:
    """The order of a column. A method over other samples than most has no place in it."""
    rows = [*METHOD_ROWS, *(["note_iid"] if stream == "iid" else [])]
    scored = scores.together({row: setup.row(row, Point(stream)) for row in rows})
    found = {row: score for row, score in scored.items() if score}
    if len(found) < 2:
        return None
    shared = usual([score.coverage for score in found.values()])
    errors = {row: score.number.mean for row, score in found.items() if score.coverage == shared}
    paper = {row: value.mean for row in errors if (value := setup.paper(stream, row))}
    apart = [
        f"{_said(row, score, score)} ({coverage_text(setup.dataset, score.coverage, brief=True)})"
        for row, score in found.items()
        if row not in errors
    ]
    subject = f"{DATASETS[setup.dataset].title}, {stream_title(stream, setup.dataset).lower()}"
    return Ordering(
        subject + (f" · {setup.label}" if setup.label else ""),
        _ranked(errors),
        tuple(apart),
        _ranked(paper) if len(paper) > 1 else (),
        _rank_correlation({row: errors[row] for row in paper}, paper) if len(paper) > 2 else None,
    )


def _note_is_steady(compare: Compare) -> tuple[Verdict, str]:
    part = compare("note", "note", ("correlated", "iid"))
    if part is None:
        return "not measured", "NOTE was not run on both streams"
    gap = abs(part.gap)
    both = f"{number(part.low)} correlated, {number(part.high)} i.i.d."
    return _held(gap < STEADY_POINTS), f"{both}: {gap:.2f} points apart ({part.over})"


def _parts_help(compare: Compare) -> tuple[Verdict, str]:
    title = {row: _TOGETHER.get(row, VARIANTS[row].title) for row in ("source", "iabn", "pbrs", "note")}
    wanted = (("iabn", "source"), ("pbrs", "source"), ("note", "iabn"), ("note", "pbrs"))
    return _all({f"{title[a]} against {title[b]}": compare(a, b, names=_TOGETHER) for a, b in wanted})


def _pbrs_against_rs(setup: Setup, compare: Compare) -> tuple[Verdict, str]:
    part = compare("note", "iabn_rs", names=_TOGETHER)
    if part is None:
        return "not measured", "IABN+RS was not run"
    text = _told([part])
    papers = [setup.paper("correlated", row) for row in ("note", "iabn_rs")]
    if papers[0] and papers[1]:
        text += f"; in the paper: {number(papers[0])} against {number(papers[1])}"
    return _held(round(part.low.mean, 1) <= round(part.high.mean, 1)), text


def _note_iid_competes(compare: Compare) -> tuple[Verdict, str]:
    parts = {row: compare("note_iid", row, ("iid", "iid")) for row in BASELINES}
    measured = [part for part in parts.values() if part]
    if not measured:
        return "not measured", "NOTE* or the baselines were not run on an i.i.d. stream"
    part = max(measured, key=lambda part: part.gap)
    text = f"{part.first}, the best baseline {part.second}: {part.gap:+.2f} points ({part.over})"
    missing = [VARIANTS[row].title for row in BASELINES if not parts[row]]
    text += f" (not measured: {', '.join(missing)})" if missing else ""
    return _held(part.gap <= COMPETITIVE_POINTS), text.replace("-", "−")


def _held(does: bool) -> Verdict:
    return "held" if does else "not held"


def _all(parts: dict[str, _Pair | None]) -> tuple[Verdict, str]:
    """Held if every part holds. Evidence against it comes first, what is missing comes last."""
    against = [part for part in parts.values() if part and part.gap >= 0]
    for_it = [part for part in parts.values() if part and part.gap < 0]
    missing = [VARIANTS[name].title if name in VARIANTS else name for name, part in parts.items() if not part]
    verdict: Verdict = "not held" if against else "held so far" if missing else "held"
    words = [f"fails: {_told(against)}"] if against else []
    words += [f"{'holds: ' if against else ''}{_told(for_it)}"] if for_it else []
    words += [f"not measured: {', '.join(missing)}"] if missing else []
    return verdict if against or for_it else "not measured", "; ".join(words)


def _told(parts: list[_Pair]) -> str:
    """The errors, grouped by the row that they share: `NOTE 21.1 against Source 42.3, TENT 76.4 (seed 0)`."""
    together: dict[str, dict[str, list[str]]] = {}
    for part in parts:
        together.setdefault(part.over, {}).setdefault(part.first, []).append(part.second)
    return "; ".join(
        "; ".join(f"{low} against {', '.join(highs)}" for low, highs in sides.items()) + f" ({over})"
        for over, sides in together.items()
    )


def _said(row: str, score: Score, other: Score, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """A row with its error, and with its samples if the other row has others."""
    here = score.coverage.samples
    over = "" if here == other.coverage.samples or here is None else f" (first {here:,} samples)"
    return f"{names.get(row, VARIANTS[row].title)} {number(score.number)}{over}"


def _ranked(errors: dict[str, float]) -> tuple[str, ...]:
    return tuple(f"{VARIANTS[row].title} {errors[row]:.1f}" for row in sorted(errors, key=errors.__getitem__))


def _rank_correlation(one: dict[str, float], other: dict[str, float]) -> float:
    """Spearman's rank correlation; 0 if all values of one side are equal."""
    from scipy.stats import spearmanr

    if len(set(one.values())) == 1 or len(set(other.values())) == 1:
        return 0.0
    return float(spearmanr(list(one.values()), [other[row] for row in one]).statistic)
