"""Measure everything, print a table, write JSON, and fail where a bar is missed."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from note_tta.methods.background import can_step_aside
from note_tta.nn import native

from . import adaptation, fleet, latency, layers
from .measure import Figure, write_figures


def main() -> int:
    """Run the benchmark; the exit code is 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--repeats", type=int, default=25, help="rounds of each comparison")
    parser.add_argument("--samples", type=int, default=1024, help="length of the stream")
    parser.add_argument("--frames", type=int, default=1000, help="calls whose latency is measured")
    parser.add_argument("--threads", type=int, help="threads to compute with")
    parser.add_argument("--latency", action="store_true", help="measure single calls instead")
    parser.add_argument("--fleet", action="store_true", help="measure many streams instead")
    parser.add_argument("--ticks", type=int, default=64, help="calls of a fleet in each comparison")
    parser.add_argument("--spill", type=Path, help="a folder for 10,000 streams, kept for the next time")
    parser.add_argument("--weights", type=Path, help="a ResNet-20 of CIFAR-10, to compare real streams too")
    parser.add_argument("--only", nargs="+", help="measure these parts only, and keep the others in --out")
    arguments = parser.parse_args()
    parts = _parts(arguments)
    if unknown := set(arguments.only or ()) - set(parts):
        parser.error(f"--only must be among {', '.join(parts)}, got {', '.join(sorted(unknown))}")
    if not arguments.only:
        return _one_after_another(list(parts), arguments.out)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    console = Console(width=None if sys.stdout.isatty() else 120)
    status = Console(stderr=True)
    found = []
    for name in arguments.only:
        for figure in parts[name]():
            found.append(figure)
            status.print(f"  {figure.name}: {_shown(figure.value, figure)}", highlight=False)
            if arguments.out:
                _write(arguments.out, found, arguments)
    console.print(_table(found))
    if arguments.out:
        console.print(f"written to {arguments.out}", highlight=False)
    missed = [figure for figure in found if not figure.kept]
    for figure in missed:
        console.print(f"missed: {figure.name}", style="red", highlight=False)
    return 1 if missed else 0


def _one_after_another(parts: list[str], out: Path | None) -> int:
    """Measure each part in a process of its own, so that what others did to memory makes no difference."""
    if out:
        out.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks", *sys.argv[1:], "--only"]
    codes = [subprocess.run([*command, part], check=False).returncode for part in parts]
    return int(any(codes))


def _parts(arguments: argparse.Namespace) -> dict[str, Callable[[], Iterator[Figure]]]:
    if arguments.fleet:
        return fleet.parts(arguments.ticks, arguments.spill, arguments.weights)
    if arguments.latency:
        return latency.parts(arguments.frames)
    return {
        "layers": lambda: layers.figures(arguments.repeats),
        **adaptation.parts(arguments.repeats, arguments.samples),
    }


def _shown(value: float, figure: Figure) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}{' ' + figure.unit if figure.unit else ''}"


def _table(figures: list[Figure]) -> Table:
    table = Table(title=f"Speed on {torch.get_num_threads()} threads: medians, quartiles and bars")
    for column, justify in (
        ("figure", "left"),
        ("median", "right"),
        ("quartiles", "right"),
        ("bar", "right"),
    ):
        table.add_column(column, justify=justify)
    table.add_column("")
    for figure in figures:
        bar = "" if figure.bar is None else f"{'≤' if figure.at_most else '≥'} {_shown(figure.bar, figure)}"
        verdict = "" if figure.bar is None else "[green]kept[/]" if figure.kept else "[red]missed[/]"
        spread = f"{_shown(figure.low, figure)} – {_shown(figure.high, figure)}"
        table.add_row(figure.name, _shown(figure.value, figure), spread, bar, verdict)
    return table


def _write(path: Path, figures: list[Figure], arguments: argparse.Namespace) -> None:
    kernel = native.kernel()
    run = {
        "kernel": {"active": kernel.active, "instruction_set": kernel.isa, "threads": kernel.threads},
        "repeats": arguments.repeats,
        "samples": arguments.samples,
        "updates step aside": can_step_aside(),
    }
    write_figures(path, figures, keep=True, **run)


if __name__ == "__main__":
    sys.exit(main())
