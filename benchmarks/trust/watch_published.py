"""The watch on the published streams: what its rollbacks cost there, and how good its estimate of the error is."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import note_tta as tta
from note_tta import streams
from note_tta.checkpoint import load_checkpoint
from note_tta.data import open_dataset as _open
from note_tta.data.root import resolve_root

from .aetta import AETTA
from .common import BATCH, TREE
from .figures import write
from .watch_streams import Pool, correlated, source_batches

SOURCE = 1024
CALIBRATED = 2048
"""Samples that a watch is calibrated on before it meets a stream."""
AETTA_EVERY = 4
"""One batch in so many is put to AETTA, whose ten passes cost more than NOTE itself."""


class Dataset(NamedTuple):
    """A dataset with published correlated streams.

    Attributes:
        title: Its name in the tables.
        network: The published network.
        stages: Names of the modules whose outputs AETTA drops from.
        samples: So many of each stream are measured; None for all.
    """

    title: str
    network: str
    stages: tuple[str, ...]
    samples: int | None = None


PUBLISHED = {
    "digits": Dataset("digits", "digits_cnn", ("features.5", "features.11", "features.17")),
    "hapt": Dataset("HAPT", "sensor_cnn4", ("features.2", "features.6", "features.10", "features.14")),
    "extrasensory": Dataset("ExtraSensory", "sensor_cnn2", ("features.2", "features.5")),
    "mnist": Dataset("MNIST-C", "digits_cnn", ("features.5", "features.11", "features.17"), 2048),
    "cifar10": Dataset("CIFAR10-C", "resnet20", ("layer1", "layer2", "layer3"), 2048),
}
COLUMNS = {
    "cifar10": (
        *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur"),
        *("zoom_blur", "snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate"),
        "jpeg_compression",
    ),
}
"""The published columns; of the other datasets, all domains but the source's."""


open_dataset = cache(_open)


@cache
def published_model(dataset: str, norm: str) -> nn.Module:
    """The published network of a dataset, from `checkpoints/` or `models/` in the data root."""
    name = f"{dataset}-{PUBLISHED[dataset].network}-{norm}-seed0.safetensors"
    folders = TREE / "checkpoints", resolve_root(None) / "models"
    path = next((folder / name for folder in folders if (folder / name).is_file()), folders[1] / name)
    return load_checkpoint(path)[0].eval()


@cache
def _order(dataset: str) -> Tensor:
    labels = open_dataset(dataset).domain("test").labels
    return streams.dirichlet(labels, 0.1, torch.Generator().manual_seed(0))


def source_of(dataset: str) -> list[Pool]:
    """Held-out source samples: of images, the clean test images that come last in a stream and are not measured."""
    if dataset == "digits":
        return source_batches()
    clean = open_dataset(dataset).domain("test")
    own = torch.arange(len(clean)) if dataset in ("hapt", "extrasensory") else _order(dataset)[-SOURCE:]
    return list(zip(clean.inputs(own).split(BATCH), clean.labels[own].split(BATCH), strict=True))


def stream_of(dataset: str, column: str, samples: int | None = None) -> list[Pool]:
    """The first samples of a published column in the order of seed 0, in batches."""
    most = PUBLISHED[dataset].samples if samples is None else samples
    if dataset == "digits":
        return list(correlated(column, 2400, 0))
    domain = open_dataset(dataset).domain(column)
    order = torch.arange(len(domain)) if dataset in ("hapt", "extrasensory") else _order(dataset)[:-SOURCE]
    x, y = domain.inputs(order[:most]), domain.labels[order[:most]]
    return list(zip(x.split(BATCH), y.split(BATCH), strict=True))


def _columns(wanted: list[str] | None) -> Iterator[tuple[str, str]]:
    """Datasets and columns; `wanted` names datasets, or columns like "cifar10/fog"."""
    for dataset in PUBLISHED:
        if wanted is not None and dataset not in [name.partition("/")[0] for name in wanted]:
            continue
        known = [name for name in open_dataset(dataset).domains if name not in ("train", "test", "source")]
        for column in COLUMNS.get(dataset, known):
            if wanted is None or dataset in wanted or f"{dataset}/{column}" in wanted:
                yield dataset, column


def published(arguments: argparse.Namespace) -> None:
    """The error with the watch and without it, and the estimate of it at the end beside AETTA's.

    Where there is no event the answers with and without the watch are the same, sample by sample.
    """
    for dataset, column in _columns(arguments.cases):
        model, found = published_model(dataset, "iabn"), PUBLISHED[dataset]
        stream = stream_of(dataset, column)
        for title in ("NOTE", "adapt", "Source"):
            name = f"{title}, {found.title}, {column}"
            watched = _watched(title, dataset).fork()
            aetta = None if title == "adapt" else AETTA(watched.model, found.stages)
            wrong = _run(watched, stream, aetta)
            if title != "Source":
                counts = watched.tally.counts
                row: dict[str, Any] = {"samples": len(wrong), "with": _percent(wrong), **counts}
                touched = counts["alarms"] + counts["returns"]
                row["without"] = _percent(_run(_make(title, model), stream)) if touched else row["with"]
                row["causes"] = [str(event) for event in watched.events if event.kind in ("alarm", "return")]
                row["forgetting"] = watched.health.signals["forgetting"]
                row["levels"] = {key: round(value, 3) for key, value in watched.reference.levels.items()}
                if max(row["levels"].values()) > 1:  # otherwise calibration changes nothing
                    default = _watched(title, dataset, calibrated=False).fork()
                    row["not_calibrated"] = {"with": _percent(_run(default, stream))}
                    row["not_calibrated"]["alarms"] = default.tally.counts["alarms"]
                write(arguments.out, ("published", name), row)
            if aetta is not None and aetta.error is not None:
                guess = watched.health.error
                row = {"truth": _percent(wrong[-watched.look :]), "estimate": guess.value}
                row |= {"low": guess.low, "high": guess.high, "aetta": round(100 * aetta.error, 2)}
                row["constant"] = round(watched.reference.error, 2)
                write(arguments.out, ("estimates", name), row)


@cache
def _watched(title: str, dataset: str, *, calibrated: bool = True) -> Any:
    """A method with a watch around it, calibrated on the source samples or not, at the start of a stream."""
    source = source_of(dataset)

    def watch(method: Any) -> Any:
        around = tta.Watch(method, source=source)
        if calibrated:
            around.calibrate(source, CALIBRATED)
        return around

    return _make(title, published_model(dataset, "iabn"), watch)


def _make(title: str, model: nn.Module, watch: Callable[[Any], Any] = lambda method: method) -> Any:
    """A method by name, perhaps with a watch around it."""
    if title == "adapt":
        return tta.adapt(model, watch=watch)
    return watch({"NOTE": tta.NOTE, "Source": tta.Source}[title](model))


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
