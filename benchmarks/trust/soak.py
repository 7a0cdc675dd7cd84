"""A million samples through NOTE on a tiny model: memory must not grow, and a sample must not cost more.

python -m benchmarks.trust.soak
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import note_tta as tta

from .common import BATCH, write

LIMIT_MB = 5.0
WARM_UP = 50_000


def tiny_model() -> nn.Module:
    """A convolution, IABN and a classifier over 1x8x8 inputs."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)
    )
    return tta.convert_iabn(model).eval()


def resident_mb() -> float:
    """What of this process is in memory now, in MB (2^20 bytes)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/self/status does not tell the resident size")


def soak(samples: int, warm_up: int = WARM_UP, marks: int = 20) -> dict[str, Any]:
    """Run a drifting stream and look at memory and time at even distances after the warm-up.

    Growth is the highest of the later readings over the reading at the end of the warm-up.
    """
    method = tta.NOTE(tiny_model())
    generator = torch.Generator().manual_seed(0)
    readings: list[float] = []
    microseconds: list[float] = []
    every = (samples - warm_up) // BATCH // marks
    base, spent, calls = 0.0, 0.0, 0
    for batch in range(samples // BATCH):
        drift = batch * BATCH / samples
        x = torch.rand(BATCH, 1, 8, 8, generator=generator) * (1 + drift) + drift
        before = time.process_time()
        method(x)
        spent, calls = spent + time.process_time() - before, calls + 1
        if batch + 1 == warm_up // BATCH:
            gc.collect()
            base, spent, calls = resident_mb(), 0.0, 0
        elif base and calls == every:
            readings.append(resident_mb())
            microseconds.append(1e6 * spent / (calls * BATCH))
            spent, calls = 0.0, 0
    third = len(microseconds) // 3
    return {
        "samples": method.counters["samples"],
        "updates": method.counters["updates"],
        "rejected_updates": method.counters["rejected_updates"],
        "warm_up_samples": warm_up,
        "resident_mb_after_warm_up": round(base, 2),
        "growth_mb": round(max(readings) - base, 2),
        "limit_mb": LIMIT_MB,
        "cpu_microseconds_a_sample": [round(value, 1) for value in microseconds],
        "last_third_over_first_third": round(
            statistics.median(microseconds[-third:]) / statistics.median(microseconds[:third]), 3
        ),
    }


def main() -> int:
    """Soak, write the figures; the exit code is 1 where memory grew over the limit."""
    parser = argparse.ArgumentParser(prog="benchmarks.trust.soak", description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures = soak(arguments.samples)
    write("soak", figures)
    return int(figures["growth_mb"] >= LIMIT_MB)


if __name__ == "__main__":
    sys.exit(main())
