"""Pictures of the data: corruptions side by side, frames beside their rain, streams with labels over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import streams
from ..files import replacing
from ..names import check_known
from . import find_dataset, kitti, open_dataset
from .base import Dataset, Domain, MissingData
from .corruptions.engine import corrupt
from .corruptions.textures import frost_textures

SAMPLES = 5


def preview(name: str, root: Path, out: Path, *, severity: int = 5, stream: str | None = None) -> str:
    """Draw a dataset into `out` (PNG, SVG or PDF by its suffix) and say in one line what is to be seen.

    Image sets show their targets side by side, KITTI frames beside their rain, sensor sets the stream of
    every target with its labels. With `stream` ("dirichlet", "sorted", "iid", "chronological") any dataset
    shows the classes over time instead.
    """
    if out.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise ValueError(f"the picture's name must end in .png, .svg or .pdf, got {out.name}")
    options = {"severity": severity} if "severity" in find_dataset(name).options else {}
    dataset = open_dataset(name, root, **options)
    if stream is not None:
        figure = _streams(dataset, stream)
        said = f"{dataset.title}: classes over time, {stream} order"
    elif name == "kitti":
        figure = _rain(root / "kitti")
        said = "KITTI tracking frames (left) in rain of 200 mm/hr (right)"
    elif len(dataset.input_shape) == 2:
        figure = _sensors(dataset)
        said = f"{dataset.title}: the first channel of each target over time, coloured by class"
    else:
        figure, said = _targets(dataset, root, severity)
    with replacing(out) as temporary:
        metadata = {"Date": None} if out.suffix == ".svg" else None
        figure.savefig(temporary, format=out.suffix[1:], dpi=110, metadata=metadata)
    return said


def _figure(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _targets(dataset: Dataset, root: Path, severity: int) -> tuple[Any, str]:
    """One column per target, one row per sample; targets without files are made on the spot from clean images."""
    clean = dataset.domain("test")
    samples = _one_a_class(clean)
    columns = [("clean", clean.inputs(samples))]
    made = 0
    for target in dataset.targets:
        try:
            images = dataset.domain(target).inputs(samples)
        except MissingData:
            images, made = _made(dataset.name, clean.inputs(samples), target, severity, root), made + 1
        columns.append((target.replace("_", "\n"), images))
    figure, axes = _figure(len(samples), len(columns), 0.85 * len(columns), 0.95 * len(samples) + 0.4)
    for column, (title, images) in enumerate(columns):
        axes[0][column].set_title(title, fontsize=7)
        for row, image in enumerate(images):
            _show(axes[row][column], image)
    how = f"; {made} made for this picture" if made else ""
    return figure, f"{dataset.title}: {len(columns) - 1} targets beside the clean images{how}"


def _made(name: str, images: Tensor, corruption: str, severity: int, root: Path) -> Tensor:
    table = find_dataset(name).table or "cifar"
    pixels = (images.permute(0, 2, 3, 1).numpy() * 255).round().astype(np.uint8)
    level = 1 if table == "mnist" else severity
    changed = corrupt(pixels, corruption, level, table=table, textures=frost_textures(root)[0])
    return torch.from_numpy(changed.astype(np.float32) / 255).permute(0, 3, 1, 2)


def _one_a_class(domain: Domain) -> list[int]:
    """The first sample of each of the first few classes."""
    firsts = np.unique(domain.labels.numpy(), return_index=True)[1]
    return [int(first) for first in firsts[:SAMPLES]]


def _show(axis: Any, image: Tensor) -> None:
    grey = image.shape[0] == 1
    pixels = (image[0] if grey else image.permute(1, 2, 0)).numpy()
    axis.imshow(pixels, cmap="gray" if grey else None, vmin=0, vmax=1)
    axis.set_axis_off()


def _rain(base: Path) -> Any:
    frames = kitti.tracking_frames(base)
    chosen = frames[:: max(1, len(frames) // 4)][:4]
    figure, axes = _figure(len(chosen), 2, 12, 1.9 * len(chosen))
    for row, frame in enumerate(chosen):
        left, top, right, bottom = frame.box
        file, label = frame.picture, kitti.CLASSES[frame.label]
        for axis, image in zip(
            axes[row], (kitti.read_frame(file), kitti.rainy_frame(base, file)), strict=True
        ):
            axis.imshow(image)
            axis.plot([left, right, right, left, left], [top, top, bottom, bottom, top], color="gold", lw=1)
            axis.set_title(f"{file.parent.name}/{file.stem} {label}", fontsize=7)
            axis.set_axis_off()
    return figure


def _sensors(dataset: Dataset) -> Any:
    domains = [dataset.domain(target) for target in dataset.targets]
    return _over_time(dataset, [(d.name, d.labels, d.inputs()[:, 0].mean(dim=1)) for d in domains])


def _streams(dataset: Dataset, stream: str) -> Any:
    check_known("stream", stream, ("iid", "dirichlet", "sorted", "chronological"))
    domain = dataset.domain(dataset.targets[0])
    rows = []
    for name in dict.fromkeys([stream, "iid"]):
        seeded = {} if name == "chronological" else {"generator": torch.Generator().manual_seed(0)}
        order: Tensor = getattr(streams, name)(domain.labels, **seeded)
        rows.append((name, domain.labels[order], None))
    return _over_time(dataset, rows)


def _over_time(dataset: Dataset, rows: Sequence[tuple[str, Tensor, Tensor | None]]) -> Any:
    """One strip per row, coloured by class; over it a row's values or, if it has none, its mean run length."""
    from matplotlib import colormaps
    from matplotlib.patches import Patch

    classes = len(dataset.classes)
    figure, axes = _figure(len(rows), 1, 10, 1.1 * len(rows) + 0.8)
    colours = {
        "cmap": "tab20" if classes <= 20 else "nipy_spectral",
        "vmin": -0.5,
        "vmax": max(classes, 20) - 0.5,
    }
    for axis, (name, labels, values) in zip(axes[:, 0], rows, strict=True):
        place = {"aspect": "auto", "extent": (0, len(labels), 0, 1), "interpolation": "nearest"}
        axis.imshow(labels[None].numpy(), alpha=0.85, **place, **colours)
        axis.set_yticks([])
        axis.tick_params(labelsize=7)
        axis.set_ylabel(name, fontsize=8, rotation=0, ha="right", va="center")
        if values is None:
            axis.set_title(f"mean run length {streams.mean_run_length(labels):.1f}", fontsize=8, loc="right")
        else:
            scaled = (values - values.min()) / (values.max() - values.min()).clamp(min=1e-9)
            axis.plot(np.arange(len(values)) + 0.5, scaled.numpy(), color="black", lw=0.5)
    if classes <= 20:
        shades = [colormaps["tab20"]((i + 0.5) / 20) for i in range(classes)]
        patches = [Patch(color=c, label=name) for c, name in zip(shades, dataset.classes, strict=True)]
        figure.legend(handles=patches, loc="outside lower center", ncols=6, fontsize=7, frameon=False)
    return figure
