"""Tables about the watch, made from `results/benchmarks/watch.json`."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from markdown_table import markdown_table

PATH = Path(__file__).resolve().parents[2] / "results" / "benchmarks" / "watch.json"
NONE = "*Not measured yet: `python -m benchmarks.trust.watch` measures it.*"
BEARABLE = 3
"""Points of error that an attack may leave behind."""
PROMISED = 100_000
"""Samples between two false alarms."""
ACCESS = {
    "a camera that turns": "a hand on the camera; no knowledge of the model is needed",
    "a slow ramp to images times 4": "control of the camera's gain; no knowledge of the model is needed",
    "crafted by gradient": "the model, its method, source samples and every input",
}
"""What an attacker needs, if it is more or less than the control of every input."""


COLUMNS = {"digits": 3, "HAPT": 9, "ExtraSensory": 7, "MNIST-C": 15, "CIFAR10-C": 15}
"""The published correlated columns of each dataset."""


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
        f"{_beyond(part)}"
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
    return f"{words}\n\n{markdown_table(head.split(' | '), rows)}{_commits(part['rows'])}"


def _beyond(part: dict[str, Any]) -> str:
    """The attacks that do more harm than they should in spite of the watch, and what they cost the attacker."""
    listed = "; ".join(
        f"*{name}*, {_points(row['with'])} points, for {row['with']['samples']:,} samples in a row and "
        f"{ACCESS.get(name, 'control of every input')}"
        for name, row in part["rows"].items()
        if max(row["with"]["test"], row["with"]["style"]) > BEARABLE
    )
    if not listed:
        return f" No attack leaves more than {BEARABLE} points."
    control = part.get("clean_digits_instead")
    beside = (
        f" (As many clean digits instead of an attack leave {_points(control)} points.)" if control else ""
    )
    return f" More than {BEARABLE} points are left in spite of the watch by: {listed}.{beside}"


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
    return f"{words}\n\n{markdown_table(head.split(' | '), rows)}{_commits(part)}"


def published_table(path: Path = PATH) -> str:
    """What the watch costs on published streams: means over the columns, and each run with an alarm or a return."""
    part = figures("published", path)
    if not part:
        return NONE
    worst, name = max((row["with"] - row["without"], name) for name, row in part.items())
    where = f" ({name})" if worst else ""
    words = f"The watch costs at most {worst:+.2f} points of error on a column{where}. {_measured(part)}"
    head = "method, dataset | columns | samples per column | mean error without | with the watch | alarms | returns"
    rows = (
        (
            title,
            len(group),
            _span([row["samples"] for row in group if "samples" in row]),
            f"{_mean(group, 'without'):.2f} %",
            f"{_mean(group, 'with'):.2f} %",
            *(sum(row[key] for row in group) for key in ("alarms", "returns")),
        )
        for title, group in _by_dataset(part).items()
    )
    touched = [
        f"{name}: {row['without']:.2f} % without, {row['with']:.2f} % with, {row['alarms']} alarms, "
        f"{row['returns']} returns"
        for name, row in part.items()
        if row["alarms"] + row["returns"]
    ]
    listed = "; ".join(touched) if touched else "none"
    ending = f"Runs with an alarm or a return: {listed}.{_not_calibrated(part)}{_commits(part)}"
    return f"{words}\n\n{markdown_table(head.split(' | '), rows)}\n\n{ending}"


def _not_calibrated(part: dict[str, Any]) -> str:
    """What the default limits would have cost where `calibrate` raised one."""
    found = {name: row for name, row in part.items() if "not_calibrated" in row}
    if not found:
        return ""
    rows, where = found.values(), ", ".join(_by_dataset(found))
    alarms = sum(row["not_calibrated"]["alarms"] > 0 for row in rows)
    worst = max(row["not_calibrated"]["with"] - row["without"] for row in rows)
    return (
        f"\n\n`calibrate` raised a limit for some runs ({where}). With the default limits, {alarms} of these "
        f"{len(rows)} runs have an alarm, and the watch costs up to {worst:+.2f} points of error."
    )


def _measured(part: dict[str, Any]) -> str:
    """How many of the published columns were measured, and how many runs had calibrated limits."""
    columns = {tuple(name.split(", ", 2)[1:]) for name in part}
    counts = {dataset: sum(each[0] == dataset for each in columns) for dataset in COLUMNS}
    listed = ", ".join(f"{counts[dataset]} of {most} of {dataset}" for dataset, most in COLUMNS.items())
    calibrated = sum("levels" in row for row in part.values())
    return (
        f"Measured so far: {sum(counts.values())} of the {sum(COLUMNS.values())} columns ({listed}); in {calibrated} "
        f"of {len(part)} runs the watch was calibrated, in the others it had the default limits."
    )


def _by_dataset(part: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows by method and dataset, with which their names begin."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, row in part.items():
        found.setdefault(", ".join(name.split(", ", 2)[:2]), []).append(row)
    return found


def estimate_table(path: Path = PATH) -> str:
    """How far the estimate of the error is from the truth, beside AETTA and a constant guess."""
    part = figures("estimates", path)
    if not part:
        return NONE
    inside = sum(row["low"] <= row["truth"] <= row["high"] for row in part.values())
    words = f"The interval contains the truth in {inside} of {len(part)} runs."
    head = (
        "method, dataset | runs | mean error | mean absolute difference: estimate | AETTA "
        "| a constant guess, the error on the source"
    )
    groups = {**_by_dataset(part), "**all**": list(part.values())}
    rows = (
        (
            title,
            len(group),
            f"{_mean(group, 'truth'):.1f} %",
            *(f"{_off(group, key):.1f}" for key in ("estimate", "aetta", "constant")),
        )
        for title, group in groups.items()
    )
    return f"{words}\n\n{markdown_table(head.split(' | '), rows)}"


def _mean(rows: list[dict[str, Any]], key: str) -> float:
    return statistics.fmean(row[key] for row in rows)


def _off(rows: list[dict[str, Any]], key: str) -> float:
    """The mean absolute difference from the truth."""
    return statistics.fmean(abs(row["truth"] - row[key]) for row in rows)


def _span(values: list[int]) -> str:
    low, high = min(values, default=0), max(values, default=0)
    return (f"{low:,}" if low else "–") if low == high else f"{low:,} to {high:,}"


def collapse_table(path: Path = PATH) -> str:
    """When a collapse is detected."""
    part = figures("collapses", path)
    if not part:
        return NONE
    head = (
        "method, stream | error, first, worst and last window | the source model's mean "
        "| a window doubled at | a round doubled at | alarm at"
    )
    rows = (
        (
            name,
            f"{row['errors'][0]:.0f}, {max(row['errors']):.0f}, {row['errors'][-1]:.0f} %",
            f"{statistics.fmean(row['errors_of_source']):.0f} %",
            _sample(row["doubled_at"], "never"),
            _sample(_round_doubled(row), "never") if row.get("period", 1) > 1 else "–",
            _sample(row["first_alarm"], "never"),
        )
        for name, row in part.items()
    )
    return f"{markdown_table(head.split(' | '), rows)}{_commits(part)}"


def _round_doubled(row: dict[str, Any]) -> int | None:
    """The sample by which the mean error of a round through all domains is twice that of the first round."""
    errors, period = row["errors"], row["period"]
    rounds = [statistics.fmean(errors[start : start + period]) for start in range(0, len(errors), period)]
    if len(errors) % period:
        rounds.pop()
    doubled = (number for number, error in enumerate(rounds, 1) if error > 2 * rounds[0])
    number = next(doubled, None)
    return None if number is None else number * period * row["window"]


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


def _points(row: dict[str, float]) -> str:
    return f"{row['test']:+.1f}, {row['style']:+.1f}"


def _sample(value: int | None, otherwise: str) -> str:
    return f"{value:,}" if value else otherwise
