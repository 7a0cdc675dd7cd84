"""Tables of what the watch is worth, made from `results/benchmarks/watch.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parents[2] / "results" / "benchmarks" / "watch.json"
NONE = "*Not measured yet: `python -m benchmarks.trust.watch` measures it.*"


def figures(part: str, path: Path = PATH) -> dict[str, Any]:
    """A part of the figures; empty where there are none."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    part_found: dict[str, Any] = found.get(part, {})
    return part_found


def attack_table(path: Path = PATH) -> str:
    """What each attack leaves behind, with and without the watch."""
    part = figures("attacks", path)
    if not part.get("rows"):
        return NONE
    never = part["never_attacked"]
    rows = [
        f"| {name} | {_points(row['without'])} | {_points(row['with'])} | {_delay(row)} | {row['returns']} |"
        for name, row in part["rows"].items()
    ]
    worst = max(max(row["with"].values()) for row in part["rows"].values())
    return "\n".join(
        [
            f"{part['samples']:,} samples of each attack, from the first sample of a stream on, then "
            f"{part['clean_samples_after']:,} clean samples of the domain *style*, then the error on clean digits "
            f"and on *style* in points over a NOTE that was never attacked ({never['test']:.1f} % and "
            f"{never['style']:.1f} %). "
            f"The worst figure with the watch is {worst:+.1f} points.",
            "",
            "| attack | NOTE alone: clean, style | watched: clean, style | first alarm at sample | returns |",
            "|---|---:|---:|---:|---:|",
            *rows,
        ]
    )


def honest_table(path: Path = PATH) -> str:
    """False alarms on honest streams."""
    part = figures("honest", path)
    if not part:
        return NONE
    rows = [
        f"| {name} | {row['samples']:,} | {row['samples'] / 100_000:.1f} | {row['alarms']} | {row['returns']} "
        f"| {row['resting_samples']:,} | {row['error']:.2f} % |"
        for name, row in part.items()
    ]
    return "\n".join(
        [
            "| stream | samples | alarms promised at most | alarms | returns | samples at rest | error |",
            "|---|---:|---:|---:|---:|---:|---:|",
            *rows,
        ]
    )


def estimate_table(path: Path = PATH) -> str:
    """The estimate of the error beside the truth."""
    part = figures("estimates", path)
    if not part:
        return NONE
    rows, off, constant, inside = [], 0.0, 0.0, 0
    for name, row in part.items():
        interval = f"{row['low']:.1f} to {row['high']:.1f}"
        rows.append(f"| {name} | {row['truth']:.1f} % | {row['estimate']:.1f} % | {interval} |")
        off += abs(row["truth"] - row["estimate"]) / len(part)
        constant += abs(row["truth"] - row["constant"]) / len(part)
        inside += row["low"] <= row["truth"] <= row["high"]
    return "\n".join(
        [
            f"Mean absolute difference from the truth: {off:.1f} points; of a constant guess, the source's own error: "
            f"{constant:.1f} points. The interval holds the truth in {inside} of {len(part)} cases.",
            "",
            "| method, domain | truth | estimate | interval |",
            "|---|---:|---:|---:|",
            *rows,
        ]
    )


def collapse_table(path: Path = PATH) -> str:
    """When a collapse is called."""
    part = figures("collapses", path)
    if not part:
        return NONE
    rows = []
    for name, row in part.items():
        errors = f"{row['errors'][0]:.0f} → {row['errors'][-1]:.0f} %"
        called, doubled = (f"{row[key]:,}" if row[key] else "never" for key in ("first_alarm", "doubled_at"))
        rows.append(f"| {name} | {errors} | {row['error_of_source']:.0f} % | {doubled} | {called} |")
    return "\n".join(
        [
            "| stream | error, first and last window | the source model's | doubled at sample | called at sample |",
            "|---|---:|---:|---:|---:|",
            *rows,
        ]
    )


def cost_line(path: Path = PATH) -> str:
    """What the watch costs."""
    part = figures("cost", path)
    if not part:
        return NONE
    listed = "; ".join(f"{name}: {row['percent']:+.1f} %" for name, row in part.items())
    return f"Time of a watched NOTE over that of NOTE alone, in one run, taking turns: {listed}."


def _points(row: dict[str, float]) -> str:
    return f"{row['test']:+.1f}, {row['style']:+.1f}"


def _delay(row: dict[str, Any]) -> str:
    return f"{row['first_alarm']:,}" if row["first_alarm"] else "–"
