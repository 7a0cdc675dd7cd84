"""The paper's claims, checked against results: a verdict with its evidence.

A claim about several methods has "held so far" if some of them were not run and all others agree with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from ..data import DATASETS
from ..experiments.experiment import Point
from ..experiments.variants import BASELINES, METHOD_ROWS, VARIANTS
from .coverage import coverage_text, stream_title, usual
from .markdown_tables import number
from .scores import Score, Scores, Setup

Verdict = Literal["held", "held so far", "not held", "not measured", "does not apply"]

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


@dataclass(frozen=True)
class Claim:
    """A claim on one dataset with one setup.

    Attributes:
        id: Its roman number.
        subject: The dataset and the setup.
        verdict: Whether it held.
        evidence: The numbers.
    """

    id: str
    subject: str
    verdict: Verdict
    evidence: str


@dataclass(frozen=True)
class Ordering:
    """The methods of one column from best to worst, ours and the paper's.

    Attributes:
        subject: The dataset, the stream and the setup.
        ours: Names with errors, lowest first.
        apart: Methods over other samples, domains or seeds, which have no place in the order.
        paper: The paper's order of the rows that both have; empty if it has none.
        agreement: Spearman's rank correlation of the two; None if there is nothing to compare.
    """

    subject: str
    ours: tuple[str, ...]
    apart: tuple[str, ...]
    paper: tuple[str, ...]
    agreement: float | None


class _Comparison(NamedTuple):
    """Two rows over what both have. The claim is that `lower` has the lower error."""

    lower: str
    higher: str
    low: Score
    high: Score
    over: str

    @property
    def holds(self) -> bool:
        return self.low.number.mean < self.high.number.mean

    @property
    def gap(self) -> float:
        return self.low.number.mean - self.high.number.mean


Compare = Callable[..., _Comparison | None]
"""Compares two rows of one setup, by default on correlated streams."""


def _compare(
    scores: Scores, setup: Setup, lower: str, higher: str, streams: tuple[str, str] = ("correlated",) * 2
) -> _Comparison | None:
    pair = scores.pair(setup.row(lower, Point(streams[0])), setup.row(higher, Point(streams[1])))
    if pair is None:
        return None
    low, high = pair
    shared = low.coverage
    if shared.samples != high.coverage.samples:
        shared = shared._replace(samples=None)
    return _Comparison(lower, higher, low, high, coverage_text(setup.dataset, shared, brief=True))


def check_claims(scores: Scores) -> list[Claim]:
    """Check every claim on every dataset and setup that has correlated results."""
    claims = []
    for setup in scores.setups():
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
    orders = (
        _ordering(scores, setup, stream) for setup in scores.setups() for stream in ("correlated", "iid")
    )
    return [order for order in orders if order]


def _ordering(scores: Scores, setup: Setup, stream: str) -> Ordering | None:
    """The order of a column. A method over other samples than most has no place in it."""
    rows = [*METHOD_ROWS, *(["note_iid"] if stream == "iid" else [])]
    found = {row: score for row in rows if (score := scores.of(setup.row(row, Point(stream))))}
    if len(found) < 2:
        return None
    shared = usual([score.coverage for score in found.values()])
    errors = {row: score.number.mean for row, score in found.items() if score.coverage == shared}
    paper = {row: value.mean for row in errors if (value := setup.paper(stream, row))}
    return Ordering(
        f"{DATASETS[setup.dataset].title}, {stream_title(stream, setup.dataset).lower()}"
        + (f" · {setup.label}" if setup.label else ""),
        _ranked(errors),
        tuple(
            f"{_said(row, score, score)} ({coverage_text(setup.dataset, score.coverage, brief=True)})"
            for row, score in found.items()
            if row not in errors
        ),
        _ranked(paper) if len(paper) > 1 else (),
        _rank_correlation({row: errors[row] for row in paper}, paper) if len(paper) > 2 else None,
    )


def _note_is_steady(compare: Compare) -> tuple[Verdict, str]:
    part = compare("note", "note", ("correlated", "iid"))
    if part is None:
        return "not measured", "NOTE was not run on both streams"
    both = f"{number(part.low.number)} correlated, {number(part.high.number)} i.i.d."
    held = abs(part.gap) < STEADY_POINTS
    return ("held" if held else "not held"), f"{both}: {abs(part.gap):.2f} points apart ({part.over})"


def _parts_help(compare: Compare) -> tuple[Verdict, str]:
    wanted = (("iabn", "source"), ("pbrs", "source"), ("note", "iabn"), ("note", "pbrs"))
    titles = {row: _TOGETHER.get(row, VARIANTS[row].title) for row in ("source", "iabn", "pbrs", "note")}
    return _all({f"{titles[a]} against {titles[b]}": compare(a, b) for a, b in wanted}, _TOGETHER)


def _pbrs_against_rs(setup: Setup, compare: Compare) -> tuple[Verdict, str]:
    part = compare("note", "iabn_rs")
    if part is None:
        return "not measured", "IABN+RS was not run"
    held = round(part.low.number.mean, 1) <= round(part.high.number.mean, 1)
    text = _told([part], _TOGETHER)
    papers = [setup.paper("correlated", row) for row in ("note", "iabn_rs")]
    if papers[0] and papers[1]:
        text += f"; in the paper: {number(papers[0])} against {number(papers[1])}"
    return ("held" if held else "not held"), text


def _note_iid_competes(compare: Compare) -> tuple[Verdict, str]:
    parts = {row: compare("note_iid", row, ("iid", "iid")) for row in BASELINES}
    measured = [part for part in parts.values() if part]
    if not measured:
        return "not measured", "NOTE* or the baselines were not run on an i.i.d. stream"
    part = max(measured, key=lambda part: part.gap)
    ours, theirs = _said("note_iid", part.low, part.high), _said(part.higher, part.high, part.low)
    text = f"{ours}, the best baseline {theirs}: {part.gap:+.2f} points ({part.over})"
    missing = [VARIANTS[row].title for row in BASELINES if not parts[row]]
    text += f" (not measured: {', '.join(missing)})" if missing else ""
    return ("held" if part.gap <= COMPETITIVE_POINTS else "not held"), text.replace("-", "−")


def _all(parts: dict[str, _Comparison | None], names: dict[str, str] | None = None) -> tuple[Verdict, str]:
    """Held if every part holds. Evidence against it comes first, what is missing comes last."""
    against = [part for part in parts.values() if part and not part.holds]
    for_it = [part for part in parts.values() if part and part.holds]
    missing = [
        VARIANTS[name].title if name in VARIANTS else name for name, part in parts.items() if part is None
    ]
    verdict: Verdict = "not held" if against else "held so far" if missing else "held"
    verdict = verdict if against or for_it else "not measured"
    words = [f"fails: {_told(against, names)}"] if against else []
    words += [f"{'holds: ' if against else ''}{_told(for_it, names)}"] if for_it else []
    words += [f"not measured: {', '.join(missing)}"] if missing else []
    return verdict, "; ".join(words)


def _told(parts: list[_Comparison], names: dict[str, str] | None = None) -> str:
    """The errors, grouped by the row that they share: `NOTE 21.1 against Source 42.3, TENT 76.4 (seed 0)`."""
    together: dict[str, dict[str, list[str]]] = {}
    for part in parts:
        low = _said(part.lower, part.low, part.high, names)
        high = _said(part.higher, part.high, part.low, names)
        together.setdefault(part.over, {}).setdefault(low, []).append(high)
    return "; ".join(
        "; ".join(f"{low} against {', '.join(highs)}" for low, highs in sides.items()) + f" ({over})"
        for over, sides in together.items()
    )


def _said(row: str, score: Score, other: Score, names: dict[str, str] | None = None) -> str:
    """A row with its error, and with its samples if the other row has others."""
    name = (names or {}).get(row, VARIANTS[row].title)
    here = score.coverage.samples
    over = "" if here == other.coverage.samples or here is None else f" (first {here:,} samples)"
    return f"{name} {number(score.number)}{over}"


def _ranked(errors: dict[str, float]) -> tuple[str, ...]:
    return tuple(
        f"{VARIANTS[row].title} {errors[row]:.1f}" for row in sorted(errors, key=lambda row: errors[row])
    )


def _rank_correlation(one: dict[str, float], other: dict[str, float]) -> float:
    """Spearman's rank correlation; 0 if all values of one side are equal."""
    from scipy.stats import spearmanr

    if len(set(one.values())) == 1 or len(set(other.values())) == 1:
        return 0.0
    return float(spearmanr(list(one.values()), [other[row] for row in one]).statistic)
