"""What the watch is worth: attacks with and without it, false alarms, collapse, and its estimate of the error.

python -m benchmarks.trust.watch --only attacks

Each part writes its figures into results/benchmarks/watch.json as it goes and leaves the others' alone.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import note_tta as tta
from note_tta.models import build_model
from note_tta.provenance import provenance

from .common import BATCH, TREE, source_model
from .watch_streams import ATTACKS, DOMAINS, Pool, correlated, drifting, pool, source_batches

PATH = TREE / "results" / "benchmarks" / "watch.json"
CLEAN_AFTER = 1000
"""Clean samples after an attack, before the error is measured."""
WINDOW = 512
"""Samples over which the error is taken while a method collapses."""
TURN, TURNS = 1024, 3
"""Samples per turn, and turns that each of two methods is timed for."""

Make = Callable[[], Any]


def main() -> int:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(prog="benchmarks.trust.watch", description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--samples", type=int, default=10_000, help="of each attack")
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS))
    parser.add_argument("--honest", type=int, default=100_000, help="samples of each honest stream")
    parser.add_argument("--out", type=Path, default=PATH)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("note_tta.watch").setLevel(logging.ERROR)
    for part in arguments.only:
        PARTS[part](arguments)
    return 0


def attacks(arguments: argparse.Namespace) -> None:
    """The error on clean samples after each attack, with and without the watch."""
    never = after(tta.NOTE(source_model("iabn")))
    write(arguments.out, ("attacks",), {"samples": arguments.samples, "clean_samples_after": CLEAN_AFTER})
    write(arguments.out, ("attacks", "never_attacked"), never)
    for name in arguments.attacks:
        x = ATTACKS[name](arguments.samples)
        row: dict[str, Any] = {}
        for which, make in (("without", note), ("with", watched)):
            method = make()
            for part in x.split(BATCH):
                method(part)
            learned = after(method)
            row[which] = {domain: round(learned[domain] - never[domain], 2) for domain in learned}
        row["first_alarm"] = next((event.samples for event in method.alarms), None)
        row |= {key: method.tally.counts[key] for key in ("alarms", "returns")}
        row["cause"] = method.alarms[0].cause if method.alarms else ""
        write(arguments.out, ("attacks", "rows", name), row)


def honest(arguments: argparse.Namespace) -> None:
    """False alarms on clean and on honestly drifting correlated streams, and the error with and without them."""
    streams = {
        "like the source": lambda: correlated("test", arguments.honest, 1000),
        "drifting": lambda: drifting(arguments.honest, 2000),
    }
    for name, stream in streams.items():
        watch, wrong, seen = watched(), 0, 0
        for x, y in stream():
            bad = int((watch(x).argmax(1) != y).sum())
            wrong, seen = wrong + bad, seen + len(y)
            if seen % 10_000 < len(y) or seen >= arguments.honest:
                row = {"samples": seen, "error": round(100 * wrong / seen, 3)}
                row |= {key: watch.tally.counts[key] for key in ("alarms", "returns", "resting_samples")}
                row["causes"] = [str(event) for event in watch.alarms][-5:]
                write(arguments.out, ("honest", name), row)


def estimates(arguments: argparse.Namespace) -> None:
    """The estimate of the error beside the truth, at the end of honest streams."""
    for domain in DOMAINS:
        for title, make in (("NOTE", note), ("Source", lambda: tta.Source(source_model("iabn")))):
            watch = tta.Watch(make(), source=source_batches())
            wrong = [(watch(x).argmax(1) != y) for x, y in correlated(domain, 2400, 3000)]
            truth = 100 * float(torch.cat(wrong)[-watch.look :].float().mean())
            guess = watch.health.error
            row = {"truth": round(truth, 2), "estimate": guess.value, "low": guess.low, "high": guess.high}
            row["constant"] = round(watch.reference.error, 2)
            write(arguments.out, ("estimates", f"{title}, {domain}"), row)


def collapses(arguments: argparse.Namespace) -> None:
    """When the collapse of a method is called, beside its error until then."""
    cases: dict[str, tuple[Make, Callable[[], Iterable[Pool]]]] = {
        "TENT, correlated": (lambda: tta.TENT(source_model("bn")), lambda: correlated("style", 6000, 50)),
        "TENT at ten times its rate, shuffled": (
            lambda: tta.TENT(source_model("bn"), lr=0.01),
            lambda: shuffled("style", 6000),
        ),
        "RoTTA, recurring": (lambda: tta.RoTTA(source_model("bn")), lambda: drifting(12_000, 60, 2000)),
    }
    for name, (make, stream) in cases.items():
        watch = tta.Watch(make(), source=source_batches(), rollback=False)
        source = tta.Source(source_model("bn"))
        wrong, lost = [], []
        for x, y in stream():
            wrong.append(watch(x).argmax(1) != y)
            lost.append(source(x).argmax(1) != y)
        errors = [round(100 * float(part.float().mean()), 1) for part in torch.cat(wrong).split(WINDOW)]
        row = {
            "window": WINDOW,
            "errors": errors,
            "error_of_source": round(100 * float(torch.cat(lost).float().mean()), 1),
            "first_alarm": next((event.samples for event in watch.alarms), None),
            "cause": watch.alarms[0].cause if watch.alarms else "",
        }
        doubled = next((n for n, error in enumerate(errors) if error > 2 * max(errors[0], 1.0)), None)
        row["doubled_at"] = None if doubled is None else (doubled + 1) * WINDOW
        write(arguments.out, ("collapses", name), row)


def cost(arguments: argparse.Namespace) -> None:
    """The time of a watched NOTE over that of NOTE alone, taking turns; a look falls into each turn."""
    torch.manual_seed(0)
    digits = source_model("iabn"), pool("test")[0][:TURN]
    resnet = build_model("resnet20", 10, norm="iabn").eval(), torch.rand(TURN, 3, 32, 32)
    for name, (model, x), sizes in (("digits network", digits, (BATCH, 1)), ("ResNet-20", resnet, (BATCH, 1))):
        for size in sizes:
            watch = tta.Watch(tta.NOTE(model), source=[x[:128]], tolerance=0.99, rollback=False, look=TURN)
            both = [tta.NOTE(model), watch]
            times: list[list[float]] = [[], []]
            for number in range(TURNS + 1):
                for which in (0, 1) if number % 2 else (1, 0):
                    start = time.process_time()
                    for part in x.split(size):
                        both[which](part)
                    if number:
                        times[which].append(time.process_time() - start)
            percent = 100 * (statistics.median(times[1]) / statistics.median(times[0]) - 1)
            row = {"percent": round(percent, 2), "samples_between_looks": TURN, "turns": TURNS}
            write(arguments.out, ("cost", f"{name}, batches of {size}"), row)


def note() -> tta.NOTE:
    """The paper's NOTE on the small digits model."""
    return tta.NOTE(source_model("iabn"))


def watched() -> Any:
    """The same, watched, with 1,200 labelled source samples."""
    return tta.Watch(note(), source=source_batches())


def shuffled(domain: str, samples: int) -> Iterable[Pool]:
    """Batches of a domain without any order."""
    x, y = pool(domain)
    chosen = torch.randint(len(y), (samples,), generator=torch.Generator().manual_seed(9))
    return zip(x[chosen].split(BATCH), y[chosen].split(BATCH), strict=True)


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


def write(path: Path, where: tuple[str, ...], figures: dict[str, Any]) -> None:
    """Put figures into the file, beside what is there."""
    content = json.loads(path.read_text()) if path.is_file() else {}
    place = content
    for key in where[:-1]:
        place = place.setdefault(key, {})
    place[where[-1]] = {**place.get(where[-1], {}), **figures}
    content["provenance"] = provenance()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(*where, json.dumps(figures, ensure_ascii=False), file=sys.stderr, flush=True)


PARTS = {
    "estimates": estimates,
    "attacks": attacks,
    "collapses": collapses,
    "honest": honest,
    "cost": cost,
}

if __name__ == "__main__":
    sys.exit(main())
