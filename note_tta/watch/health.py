"""The health of a stream, a small value that prints as a sentence."""

from __future__ import annotations

from dataclasses import dataclass

from .estimate import Estimate
from .journal import Journal
from .tally import SILENCE, Tally

LEARNING_LOOKS = 4
"""A stream counts as new for this many looks."""
SUSPECT = 0.5
"""A stream is suspect if a signal has reached this share of its limit, or this share of its samples was refused."""


@dataclass(frozen=True)
class Health:
    """The health of a stream.

    Attributes:
        state: "learning", "steady", "drifting", "suspect" or "rolled back".
        reasons: Why, in words.
        samples: The number of samples watched.
        error: An estimate of the error; None without `source`, and before the first look.
        signals: Every signal at the last look.
    """

    state: str
    reasons: tuple[str, ...]
    samples: int
    error: Estimate | None
    signals: dict[str, float]

    @property
    def why(self) -> str:
        """The reasons and the estimate in one sentence."""
        error = [] if self.error is None else [f"error about {self.error}"]
        return "; ".join([*self.reasons, *error])

    def __str__(self) -> str:
        return f"{self.state}: {self.why}"


def judge(
    signals: dict[str, float], *, alarm: str, trouble: str, resting: bool, drifting: bool, looks: float
) -> tuple[str, tuple[str, ...]]:
    """The state of a stream and the reasons for it.

    Args:
        signals: At the last look.
        alarm: The last alarm in words.
        trouble: The trouble that is nearest to an alarm, in words.
        resting: Whether learning is paused after an alarm.
        drifting: Whether the input is unlike the source's.
        looks: The number of samples watched, in looks.
    """
    if resting:
        return "rolled back", (alarm, "learning is paused")
    differ = f"{100 * signals['disagreement']:.0f} % of the answers differ from the source model's"
    doubts = []
    if signals["strain"] >= SUSPECT:
        doubts.append(trouble)
    if signals["unlearned"] >= SUSPECT:
        doubts.append(f"{100 * signals['unlearned']:.0f} % of the samples are too far off to be learned from")
    if signals["undone"] >= SUSPECT:
        doubts.append(f"{100 * signals['undone']:.0f} % of the updates were undone")
    if doubts:
        return "suspect", tuple(doubts)
    if drifting:
        return "drifting", ("the input is not like the source's", differ)
    return "learning" if looks < LEARNING_LOOKS else "steady", (differ,)


def tell_health(tally: Tally, journal: Journal, *, look: int, first_look: int) -> Health:
    """The health of a stream, from what was counted and from the last look.

    Args:
        tally: What was counted.
        journal: The looks and events.
        look: Samples between two looks.
        first_look: The sample of the first look.
    """
    signals, resting = journal.latest(), tally.resting_since is not None
    if tally.unanswered >= SILENCE and not resting:
        reason = f"the last {tally.unanswered:,} samples were answered with NaN"
        return Health("suspect", (reason,), tally.samples, None, signals)
    if not signals and not resting:
        reason = f"{tally.samples:,} samples so far, the first look is at {first_look:,}"
        return Health("learning", (reason,), tally.samples, None, {})
    state, reasons = judge(
        signals,
        alarm=journal.last_cause("alarm"),
        trouble=tally.trouble,
        resting=resting,
        drifting=tally.drifting,
        looks=tally.samples / look,
    )
    ends = ("error", "error_low", "error_high")
    error = Estimate(*(signals[end] for end in ends)) if "error" in signals else None
    shown = {name: value for name, value in signals.items() if ":" not in name}
    return Health(state, reasons, tally.samples, error, shown)
