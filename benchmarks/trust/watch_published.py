"""The watch on the published streams: what its rollbacks cost there, and how good its estimate of the error is."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import nn

import note_tta as tta
from note_tta import streams
from note_tta.checkpoint import load_checkpoint
from note_tta.data import open_dataset
from note_tta.data.root import resolve_root

from .aetta import AETTA
from .common import BATCH, source_model
from .figures import write
from .watch_streams import DOMAINS, Pool, correlated, source_batches

CORRUPTIONS = (
    "gaussian_noise",
    "impulse_noise",
    "glass_blur",
    "zoom_blur",
    "frost",
    "brightness",
    "contrast",
    "jpeg_compression",
)
SAMPLES = 2048
"""Of each stream of CIFAR10-C."""
SOURCE = 1024
AETTA_EVERY = 4
"""One batch in so many is put to AETTA, whose ten passes cost more than NOTE itself."""
STAGES = {"DigitsCNN": ("features.5", "features.11", "features.17"), "ResNet": ("layer1", "layer2", "layer3")}


@cache
def cifar_model(norm: str) -> nn.Module:
    """A ResNet-20 for CIFAR-10, from `models/` in the data root."""
    name = f"cifar10-resnet20-{norm}-seed0.safetensors"
    return load_checkpoint(resolve_root(None) / "models" / name)[0].eval()


@cache
def _order() -> torch.Tensor:
    return streams.dirichlet(_labels(), 0.1, torch.Generator().manual_seed(0))


def _labels() -> torch.Tensor:
    return open_dataset("cifar10").domain("test").labels


def cifar_source() -> list[Pool]:
    """Clean test images that come last in the stream, so that no measured sample is among them."""
    clean, own = open_dataset("cifar10").domain("test"), _order()[-SOURCE:]
    return list(zip(clean.inputs(own).split(BATCH), clean.labels[own].split(BATCH), strict=True))


def cifar_stream(corruption: str, samples: int = SAMPLES) -> Pool:
    """The first samples of a corruption in the correlated order of seed 0."""
    domain = open_dataset("cifar10").domain(corruption)
    return domain.inputs(_order()[:samples]), domain.labels[_order()[:samples]]


def _cases(
    wanted: list[str] | None,
) -> Iterator[tuple[str, Callable[[str], nn.Module], list[Pool], list[Pool]]]:
    """Name, model by norm, source and stream of each published run."""
    for domain in DOMAINS[1:]:
        if wanted is None or domain in wanted:
            yield f"digits, {domain}", source_model, source_batches(), list(correlated(domain, 2400, 0))
    for corruption in CORRUPTIONS:
        if wanted is None or corruption in wanted:
            x, y = cifar_stream(corruption)
            stream = list(zip(x.split(BATCH), y.split(BATCH), strict=True))
            yield f"CIFAR10-C, {corruption}", cifar_model, cifar_source(), stream


def published(arguments: argparse.Namespace) -> None:
    """The error with the watch and without it; where there is no event both are the same, sample by sample."""
    for name, model, source, stream in _cases(arguments.cases):
        watch = partial(tta.Watch, source=source)
        for title, make in (
            ("NOTE", lambda model=model, **around: around.get("watch", _same)(tta.NOTE(model("iabn")))),
            ("adapt", lambda model=model, **around: tta.adapt(model("iabn"), **around)),
        ):
            watched = make(watch=watch)
            with_watch = _error(watched, stream)
            counts = watched.tally.counts
            touched = counts["alarms"] + counts["returns"]
            row: dict[str, Any] = {"with": with_watch, **counts}
            row["without"] = _error(make(), stream) if touched else with_watch
            row["causes"] = [str(event) for event in watched.events if event.kind in ("alarm", "return")]
            row["forgetting"] = watched.health.signals.get("forgetting")
            write(arguments.out, ("published", f"{title}, {name}"), row)


def estimates(arguments: argparse.Namespace) -> None:
    """The estimate of the error at the end of each published run, beside AETTA's, a constant guess and the truth."""
    for name, model, source, stream in _cases(arguments.cases):
        for title, make in (("NOTE", tta.NOTE), ("Source", tta.Source)):
            watch = tta.Watch(make(model("iabn")), source=source)
            network = watch.model
            aetta = AETTA(network, STAGES[type(network).__name__])
            wrong = []
            for number, (x, y) in enumerate(stream):
                answers = watch(x)
                wrong.append(answers.argmax(1) != y)
                if number % AETTA_EVERY == 0:
                    aetta.add(x, answers)
            guess = watch.health.error
            row = {
                "truth": round(100 * float(torch.cat(wrong)[-watch.look :].float().mean()), 2),
                "estimate": guess.value,
                "low": guess.low,
                "high": guess.high,
                "aetta": round(100 * aetta.error, 2),
                "constant": round(watch.reference.error, 2),
            }
            write(arguments.out, ("estimates", f"{title}, {name}"), row)


def _same(method: Any) -> Any:
    return method


def _error(method: Any, stream: list[Pool]) -> float:
    wrong = torch.cat([method(x).argmax(1) != y for x, y in stream])
    return round(100 * float(wrong.float().mean()), 3)
