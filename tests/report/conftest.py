"""Results that look like real ones and cost nothing."""

import math
import random
from types import SimpleNamespace

import pytest

from note_tta.data import DATASETS
from note_tta.experiments.catalog import EXPERIMENTS
from note_tta.experiments.cell import PROTOCOLS, Cell
from note_tta.experiments.store import STRETCHES, Record
from note_tta.report.paper_numbers import paper_number

TARGETS = {
    "cifar10": ("gaussian_noise", "fog", "jpeg_compression"),
    "cifar100": ("gaussian_noise", "fog", "jpeg_compression"),
    "imagenet": ("gaussian_noise", "fog"),
    "mnist": ("shot_noise", "scale", "canny_edges"),
    "kitti": ("rain",),
    "harth": ("S008", "S018"),
    "extrasensory": ("4FC", "797"),
    "hapt": ("user22", "user23"),
    "digits": ("style",),
}
LIKE = {("source", "iabn"): "iabn", ("note", "bn"): "pbrs", ("source", "iabn*"): "iabn_star"}


def record(cell, error=None, length=200, classes=10) -> Record:
    """A result for a cell: the paper's number where there is one, give or take a little."""
    chance = random.Random(repr(cell))
    stream = cell.stream if isinstance(cell, Cell) else cell
    ordered = [i * classes // length for i in range(length)]
    labels = ordered if stream.order != "iid" else [chance.randrange(classes) for _ in range(length)]
    samples = stream.samples or 10_000
    result = {"samples": samples, "labels": labels, "mean_run_length": 20.5}
    if isinstance(cell, Cell):
        row = LIKE.get((cell.method, cell.norm), cell.method)
        kind = "iid" if stream.order == "iid" else "correlated"
        base = paper_number(stream.dataset, kind, row) or (35.0, None)
        if error is None:
            error = min(99.0, max(0.5, base[0] + chance.uniform(-0.4, 0.4)))
        levels = [
            error * (1 + 0.4 * math.exp(-i / 15) + chance.uniform(-0.02, 0.02)) for i in range(STRETCHES)
        ]
        result["wrong"] = [round(min(100.0, level) * samples / 100 / STRETCHES) for level in levels]
        result |= {"error": error, "seconds": 1.5}
        if stream.order in PROTOCOLS:
            result["visits"] = {name: [error] * stream.visits for name in stream.domain.split("+")}
    provenance = {
        "version": "0.1.0",
        "commit": "c0ffee",
        "dirty": False,
        "machine": "a machine",
        "torch": "2.13.0",
        "python": "3.11.2",
        "time": "2026-01-01T00:00:00+00:00",
        "wall_seconds": 36.0,
        "data": {"fingerprint": "sha256:1", "origin": "published"},
    }
    if isinstance(cell, Cell):
        name = f"{stream.dataset}-{cell.model}-{cell.norm.rstrip('*')}-seed{stream.seed}.safetensors"
        provenance["checkpoint"] = {"name": name, "fingerprint": "sha256:2", "card": {"clean_error": 8.27}}
    return Record(cell, result, provenance)


def cells(experiment_id, *, datasets=None, seeds=(0, 1), targets=TARGETS, rows=None, **fixed):
    experiment = EXPERIMENTS[experiment_id]
    made = []
    for dataset in datasets or experiment.datasets:
        options = {"model": DATASETS[dataset].network, **fixed}
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
