"""The measured cost of fleets and of the service, from `results/benchmarks/{fleet,serve,kills}.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmark_page import figure_table
from markdown_table import markdown_table

FOLDER = Path(__file__).resolve().parents[2] / "results" / "benchmarks"
NONE = "*Not measured yet: `{}` measures it.*"
RATE = "samples/s ÷ one NOTE's"
PICTURE = (
    "![Throughput hardly depends on the number of streams; memory grows by as little as a stream needs, "
    "until streams are spilled](pictures/many-streams.svg)"
)
DEMO = "`note-tta serve --demo` (extras `serve` and `experiments`) shows a hundred simulated cameras on a dashboard."

Figures = dict[str, dict[str, Any]]


def figures(name: str, folder: Path = FOLDER) -> Figures:
    """The figures of a file by name; empty if there is no file."""
    path = folder / f"{name}.json"
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"figures": []}
    return {figure["name"]: figure for figure in content["figures"]}


def fleet_table(folder: Path = FOLDER) -> str:
    """The limits of a fleet."""
    found = [*figures("fleet", folder).values(), *_kills("fleet", folder)]
    kept = [figure for figure in found if figure["bar"] is not None]
    return figure_table(kept) if kept else NONE.format("make bench-fleet")


def serve_table(folder: Path = FOLDER) -> str:
    """The limits of the service."""
    found = [*figures("serve", folder).values(), *_kills("service", folder)]
    return figure_table(found) if found else NONE.format("python -m benchmarks.serve")


def size_table(folder: Path = FOLDER) -> str:
    """Every mix at every number of streams: samples per second against one NOTE, and how long a call takes."""
    grids = sizes(figures("fleet", folder))
    if not grids:
        return NONE.format("note-tta bench --fleet --only sizes")
    streams = [*next(iter(grids.values()))]
    rows = ((mix, *(_cell(grid[size]["fleet"]) for size in streams)) for mix, grid in grids.items())
    return markdown_table(["mix", *(f"{int(size):,}" for size in streams)], rows)


def sizes(found: Figures) -> dict[str, dict[str, Any]]:
    """What was measured at every number of streams, by mix."""
    grids: dict[str, dict[str, Any]] = {}
    for figure in found.values():
        detail = figure["detail"] or {}
        for mix, measured in detail.get("mixes", {}).items():
            grids.setdefault(mix, {})[str(detail["streams"])] = measured
    return grids


def picture(folder: Path = FOLDER) -> str:
    """The picture of the table of sizes, if there is one."""
    return PICTURE if sizes(figures("fleet", folder)) else ""


def separate_line(folder: Path = FOLDER) -> str:
    """How much a fleet is faster than methods called one by one, and what bounds it."""
    found = figures("fleet", folder)
    one = next((f for name, f in found.items() if name.endswith("separate methods one by one")), None)
    if one is None:
        return NONE.format("make bench-fleet")
    times = {name: of["p50"] for name, of in one["detail"].items()}
    limit = next((f for name, f in found.items() if "the limit" in name), None)
    end = (
        f" One NOTE at batches of 64, which makes as many updates and has no streams to keep apart, answers "
        f"{limit['value']:.2f} times as many as the methods."
        if limit is not None
        else ""
    )
    return (
        f"With 16 streams a fleet answers {one['value']:.2f} times as many samples per second as 16 methods that share "
        f"the model and are called one by one. At the median, a call of 64 samples takes the fleet "
        f"{times['fleet'] / times['source']:.1f} times as long as the model alone takes without updates, and the "
        f"methods {times['separate'] / times['source']:.1f} times ({times['fleet']:.0f}, {times['separate']:.0f} and "
        f"{times['source']:.0f} ms).{end}"
    )


def demo_line(folder: Path = FOLDER) -> str:
    """How fast the demonstration's dashboard starts."""
    found = [f for name, f in figures("serve", folder).items() if "from a fresh clone" in name]
    if not found:
        return DEMO
    return f"{DEMO} On two cores they appear after {found[0]['value']:.0f} seconds."


def _kills(of: str, folder: Path) -> list[dict[str, Any]]:
    return [figure for name, figure in figures("kills", folder).items() if name.startswith(of)]


def _cell(of: dict[str, float]) -> str:
    return f"{of[RATE]:.2f}<br>{of['p50']:.0f} / {of['p99']:.0f} ms"
