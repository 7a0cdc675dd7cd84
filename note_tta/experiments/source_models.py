"""Finds the source model of a cell, loads it once, and checks that it fits the cell."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from ..checkpoint import load_checkpoint, load_weights, weights_fingerprint
from ..data import DATASETS, Dataset, Domain
from ..models import MODELS, build_model, iabn_settings
from ..models.user_model import count_classes, make_model
from ..names import check_known
from ..nn import convert_iabn
from .cell import Cell

_KEPT = 4


class SourceModels:
    """Loads source models from the folder of `note-tta train`, and keeps the most recently used ones."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        self._folder, self._device = folder, device
        self._loaded: dict[Any, tuple[nn.Module, dict[str, Any]]] = {}

    def get(self, cell: Cell, dataset: Dataset) -> tuple[nn.Module, dict[str, Any]]:
        """Return the cell's source model and its origin. The caller must not change the model.

        Raises:
            ValueError: The model is unknown, or does not match the cell.
            FileNotFoundError: The checkpoint is missing.
        """
        norm = _trained_norm(cell)
        stream = cell.stream
        key = (
            stream.dataset,
            stream.data_options,
            cell.model,
            cell.width,
            norm,
            stream.seed,
            cell.checkpoint,
        )
        if key not in self._loaded:
            if len(self._loaded) >= _KEPT:
                self._loaded.pop(next(iter(self._loaded)))
            model, origin = _load(cell, norm, dataset, self._folder)
            self._loaded[key] = model.to(self._device).eval(), origin
        model, origin = self._loaded[key]
        settings = iabn_settings(model)
        if cell.norm in ("iabn", "in") and not settings:
            raise ValueError(f"{cell.model} has no IABN layers: --norm 'iabn*' converts its BatchNorm layers")
        if cell.norm == "bn" and settings:
            raise ValueError(f"{cell.model} has IABN layers: run it with --norm iabn")
        if cell.norm == "iabn*" or cell.norm_options:
            model = convert_iabn(copy.deepcopy(model), **{**settings, **dict(cell.norm_options)}).eval()
        return model, origin


def source_options(dataset: str, data_options: Mapping[str, Any]) -> dict[str, Any]:
    """The data options that change the training data."""
    changing = DATASETS[dataset].source_options if dataset in DATASETS else ()
    return {name: value for name, value in data_options.items() if name in changing}


def checkpoint_name(
    dataset: str,
    model: str,
    norm: str,
    seed: int,
    width: int | None = None,
    data_options: Mapping[str, Any] | None = None,
) -> str:
    """The name of a source model's file.

    Example:
        >>> checkpoint_name("extrasensory", "sensor_cnn2", "bn", 0, data_options={"source_seed": 1})
        'extrasensory-source_seed1-sensor_cnn2-bn-seed0.safetensors'
    """
    options = source_options(dataset, data_options or {}).items()
    parts = [dataset, *(f"{name}{value}" for name, value in options), model.replace(":", ".")]
    parts += [] if width is None else [f"w{width}"]
    return "-".join([*parts, norm, f"seed{seed}"]) + ".safetensors"


def find_checkpoint(cell: Cell, folder: Path) -> Path:
    """Return the file of the cell's source model: that of its seed if it exists, otherwise that of seed 0.

    Raises:
        FileNotFoundError: Neither file exists. The message gives the command that trains the model.
    """
    if cell.checkpoint:
        path = Path(cell.checkpoint)
        if not path.is_file():
            raise FileNotFoundError(f"no checkpoint {path}")
        return path
    norm, dataset = _trained_norm(cell), cell.stream.dataset
    names = [
        checkpoint_name(dataset, cell.model, norm, seed, width, dict(cell.stream.data_options))
        for seed in dict.fromkeys((cell.stream.seed, 0))
        for width in dict.fromkeys((cell.width, None))
    ]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    command = f"note-tta train --dataset {dataset} --model {cell.model} --norm {norm}"
    command += "" if cell.width is None else f" --width {cell.width}"
    options = source_options(dataset, dict(cell.stream.data_options))
    command += "".join(f" --data-option {name}={value}" for name, value in options.items())
    raise FileNotFoundError(
        f"there is no source model {' or '.join(names)} in {folder}; train it with: {command}"
    )


def check_fit(cell: Cell, model: nn.Module, dataset: Dataset, domain: Domain) -> None:
    """Run the user's own model on one sample, to find a mismatch before the stream starts.

    Raises:
        ValueError: The model does not accept the samples, or has a different number of classes.
    """
    told = count_classes(cell.model, model, domain.inputs([0]))
    classes, name = len(dataset.classes), cell.stream.dataset
    if told < classes or (told > classes and not name.endswith(".npz")):
        raise ValueError(f"{cell.model} has {told} classes, but {name} has {classes}")


def _trained_norm(cell: Cell) -> str:
    return "bn" if cell.norm == "iabn*" else cell.norm


def _load(cell: Cell, norm: str, dataset: Dataset, folder: Path) -> tuple[nn.Module, dict[str, Any]]:
    classes, channels = len(dataset.classes), dataset.input_shape[0]
    if ":" in cell.model:
        model = make_model(cell.model)
        if not cell.checkpoint:
            return model, {"name": cell.model, "fingerprint": weights_fingerprint(model)}
        path = Path(cell.checkpoint)
        return load_weights(model, path), _origin(path, {})
    check_known("model", cell.model, MODELS, hint=", or your own module:function")
    path = find_checkpoint(cell, folder)
    if cell.checkpoint and not path.with_suffix(".json").is_file():
        model = build_model(cell.model, classes, norm=norm, width=cell.width, in_channels=channels)
        return load_weights(model, path), _origin(path, {})
    model, card = load_checkpoint(path, num_classes=classes, in_channels=channels)
    held, wanted = card["architecture"], (cell.model, cell.width or MODELS[cell.model].width, norm)
    if (held["name"], held["width"], held["norm"]) != wanted:
        raise ValueError(
            f"{path} holds {held['name']} of width {held['width']} with {held['norm']}, "
            f"but {wanted[0]} of width {wanted[1]} with {wanted[2]} is needed"
        )
    return model, _origin(path, card)


def _origin(path: Path, card: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in card.items() if isinstance(value, str | int | float | bool)}
    return {"name": path.name, "fingerprint": weights_fingerprint(path), "card": kept}
