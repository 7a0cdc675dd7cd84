"""Tables about the watch, made from `results/benchmarks/watch.json`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parents[2] / "results" / "benchmarks" / "watch.json"
NONE = "*Not measured yet: `python -m benchmarks.trust.watch` measures it.*"
BEARABLE = 3
"""Points of error that an attack may leave behind."""
PROMISED = 100_000
"""Samples between two false alarms."""


def figures(part: str, path: Path = PATH) -> dict[str, Any]:
    """A part of the figures; empty if there are none."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    part_found: dict[str, Any] = found.get(part, {})
    return part_found


def attack_table(path: Path = PATH) -> str:
    """What each attack leaves behind, with and without the watch."""
    part = figures("attacks", path)
    if not part.get("rows"):
        return NONE
    never = part["never_attacked"]
    worst = max(max(row["with"][domain] for domain in never) for row in part["rows"].values())
    words = (
        f"A stream begins with the attack. After it come {part['clean_samples_after']:,} clean samples of the "
        "domain *style*. Then the error is measured on clean digits and on *style*, in points above a NOTE that "
        f"was never attacked ({never['test']:.1f} % and {never['style']:.1f} %). An attack may be shorter: of the "
        "lengths that were tried, the figure is for the one that does most harm. The worst figure with the watch "
        f"is {worst:+.1f} points. A return during the clean samples after the attack is not counted here."
        f"{_beyond(part['rows'])}"
    )
    head = (
        "attack | samples | NOTE alone: clean, style | after | watched: clean, style | after "
        "| first alarm at sample | returns during the attack"
    )
    rows = (
        (
            name,
            f"{row['samples']:,}",
            _points(row["without"]),
            f"{row['without']['samples']:,}",
            _points(row["with"]),
            f"{row['with']['samples']:,}",
            _sample(row["first_alarm"], "–"),
            row["returns"],
        )
        for name, row in part["rows"].items()
    )
    return f"{words}\n\n{_table(head, rows)}{_commits(part['rows'])}"


def _beyond(rows: dict[str, Any]) -> str:
    """The attacks that do more harm than they should in spite of the watch, and what they cost the attacker."""
    listed = "; ".join(
        f"*{name}*, {row['with']['samples']:,} samples ({_points(row['with'])} points)"
        for name, row in rows.items()
        if max(row["with"]["test"], row["with"]["style"]) > BEARABLE
    )
    return f" More than {BEARABLE} points are left in spite of the watch by: {listed}." if listed else ""


def _commits(rows: dict[str, Any]) -> str:
    """Which rows were measured at which commit, if there are several."""
    found: dict[str, list[str]] = {}
    for name, row in rows.items():
        found.setdefault(row["commit"][:7], []).append(name)
    listed = "; ".join(f"`{commit}`: {', '.join(names)}" for commit, names in found.items())
    return f"\n\nMeasured at several commits of the library: {listed}." if len(found) > 1 else ""


def honest_table(path: Path = PATH) -> str:
    """False alarms on honest streams."""
    part = figures("honest", path)
    if not part:
        return NONE
    samples, alarms = (sum(row[key] for row in part.values()) for key in ("samples", "alarms"))
    words = f"In all {samples:,} samples there were {alarms} alarms; at most {samples / PROMISED:.1f} were promised."
    head = "stream | samples | alarms promised at most | alarms | returns | samples without learning | error"
    rows = (
        (
            name,
            f"{row['samples']:,}",
            f"{row['samples'] / PROMISED:.1f}",
            row["alarms"],
            row["returns"],
            f"{row['resting_samples']:,}",
            f"{row['error']:.2f} %",
        )
        for name, row in part.items()
    )
    return f"{words}\n\n{_table(head, rows)}{_commits(part)}"


def published_table(path: Path = PATH) -> str:
    """What the watch costs on published streams."""
    part = figures("published", path)
    if not part:
        return NONE
    worst = max(row["with"] - row["without"] for row in part.values())
    words = f"The watch costs at most {worst:+.2f} points of error on these."
    head = "method, stream | error without | with the watch | alarms | returns"
    rows = (
        (name, f"{row['without']:.2f} %", f"{row['with']:.2f} %", row["alarms"], row["returns"])
        for name, row in part.items()
    )
    return f"{words}\n\n{_table(head, rows)}{_commits(part)}"


def estimate_table(path: Path = PATH) -> str:
    """The estimate of the error beside the truth."""
    part = figures("estimates", path)
    if not part:
        return NONE
    ours, aetta, constant = (
        statistics.fmean(abs(row["truth"] - row[key]) for row in part.values())
        for key in ("estimate", "aetta", "constant")
    )
    inside = sum(row["low"] <= row["truth"] <= row["high"] for row in part.values())
    words = (
        f"Mean absolute difference from the truth over {len(part)} runs: {ours:.1f} points; of AETTA: {aetta:.1f}; "
        f"of a constant guess, the source's own error: {constant:.1f}. "
        f"The interval contains the truth in {inside} of them."
    )
    head = "method, stream | truth | estimate | interval | AETTA"
    rows = (
        (
            name,
            f"{row['truth']:.1f} %",
            f"{row['estimate']:.1f} %",
            f"{row['low']:.1f} to {row['high']:.1f}",
            f"{row['aetta']:.1f} %",
        )
        for name, row in part.items()
    )
    return f"{words}\n\n{_table(head, rows)}"


def collapse_table(path: Path = PATH) -> str:
    """When a collapse is detected."""
    part = figures("collapses", path)
    if not part:
        return NONE
    head = "method, stream | error, first, worst and last window | the source model's mean | doubled at | alarm at"
    rows = (
        (
            name,
            f"{row['errors'][0]:.0f}, {max(row['errors']):.0f}, {row['errors'][-1]:.0f} %",
            f"{statistics.fmean(row['errors_of_source']):.0f} %",
            _sample(row["doubled_at"], "never"),
            _sample(row["first_alarm"], "never"),
        )
        for name, row in part.items()
    )
    return f"{_table(head, rows)}{_commits(part)}"


def cost_line(path: Path = PATH) -> str:
    """What the watch costs."""
    part = figures("cost", path)
    if not part:
        return NONE
    listed = "; ".join(f"{name}: {row['percent']:+.1f} %" for name, row in part.items())
    mean = statistics.fmean(row["percent"] for row in part.values())
    return (
        f"Additional processor time of a watched NOTE, compared with NOTE alone, in turns batch by batch: {listed}. "
        f"The mean is {mean:+.1f} %."
    )


def _table(head: str, rows: Iterable[Iterable[object]]) -> str:
    """A table whose first column is words and whose others are numbers."""
    line = "|---" + "|---:" * head.count("|") + "|"
    return "\n".join([f"| {head} |", line, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def _points(row: dict[str, float]) -> str:
    return f"{row['test']:+.1f}, {row['style']:+.1f}"


def _sample(value: int | None, otherwise: str) -> str:
    return f"{value:,}" if value else otherwise
