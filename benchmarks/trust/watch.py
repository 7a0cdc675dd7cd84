"""What the watch is worth: attacks with and without it, false alarms, collapse, and its estimate of the error.

python -m benchmarks.trust.watch --only attacks

Each part writes its figures into results/benchmarks/watch.json as it goes and leaves the others' alone.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import note_tta as tta
from note_tta.models import build_model

from .common import BATCH, TREE, source_model
from .figures import read, write
from .watch_cases import COLLAPSES, WINDOW
from .watch_published import published
from .watch_streams import (
    ATTACKS,
    Pool,
    at_size,
    clean_digits,
    correlated,
    drifting,
    pool,
    small_model,
    source_batches,
)

PATH = TREE / "results" / "benchmarks" / "watch.json"
CLEAN_AFTER = 1000
"""Clean samples after an attack, before the error is measured."""
LENGTHS = (2_560, 5_120)
"""Lengths at which an attack may end too."""
STREAM = 50_000
"""Samples of one honest stream; then another one begins."""
COUNTED = ("samples", "wrong", "streams", "alarms", "returns", "resting_samples")
TURN, TURNS = 1024, 8
"""Samples per turn, and turns that each of two methods is timed for after a first one."""

Stream = Callable[[int, int], Iterable[Pool]]
HONEST: dict[str, Stream] = {"like the source": partial(correlated, "test"), "drifting": drifting}
"""Each makes so many samples from a seed."""


def main() -> int:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(prog="benchmarks.trust.watch", description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--samples", type=int, default=10_000, help="of each attack")
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS))
    parser.add_argument("--cases", nargs="+", help="collapses, published datasets or costs; all by default")
    parser.add_argument(
        "--honest", type=int, nargs=2, default=[50_000, 450_000], help="samples of each, at 32x32 and at 8x8"
    )
    parser.add_argument("--out", type=Path, default=PATH)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("note_tta.watch").setLevel(logging.ERROR)
    for part in arguments.only:
        PARTS[part](arguments)
    return 0


def attacks(arguments: argparse.Namespace) -> None:
    """The error on clean samples after each attack, with the watch, then without it."""
    never = after(note())
    write(
        arguments.out,
        ("attacks",),
        {
            "clean_samples_after": CLEAN_AFTER,
            "never_attacked": never,
            "clean_digits_instead": harm(note(), clean_digits(arguments.samples), never),
        },
    )
    for name in arguments.attacks:
        x, watch = ATTACKS[name](arguments.samples), watched()
        row: dict[str, Any] = {"samples": len(x), "with": harm(watch, x, never)}
        row["first_alarm"] = next((event.samples for event in watch.alarms), None)
        row |= {key: watch.tally.counts[key] for key in ("alarms", "returns")}
        row["cause"] = watch.alarms[0].cause if watch.alarms else ""
        write(arguments.out, ("attacks", "rows", name), row)
    for name in arguments.attacks:
        x = ATTACKS[name](arguments.samples)
        before = read(arguments.out, "attacks")["rows"][name].get("without", {})
        if before.get("longest") != len(x):  # NOTE alone is not measured twice
            write(arguments.out, ("attacks", "rows", name), {"without": harm(note(), x, never)})


def harm(method: Any, x: Tensor, never: dict[str, float]) -> dict[str, float]:
    """Points of error over a method that was never attacked, after an attack and some clean samples.

    An attack can end at any time: of some lengths, and of those just before an alarm, this is the one that does most
    harm.
    """
    found, seen = [], 0
    for part in x.split(BATCH):
        before, alarms = method.fork(), len(_alarms(method))
        method(part)
        ends = {seen: before} if len(_alarms(method)) > alarms else {}
        seen += len(part)
        if seen in LENGTHS or seen == len(x):
            ends[seen] = method.fork()
        for samples, left in ends.items():
            learned = after(left)
            points = {domain: round(learned[domain] - never[domain], 2) for domain in learned}
            found.append({"longest": len(x), "samples": samples, **points})
    return max(found, key=lambda each: max(each["test"], each["style"]))


def _alarms(method: Any) -> list[Any]:
    return list(getattr(method, "alarms", []))


def honest(arguments: argparse.Namespace) -> None:
    """False alarms on clean and on honestly drifting correlated streams, in turn; goes on where it stopped."""
    for size, wanted in zip((32, 8), arguments.honest, strict=True):
        if not wanted:
            continue
        first = tta.Watch(
            tta.NOTE(source_model("iabn") if size == 32 else small_model("iabn")),
            source=at_size(source_batches(), size),
        )
        first.calibrate(at_size(source_batches(), size))
        names = {kind: f"digits of {size}x{size}, {kind}" for kind in HONEST}
        done = dict.fromkeys(names, 0)
        while min(done.values()) < wanted:
            for kind, name in names.items():
                done[kind] = _honest_stream(first, HONEST[kind], size, wanted, name, arguments.out)


def _honest_stream(first: Any, stream: Stream, size: int, wanted: int, name: str, out: Path) -> int:
    """Put one more stream to a twin of a watch and add its figures to a row, unless that has enough samples."""
    row = read(out, "honest").get(name) or dict.fromkeys(COUNTED, 0)
    if row["samples"] >= wanted:
        return int(row["samples"])
    watch = first.fork()
    for x, y in at_size(stream(min(STREAM, wanted - row["samples"]), 1000 + 100 * row["streams"]), size):
        row["wrong"] += int((watch(x).argmax(1) != y).sum())
        row["samples"] += len(y)
    row["streams"] += 1
    row |= {key: row[key] + watch.tally.counts[key] for key in ("alarms", "returns", "resting_samples")}
    row["error"] = round(100 * row["wrong"] / row["samples"], 3)
    row["causes"] = [*row.get("causes", []), *map(str, watch.alarms)]
    row["levels"] = {key: round(value, 3) for key, value in first.reference.levels.items()}
    write(out, ("honest", name), row)
    return int(row["samples"])


def collapses(arguments: argparse.Namespace) -> None:
    """When the collapse of a method is called, beside its error until then."""
    for name, case in COLLAPSES.items():
        if arguments.cases and name not in arguments.cases:
            continue
        watch = tta.Watch(case.make(), source=case.source(), rollback=False)
        alone = tta.Source(watch.inner.backbone.module)
        wrong, lost = [], []
        for x, y in case.stream():
            wrong.append(watch(x).argmax(1) != y)
            lost.append(alone(x).argmax(1) != y)
        ours, theirs = (torch.cat(each).float().split(WINDOW) for each in (wrong, lost))
        errors = [round(100 * float(part.mean()), 1) for part in ours]
        frozen = [round(100 * float(part.mean()), 1) for part in theirs]
        row = {
            "window": WINDOW,
            "period": case.period,
            "errors": errors,
            "errors_of_source": frozen,
            "first_alarm": next((event.samples for event in watch.alarms), None),
            "cause": watch.alarms[0].cause if watch.alarms else "",
            "doubled_at": case.doubled(errors, frozen),
        }
        write(arguments.out, ("collapses", name), row)


def cost(arguments: argparse.Namespace) -> None:
    """The processor time of a watched NOTE over that of NOTE alone.

    Both take turns batch by batch. A look falls into each turn of 1,024 samples, so the same batches do the same work
    in every turn: of each the least time counts, which other work on the machine disturbs least.
    """
    torch.manual_seed(0)
    digits = source_model("iabn"), pool("test")[0][:TURN]
    resnet = build_model("resnet20", 10, norm="iabn").eval(), torch.rand(TURN, 3, 32, 32)
    for name, (model, x), sizes in (
        ("digits network", digits, (BATCH, 1)),
        ("ResNet-20", resnet, (BATCH, 1)),
    ):
        for size in sizes:
            if arguments.cases and f"{name}, batches of {size}" not in arguments.cases:
                continue
            watch = tta.Watch(tta.NOTE(model), source=[x[:128]], tolerance=0.99, rollback=False, look=TURN)
            both = [tta.NOTE(model), watch]
            least = torch.full((2, TURN // BATCH), torch.inf, dtype=torch.float64)
            for turn in range(TURNS + 1):
                for number, samples in enumerate(x.split(BATCH)):
                    for which in (0, 1) if (turn + number) % 2 else (1, 0):
                        start = time.process_time()
                        for part in samples.split(size):
                            both[which](part)
                        if turn:
                            spent = torch.tensor(time.process_time() - start, dtype=torch.float64)
                            least[which, number] = torch.minimum(least[which, number], spent)
            alone, watched = least.sum(dim=1).tolist()
            row = {
                "percent": round(100 * (watched / alone - 1), 2),
                "samples_between_looks": TURN,
                "turns": TURNS,
            }
            write(arguments.out, ("cost", f"{name}, batches of {size}"), row)


def note() -> tta.NOTE:
    """The paper's NOTE on the small digits model."""
    return tta.NOTE(source_model("iabn"))


@cache
def _calibrated() -> Any:
    watch = tta.Watch(note(), source=source_batches())
    watch.calibrate(source_batches())
    return watch


def watched() -> Any:
    """The same, watched, with 1,200 labelled source samples, and calibrated on them."""
    return _calibrated().fork()


def after(method: Any) -> dict[str, float]:
    """The error on two domains after some clean samples, by a fork that learns nothing more."""
    for x, _ in correlated("style", CLEAN_AFTER, 70):
        method(x)
    fork = method.fork()
    fork.pause()
    return {domain: error(fork, pool(domain)) for domain in ("test", "style")}


def error(method: Callable[[Tensor], Tensor] | nn.Module, samples: Pool) -> float:
    """In percent."""
    x, y = samples
    answers = torch.cat([method(part).argmax(1) for part in x.split(BATCH)])
    return round(100 * float((answers != y).float().mean()), 2)


PARTS = {
    "attacks": attacks,
    "collapses": collapses,
    "honest": honest,
    "published": published,
    "cost": cost,
}

if __name__ == "__main__":
    sys.exit(main())
