"""Results that look like real ones and cost nothing."""

import math
import random
from types import SimpleNamespace

import pytest

from note_tta.experiments.catalog import EXPERIMENTS
from note_tta.experiments.paper import paper_number
from note_tta.experiments.store import Record

TARGETS = {
    "cifar10": ("gaussian_noise", "fog", "jpeg_compression"),
    "cifar100": ("gaussian_noise", "fog", "jpeg_compression"),
    "imagenet": ("gaussian_noise", "fog"),
    "mnist": ("shot_noise", "scale", "canny_edges"),
    "kitti": ("rain",),
    "harth": ("S008", "S018"),
    "extrasensory": ("4FC32141-E888-4BFF-8804-12559A491D8C", "797D145F-3858-4A7F-A7C2-A4EB721E133C"),
    "hapt": ("user22", "user23"),
}
MODELS = {
    "imagenet": "resnet18_imagenet",
    "kitti": "resnet50_imagenet",
    "harth": "sensor_cnn4",
    "hapt": "sensor_cnn4",
    "extrasensory": "sensor_cnn2",
}
LIKE = {("source", "iabn"): "iabn", ("note", "bn"): "pbrs", ("source", "iabn*"): "iabn_star"}


def record(cell, error=None, length=200, classes=10) -> Record:
    """A result for a cell: the paper's number where there is one, give or take a little."""
    chance = random.Random(cell.id)
    ordered = [i * classes // length for i in range(length)]
    labels = ordered if cell.stream != "iid" else [chance.randrange(classes) for _ in range(length)]
    result = {"samples": cell.samples or 10_000, "labels": labels, "mean_run_length": 20.5}
    if cell.method != "stream":
        stream = "iid" if cell.stream == "iid" else "correlated"
        row = LIKE.get((cell.method, cell.norm), cell.method)
        base = paper_number(cell.dataset, stream, row) or (35.0, None)
        if error is None:
            error = min(99.0, max(0.5, base[0] + chance.uniform(-0.4, 0.4)))
        curve = [error * (1 + 0.4 * math.exp(-i / 30) + chance.uniform(-0.02, 0.02)) for i in range(length)]
        result |= {"error": error, "seconds": 1.5}
        result["cumulative_error"] = [min(100.0, round(value, 2)) for value in curve]
    provenance = {
        "version": "0.1.0",
        "commit": "c0ffee",
        "dirty": False,
        "machine": "a machine",
        "torch": "2.13.0",
        "python": "3.11.2",
        "wall_seconds": 36.0,
        "data": {"fingerprint": "sha256:1", "origin": "published"},
    }
    if cell.model:
        name = f"{cell.dataset}-{cell.model}-{cell.norm.rstrip('*')}-seed{cell.seed}.safetensors"
        provenance["checkpoint"] = {"name": name, "fingerprint": "sha256:2", "card": {"clean_error": 8.27}}
    return Record(cell, result, provenance)


def cells(experiment_id, *, datasets=None, seeds=(0, 1), targets=TARGETS, rows=None, **fixed):
    experiment = EXPERIMENTS[experiment_id]
    made = []
    for dataset in datasets or experiment.datasets:
        options = {"model": MODELS.get(dataset, "resnet18"), **fixed}
        made += experiment.cells(dataset, targets[dataset], seeds, rows, **options)
    return list(dict.fromkeys(made))


def records(*experiment_ids, **options) -> list[Record]:
    made = {cell: None for name in experiment_ids for cell in cells(name, **options)}
    return [record(cell) for cell in made]


@pytest.fixture(scope="session")
def fakes():
    return SimpleNamespace(record=record, cells=cells, records=records, targets=TARGETS)


@pytest.fixture(scope="session")
def everything() -> list[Record]:
    return records(*EXPERIMENTS)
