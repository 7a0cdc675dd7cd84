"""Poison a stream, then go on with a clean one: how far is the error from that of a model never poisoned?

python -m benchmarks.trust.poison
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

import note_tta as tta

from .common import BATCH, batches, clean_stream, source_model, write

LIMIT_POINTS = 2.0
PASSES = 6
"""So many passes over the clean stream a poisoned model has to return."""

SHAPE = (1, 32, 32)
Poison = Callable[[int, Tensor, Tensor, torch.Generator], Tensor]


def _filled(value: float, n: int, x: Tensor, y: Tensor, g: torch.Generator) -> Tensor:
    return torch.full((n, *SHAPE), value)


def _scaled(factor: float, n: int, x: Tensor, y: Tensor, g: torch.Generator) -> Tensor:
    return factor * x[torch.randint(len(x), (n,), generator=g)]


def _noise(factor: float, n: int, x: Tensor, y: Tensor, g: torch.Generator) -> Tensor:
    return factor * torch.rand(n, *SHAPE, generator=g)


def _pixel(value: float, n: int, x: Tensor, y: Tensor, g: torch.Generator) -> Tensor:
    spoiled = _scaled(1.0, n, x, y, g)
    spoiled[:, :, 5, 5] = value
    return spoiled


def _repeated(n: int, x: Tensor, y: Tensor, g: torch.Generator) -> Tensor:
    return x[:1].repeat(n, 1, 1, 1)


def _one_class(n: int, x: Tensor, y: Tensor, g: torch.Generator) -> Tensor:
    own = x[y == 3]
    return own[torch.randint(len(own), (n,), generator=g)]


POISONS: dict[str, Poison] = {
    "NaN": partial(_filled, torch.nan),
    "Inf": partial(_filled, torch.inf),
    "1e30": partial(_filled, 1e30),
    "1e18": partial(_filled, 1e18),
    "images times 1e5": partial(_scaled, 1e5),
    "images times 100": partial(_scaled, 100.0),
    "images times 10": partial(_scaled, 10.0),
    "images times 4 (within reach)": partial(_scaled, 4.0),
    "one pixel of 1e4": partial(_pixel, 1e4),
    "denormals (1e-40)": partial(_filled, 1e-40),
    "all black": partial(_filled, 0.0),
    "constant grey": partial(_filled, 0.5),
    "uniform noise": partial(_noise, 1.0),
    "one sample repeated": _repeated,
    "one class only": _one_class,
}


def poisoned(poison: Poison | None, samples: int, stream: tuple[Tensor, Tensor]) -> tta.NOTE:
    """A NOTE that has met a poison, in batches of changing size."""
    x, y = stream
    method = tta.NOTE(source_model("iabn"))
    generator = torch.Generator().manual_seed(7)
    left = samples
    while poison and left:
        size = min(left, int(torch.randint(1, 2 * BATCH, (), generator=generator)))
        method(poison(size, x, y, generator))
        left -= size
    return method


def error(method: tta.Method, stream: tuple[Tensor, Tensor]) -> float:
    """The error of the next pass over the clean stream."""
    return tta.evaluate(method, batches(*stream), progress=False).error


def finite(method: tta.Method) -> bool:
    """Whether all the model holds is finite."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in method.model.state_dict().values())


def main() -> int:
    """Measure every poison; the exit code is 1 where the error did not return or a value is not finite."""
    parser = argparse.ArgumentParser(prog="benchmarks.trust.poison", description=__doc__)
    parser.add_argument("--samples", type=int, default=640, help="of each poison")
    parser.add_argument("--one-class", type=int, default=10_000, help="of the one-class poison")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    stream = clean_stream()
    calm = poisoned(None, 0, stream)
    never = [error(calm, stream) for _ in range(PASSES)]
    rows, spoiled = {}, False
    for name, poison in POISONS.items():
        count = arguments.one_class if name == "one class only" else arguments.samples
        method, over = poisoned(poison, count, stream), [torch.inf]
        while over[-1] > LIMIT_POINTS and len(over) <= PASSES:
            over.append(error(method, stream) - never[len(over) - 1])
        rows[name] = {
            "samples": count,
            "points_over_never_poisoned_by_pass": [round(points, 2) for points in over[1:]],
            "clean_samples_until_within_limit": (len(over) - 2) * len(stream[1]),
            "rejected_samples": method.counters["rejected_samples"],
            "finite": finite(method),
        }
        spoiled |= not finite(method) or over[-1] > LIMIT_POINTS
        print(f"{name}: {rows[name]}", file=sys.stderr, flush=True)
    write(
        "poison",
        {
            "clean_samples_a_pass": len(stream[1]),
            "error_never_poisoned_by_pass": [round(value, 2) for value in never],
            "limit_points": LIMIT_POINTS,
            "all_returned": not spoiled,
            "within_limit_at_once": sum(not row["clean_samples_until_within_limit"] for row in rows.values()),
            "most_clean_samples_until_within_limit": max(
                row["clean_samples_until_within_limit"] for row in rows.values()
            ),
            "poisons": rows,
        },
    )
    return int(spoiled)


if __name__ == "__main__":
    sys.exit(main())
