"""The watch on the published streams: what its rollbacks cost there, and how good its estimate of the error is."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

import note_tta as tta
from note_tta import streams
from note_tta.checkpoint import load_checkpoint
from note_tta.data import open_dataset
from note_tta.data.root import resolve_root

from .aetta import AETTA
from .common import BATCH, source_model
from .figures import write
from .watch_streams import DOMAINS, Pool, correlated, source_batches

CORRUPTIONS = ("gaussian_noise", "contrast", "frost", "glass_blur", "brightness", "jpeg_compression")
SAMPLES = 2048
"""Of each stream of CIFAR10-C."""
SOURCE = 1024
WHOLE = ("contrast", "frost")
"""Corruptions whose whole streams are run as well, but for the images that are the watch's source samples."""
AETTA_EVERY = 4
"""One batch in so many is put to AETTA, whose ten passes cost more than NOTE itself."""
STAGES = {
    "DigitsCNN": ("features.5", "features.11", "features.17"),
    "SmallResNet": ("layer1", "layer2", "layer3"),
}


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
    for corruption in WHOLE:
        if wanted is None or f"{corruption}, whole" in wanted:
            x, y = cifar_stream(corruption, len(_order()) - SOURCE)
            stream = list(zip(x.split(BATCH), y.split(BATCH), strict=True))
            yield f"CIFAR10-C, {corruption}, whole stream", cifar_model, cifar_source(), stream


def published(arguments: argparse.Namespace) -> None:
    """The error with the watch and without it, and the estimate of it at the end beside AETTA's.

    Where there is no event the answers with and without the watch are the same, sample by sample.
    """
    for name, model, source, stream in _cases(arguments.cases):
        watch = partial(tta.Watch, source=source)
        for title in ("NOTE", "adapt", "Source"):
            watched = _make(title, model("iabn"), watch)
            aetta = None if title == "adapt" else AETTA(watched.model, STAGES[type(watched.model).__name__])
            wrong = _run(watched, stream, aetta)
            if title != "Source":
                counts = watched.tally.counts
                row: dict[str, Any] = {"samples": len(wrong), "with": _percent(wrong), **counts}
                touched = counts["alarms"] + counts["returns"]
                alone = _make(title, model("iabn"), None)
                row["without"] = _percent(_run(alone, stream)) if touched else row["with"]
                row["causes"] = [str(event) for event in watched.events if event.kind in ("alarm", "return")]
                row["forgetting"] = watched.health.signals["forgetting"]
                write(arguments.out, ("published", f"{title}, {name}"), row)
            if aetta is not None and aetta.error is not None:
                guess = watched.health.error
                row = {"truth": _percent(wrong[-watched.look :]), "aetta": round(100 * aetta.error, 2)}
                row |= {"estimate": guess.value, "low": guess.low, "high": guess.high}
                row["constant"] = round(watched.reference.error, 2)
                write(arguments.out, ("estimates", f"{title}, {name}"), row)


def _make(title: str, model: nn.Module, watch: Callable[[Any], Any] | None) -> Any:
    """A method by name, with a watch around it where one is given."""
    if title == "adapt":
        return tta.adapt(model, watch=watch)
    method = {"NOTE": tta.NOTE, "Source": tta.Source}[title](model)
    return method if watch is None else watch(method)


def _run(method: Any, stream: list[Pool], aetta: AETTA | None = None) -> Tensor:
    """Whether each sample was answered wrong."""
    wrong = []
    for number, (x, y) in enumerate(stream):
        answers = method(x)
        wrong.append(answers.argmax(1) != y)
        if aetta is not None and number % AETTA_EVERY == 0:
            aetta.add(x, answers)
    return torch.cat(wrong)


def _percent(wrong: Tensor) -> float:
    return round(100 * float(wrong.float().mean()), 3)
