"""`note-tta bench`: speed as ratios, each against its bar."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def bench(
    out: Annotated[
        Path | None, typer.Option(help="JSON to write; by default results/benchmarks/speed.json.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Rounds of each comparison.")] = 25,
    samples: Annotated[int, typer.Option(help="Length of the stream.")] = 1024,
    threads: Annotated[int | None, typer.Option(help="Threads to compute with; by default all.")] = None,
    only: Annotated[str | None, typer.Option(help="Measure one part: layers or adaptation.")] = None,
) -> None:
    """Measure every figure side by side with its baseline; the exit code is 1 where a bar is missed.

    Takes several minutes and wants an otherwise idle machine. Examples:

        note-tta bench

        note-tta bench --only layers --repeats 9
    """
    if only not in (None, "layers", "adaptation"):
        raise ValueError(f"only must be layers or adaptation, got {only!r}")
    for name, value, least in (
        ("repeats", repeats, 1),
        ("samples", samples, 64),
        ("threads", threads or 1, 1),
    ):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    root = source_tree()
    if out is None and only is None:
        out = root / "results" / "benchmarks" / "speed.json"
    command = [sys.executable, "-m", "benchmarks", "--repeats", str(repeats), "--samples", str(samples)]
    command += [] if threads is None else ["--threads", str(threads)]
    command += [] if only is None else ["--only", only]
    command += [] if out is None else ["--out", str(out.resolve())]
    raise typer.Exit(subprocess.run(command, cwd=root, check=False).returncode)


def source_tree() -> Path:
    """The folder that holds `benchmarks/`; a wheel does not carry it.

    Raises:
        FileNotFoundError: This is an installed wheel.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / "benchmarks" / "__main__.py").is_file():
        raise FileNotFoundError(
            f"{root / 'benchmarks'} does not exist: the benchmarks are part of the source tree, "
            "not of the wheel; clone the repository and run `make bench` there"
        )
    return root
