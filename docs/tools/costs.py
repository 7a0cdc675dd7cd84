"""What the paper's experiments cost: estimates from the measured cost per sample.

`python docs/tools/costs.py` measures the cost of a sample and writes docs/tools/costs.json.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import note_tta as tta
from note_tta.data import DATASETS
from note_tta.experiments.catalog import EXPERIMENTS
from note_tta.experiments.cell import Job, Stream
from note_tta.experiments.experiment import Experiment
from note_tta.models import build_model

MEASURED = Path(__file__).with_name("costs.json")
CORES = 2
INPUTS = {
    "resnet18": (3, 32, 32),
    "resnet18_imagenet": (3, 224, 224),
    "resnet50_imagenet": (3, 224, 224),
    "sensor_cnn4": (6, 50),
    "sensor_cnn2": (111, 5),
}
"""The networks that are measured, and the shape of their input."""


def reproduce_table() -> str:
    """One row per experiment: its command, its runs and the estimated time; in Markdown."""
    costs = json.loads(MEASURED.read_text(encoding="utf-8"))
    lines = ["| What | Command | Runs | Two cores |", "|---|---|---:|---:|"]
    for experiment in EXPERIMENTS.values():
        lines.append(_row(experiment, experiment.datasets, "", costs))
    table1 = EXPERIMENTS["table1"]
    lines += [_row(table1, (dataset,), f" --dataset {dataset}", costs) for dataset in table1.datasets]
    for name, samples in costs["training samples"].items():
        record = DATASETS[name]
        seconds = record.recipe.epochs * samples * costs["train"][record.network]
        lines.append(
            f"| One source model, {record.title} | `note-tta train --dataset {name} --norm iabn` | 1 "
            f"| {_time(seconds / CORES)} |"
        )
    return "\n".join(lines)


def _row(experiment: Experiment, datasets: Sequence[str], option: str, costs: dict[str, Any]) -> str:
    cells = [
        cell
        for name in datasets
        for cell in experiment.cells(name, DATASETS[name].targets, (0, 1, 2), model=DATASETS[name].network)
    ]
    seconds = [_seconds(cell, costs) for cell in cells]
    known = sum(value for value in seconds if value is not None)
    more = "" if None not in seconds else ", and what is not measured"
    names = ", ".join(DATASETS[name].title for name in datasets)
    command = f"note-tta reproduce {experiment.id}{option}"
    return f"| {experiment.title} ({names}) | `{command}` | {len(cells):,} | {_time(known / CORES)}{more} |"


def _seconds(cell: Job, costs: dict[str, Any]) -> float | None:
    """One core's seconds for a cell; None if its method, dataset or network was not measured."""
    if isinstance(cell, Stream):
        return 1.0
    no_views = cell.method == "cotta" and cell.model.startswith("sensor")
    ratio = costs["ratio"].get("cotta_no_views" if no_views else cell.method)
    samples, forward = costs["samples"].get(cell.stream.dataset), costs["forward"].get(cell.model)
    domains = cell.stream.visits * len(cell.stream.domain.split("+"))
    return None if None in (ratio, samples, forward) else ratio * samples * domains * forward


def _time(seconds: float) -> str:
    if seconds < 90:
        return "about a minute"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86400:.0f} days"


def measure() -> dict[str, dict[str, float]]:
    """Seconds of processor time per sample on one thread: forward, training step, and each method's ratio."""
    torch.set_num_threads(1)
    forward, train = {}, {}
    for name, shape in INPUTS.items():
        model = build_model(name, 10, in_channels=shape[0]).eval()
        x = torch.rand(4 if shape[-1] == 224 else 64, *shape)
        forward[name] = _fastest(partial(_forward, model, x), 3) / len(x)
        train[name] = _fastest(partial(_step, model.train(), x), 2) / len(x)
    x = torch.rand(64, 3, 32, 32)
    methods: dict[str, tta.Method] = {
        name: kind(
            build_model("resnet20", 10, norm=kind.trained_with),
            **({"source": [x]} if kind.needs_source else {}),
        )
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
    sizes = {key: part for key, part in json.loads(MEASURED.read_text()).items() if "samples" in key}
    MEASURED.write_text(json.dumps(measure() | sizes, indent=2) + "\n", encoding="utf-8")
