"""What the measuring scripts share: the small source model, the clean stream, and the JSON they leave."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from note_tta import streams
from note_tta.checkpoint import load_checkpoint
from note_tta.data import DATASETS, open_dataset
from note_tta.files import write_text
from note_tta.models import build_model
from note_tta.provenance import provenance
from note_tta.train import train

TREE = Path(__file__).resolve().parents[2]
RESULTS = TREE / "results" / "trust"
MODELS = TREE / "tests" / "trust" / "models"
"""Where the small source models are kept; one that is not there is trained anew."""

BATCH = 64
TARGET = "style"
"""The digits' target domain that the attacks run on."""


def source_model(norm: str, folder: Path = MODELS, epochs: int | None = None) -> nn.Module:
    """A `digits_cnn` of width 8, trained in a few seconds and kept in `folder`.

    Args:
        norm: "bn" or "iabn".
        folder: Where it is kept.
        epochs: Fewer than the recipe's for a quicker, worse model.
    """
    recipe = DATASETS["digits"].recipe
    recipe = recipe if epochs is None else replace(recipe, epochs=epochs)
    path = folder / f"digits-digits_cnn-w8-{norm}-seed0.safetensors"
    if not path.is_file():
        data = open_dataset("digits")
        torch.manual_seed(0)
        model = build_model("digits_cnn", len(data.classes), norm=norm, width=8)
        train(model, data.domain("train"), recipe, out=path, show_progress=False)
    return load_checkpoint(path)[0]


def clean_stream(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs and labels of the target domain in a correlated order; the same for the same seed."""
    domain = open_dataset("digits").domain(TARGET)
    order = streams.dirichlet(domain.labels, 0.1, torch.Generator().manual_seed(seed))
    return domain.inputs(order), domain.labels[order]


def batches(x: Tensor, y: Tensor, size: int = BATCH) -> Iterator[tuple[Tensor, Tensor]]:
    """The stream as a loader gives it."""
    yield from zip(x.split(size), y.split(size), strict=True)


def write(name: str, figures: dict[str, Any]) -> Path:
    """Write a script's figures, and where they come from, to `results/trust/<name>.json`."""
    path = RESULTS / f"{name}.json"
    text = json.dumps({**figures, "provenance": provenance()}, indent=1, sort_keys=True, allow_nan=False)
    write_text(path, text + "\n")
    print(text)
    return path
