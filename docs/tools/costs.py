"""What the paper's experiments cost: estimates from the measured cost of a sample.

`python docs/tools/costs.py` measures the cost of a sample and writes docs/tools/costs.json.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import note_tta as tta
from note_tta.experiments.catalog import EXPERIMENTS, TITLES, Experiment
from note_tta.experiments.cell import Job, Stream
from note_tta.models import build_model

MEASURED = Path(__file__).with_name("costs.json")
CORES = 2
GPU_TIMES = 60.0
"""How much faster than one core a current data-centre GPU is taken to be: assumed, not measured."""

MODELS = {
    "cifar10": ("resnet18", (3, 32, 32)),
    "cifar100": ("resnet18", (3, 32, 32)),
    "mnist": ("resnet18", (1, 28, 28)),
    "imagenet": ("resnet18_imagenet", (3, 224, 224)),
    "kitti": ("resnet50_imagenet", (3, 224, 224)),
    "harth": ("sensor_cnn4", (3, 50)),
    "hapt": ("sensor_cnn4", (6, 50)),
    "extrasensory": ("sensor_cnn2", (111, 5)),
}
TARGETS = {
    "cifar10": (15, 10_000),
    "cifar100": (15, 10_000),
    "mnist": (15, 10_000),
    "imagenet": (15, 50_000),
    "kitti": (1, 7_800),
    "harth": (7, 5_600),
    "hapt": (9, 1_500),
    "extrasensory": (7, 700),
}
"""Target domains of a dataset and roughly how many samples one has."""

EPOCHS = {"cifar10": (200, 50_000), "cifar100": (200, 50_000), "mnist": (100, 60_000), "hapt": (100, 11_000)}
"""Epochs and samples of the source models that are cheap enough to name."""


def reproduce_table() -> str:
    """One row an experiment: its command, its runs and the estimated time; in Markdown."""
    costs = json.loads(MEASURED.read_text(encoding="utf-8"))
    lines = [
        "| What | Command | Runs | Two cores | One GPU (estimate) |",
        "|---|---|---:|---:|---:|",
    ]
    for experiment in EXPERIMENTS.values():
        cells = [cell for dataset in experiment.datasets for cell in _cells(experiment, dataset)]
        seconds = sum(_seconds(cell, costs) for cell in cells)
        names = ", ".join(TITLES[name] for name in experiment.datasets)
        lines.append(
            f"| {experiment.title} ({names}) | `note-tta reproduce {experiment.id}` | {len(cells):,} "
            f"| {_time(seconds / CORES)} | {_time(seconds / GPU_TIMES)} |"
        )
    lines += ["", "One dataset of Table 1 alone, and the source models:", ""]
    lines += ["| What | Command | Two cores | One GPU (estimate) |", "|---|---|---:|---:|"]
    for dataset in EXPERIMENTS["table1"].datasets:
        seconds = sum(_seconds(cell, costs) for cell in _cells(EXPERIMENTS["table1"], dataset))
        lines.append(
            f"| Table 1, {TITLES[dataset]} | `note-tta reproduce table1 --dataset {dataset}` "
            f"| {_time(seconds / CORES)} | {_time(seconds / GPU_TIMES)} |"
        )
    for dataset, (epochs, samples) in EPOCHS.items():
        seconds = epochs * samples * costs["train"][MODELS[dataset][0]]
        lines.append(
            f"| one source model, {TITLES[dataset]} | `note-tta train --dataset {dataset} --norm iabn` "
            f"| {_time(seconds / CORES)} | {_time(seconds / GPU_TIMES)} |"
        )
    return "\n".join(lines)


def _cells(experiment: Experiment, dataset: str) -> list[Job]:
    count, _ = TARGETS[dataset]
    return experiment.cells(
        dataset, [f"domain{i}" for i in range(count)], (0, 1, 2), model=MODELS[dataset][0]
    )


def _seconds(cell: Job, costs: dict[str, dict[str, float]]) -> float:
    """One core's seconds for a cell."""
    if isinstance(cell, Stream):
        return 1.0
    ratio = costs["ratio"][cell.method]
    if cell.method == "cotta" and cell.stream.dataset in ("harth", "hapt", "extrasensory"):
        ratio = costs["ratio"]["cotta_no_views"]
    return TARGETS[cell.stream.dataset][1] * costs["forward"][MODELS[cell.stream.dataset][0]] * ratio


def _time(seconds: float) -> str:
    if seconds < 90:
        return "about a minute"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86400:.0f} days"


def measure() -> dict[str, dict[str, float]]:
    """Seconds of processor time a sample on one thread: forward, training step, and each method's ratio."""
    torch.set_num_threads(1)
    forward, train = {}, {}
    for name, shape in dict(MODELS.values()).items():
        model = build_model(name, 10, in_channels=shape[0]).eval()
        x = torch.rand(4 if shape[-1] == 224 else 64, *shape)
        forward[name] = _fastest(partial(_forward, model, x), 3) / len(x)
        train[name] = _fastest(partial(_step, model.train(), x), 2) / len(x)
    x = torch.rand(64, 3, 32, 32)
    methods = {
        name: kind(build_model("resnet20", 10, norm="iabn" if name.startswith("note") else "bn"))
        for name, kind in tta.METHODS.items()
    }
    methods["cotta_no_views"] = tta.CoTTA(build_model("resnet20", 10), p_th=0.0)
    seconds = {name: _fastest(partial(method, x), 2) for name, method in methods.items()}
    ratio = {name: value / seconds["source"] for name, value in seconds.items()}
    return {
        part: {name: float(f"{value:.3g}") for name, value in values.items()}
        for part, values in {"forward": forward, "train": train, "ratio": ratio}.items()
    }


def _fastest(call: Callable[[], object], repeats: int) -> float:
    call()
    seconds = []
    for _ in range(repeats):
        before = time.process_time()
        call()
        seconds.append(time.process_time() - before)
    return min(seconds)


def _forward(model: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        model(x)


def _step(model: nn.Module, x: Tensor) -> None:
    nn.functional.cross_entropy(model(x), torch.zeros(len(x), dtype=torch.long)).backward()


if __name__ == "__main__":
    MEASURED.write_text(json.dumps(measure(), indent=2) + "\n", encoding="utf-8")
