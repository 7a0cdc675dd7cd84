"""`note-tta bench`: measures speed on this machine, in a clone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import typer

app = typer.Typer(add_completion=False)
ROOT = Path(__file__).parents[2]


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(context: typer.Context) -> None:
    """Measure speed as ratios, each against its limit; single calls with --latency, many streams with --fleet.

    All options: `python -m benchmarks --help`. Some examples:

    note-tta bench

    note-tta bench --fleet --only sizes --out sizes.json
    """
    command = [sys.executable, "-m", "benchmarks", *context.args]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
    raise typer.Exit(done.returncode)
