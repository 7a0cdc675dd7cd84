"""Kill a fleet's process and a server again and again, and write what came of it.

`python -m benchmarks.kills --out results/benchmarks/kills.json`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import torch

from ..measure import Figure, write_figures
from . import fleet, serve


def fleet_figures(kills: int) -> Iterator[Figure]:
    """After so many kills of a fleet's process."""
    for every in (1, 3):
        with tempfile.TemporaryDirectory() as folder:
            whole = fleet.whole_after(kills, Path(folder), every)
        name = (
            f"fleet, checkpoint_every={every}: of {kills} kills, those after which all {fleet.STREAMS} streams "
            f"were whole and at most {every} updates old"
        )
        yield Figure(name, *[whole] * 3, kills, at_most=False)


def serve_figures(kills: int) -> Iterator[Figure]:
    """After so many kills of a server."""
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = serve.undisturbed_after(kills, Path(folder))
    name = f"service, {kills} kills under load: streams that are as if undisturbed, of {serve.STREAMS}"
    yield Figure(name, *[undisturbed] * 3, serve.STREAMS, at_most=False)


def main() -> int:
    """Kill, print, write; the exit code is 1 where anything was lost."""
    parser = argparse.ArgumentParser(prog="benchmarks.kills", description=__doc__)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file, beside others it has")
    parser.add_argument("--fleet", type=int, default=50, help="kills of a fleet's process")
    parser.add_argument("--serve", type=int, default=30, help="kills of a server")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for figure in chain(
        fleet_figures(arguments.fleet) if arguments.fleet else (),
        serve_figures(arguments.serve) if arguments.serve else (),
    ):
        print(f"{figure.name}: {figure.value}", flush=True)
        found.append(figure)
        if arguments.out:
            write_figures(arguments.out, found, keep=True)
    return 0 if all(figure.kept for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main())
