"""A watched stream as one self-contained page."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..files import write_atomically

if TYPE_CHECKING:
    from .watch import Watch

CHARTS = (
    (
        "Nearness to an alarm",
        "An alarm is at 1; a state below 0.25 is kept for a rollback.",
        1.0,
        ("strain",),
    ),
    (
        "What source samples have lost",
        "The mean probability that the kept source samples have lost, and the limit.",
        0.02,
        ("forgetting", "allowed"),
    ),
    (
        "Estimate of the error",
        "In percent, without labels; the interval is for the sampling error alone.",
        5.0,
        ("error", "error_low", "error_high"),
    ),
    (
        "Answers that differ from the source model's",
        "The share of these answers, and of samples too far off to learn from.",
        0.1,
        ("disagreement", "unlearned"),
    ),
    ("Entropy of the answers", "The mean over the latest samples, in nats.", 0.1, ("entropy",)),
)
"""Title, text, the smallest upper end of the scale, and the signals drawn."""


def page(watch: Watch) -> str:
    """The page's HTML."""
    folder = files("note_tta").joinpath("report").joinpath("templates").joinpath("uplot")
    html = files("note_tta.watch").joinpath("page.html").read_text(encoding="utf-8")
    text = json.dumps(_data(watch), ensure_ascii=False, separators=(",", ":"))
    sources = {
        "uplot_css": folder.joinpath("uPlot.min.css").read_text(encoding="utf-8"),
        "uplot_js": folder.joinpath("uPlot.iife.min.js").read_text(encoding="utf-8"),
        "data": text.replace("<", "\\u003c"),
    }
    for name, source in sources.items():
        html = html.replace(f"@{name}@", source)
    return html


def write_page(watch: Watch, path: Path) -> Path:
    """Write the page; returns its path."""
    write_atomically(path, page(watch).encode())
    return path


def _data(watch: Watch) -> dict[str, Any]:
    """The content of the page."""
    journal, health = watch.journal, watch.health
    counts = {**watch.counters, **watch.tally.counts}
    charts = [
        {
            "title": title,
            "text": words,
            "top": top,
            "lines": {name: journal.column(name) for name in names},
            "stacked": False,
        }
        for title, words, top, names in CHARTS
        if names[0] in journal.names
    ]
    for prefix, title, words, top in (
        ("class:", "Predictions over time", "The share of each class among the latest answers.", 1.0),
        (
            "layer:",
            "Drift by layer",
            "How far each layer's tensors are from the source's, in its own units.",
            0.1,
        ),
    ):
        names = [name for name in journal.names if name.startswith(prefix)]
        lines = {name.removeprefix(prefix): journal.column(name) for name in names}
        if lines:
            charts.append(
                {"title": title, "text": words, "top": top, "lines": lines, "stacked": prefix == "class:"}
            )
    return {
        "state": health.state,
        "why": health.why,
        "counts": ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items()),
        "samples": [int(sample or 0) for sample in journal.column("samples")],
        "alarms": [event.samples for event in watch.alarms],
        "charts": charts,
        "memory": _memory(getattr(watch.inner, "memory", None)),
        "events": [
            [f"{event.samples:,}", event.time, event.kind, event.cause] for event in reversed(watch.events)
        ],
    }


def _memory(memory: Any) -> dict[str, Any]:
    """The samples in memory, as pictures if they are images."""
    if memory is None:
        return {"text": "This method has no memory.", "pictures": []}
    labels, shape = memory.labels(), memory.sample_shape
    text = f"{len(memory)} of {memory.capacity} samples, with the class predicted for each."
    if shape is None or len(shape) != 3 or shape[0] not in (1, 3):
        counts = {label: labels.count(label) for label in sorted(set(labels))}
        listed = ", ".join(f"class {label}: {count}" for label, count in counts.items())
        return {"text": f"{text} {listed}".strip(), "pictures": []}
    pairs = sorted(zip(labels, range(len(labels)), strict=True))
    samples = memory.inputs()
    return {"text": text, "pictures": [[picture(samples[row]), label] for label, row in pairs]}


def picture(sample: Tensor) -> str:
    """An image `[1 or 3, H, W]` as a data URL of a PNG; values beyond [0, 1] are rescaled to fit.

    Example:
        >>> picture(torch.zeros(1, 2, 2))[:30]
        'data:image/png;base64,iVBORw0K'
    """
    x = sample.detach().float().cpu()
    low, high = min(0.0, float(x.min())), max(1.0, float(x.max()))
    pixels = ((x - low) / (high - low) * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous()
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()
