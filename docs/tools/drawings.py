"""The drawings of the site: each line and bar is computed by the package itself.

`python docs/tools/drawings.py` writes docs/pictures/*.svg.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from html import escape
from pathlib import Path

import torch
from torch import Tensor, nn

import note_tta as tta
from note_tta.nn.functional import correct
from note_tta.report.svg import class_colour, standalone, strip

PICTURES = Path(__file__).resolve().parents[1] / "pictures"
BLUE, ORANGE, GREY = "#1f6feb", "#c2570c", "#7a8699"


def shrinkage() -> str:
    """What IABN makes of a sample's deviation from the layer, and how wide its dead zone is."""
    deviation = torch.linspace(-12, 12, 97)
    x, y = _scale(-12, 12, 50, 370), _scale(-12, 12, 250, 40)
    parts = [_open(760, 300), _text(50, 22, "correction applied, in standard errors", bold=True)]
    for tick in (-12, -8, -4, 0, 4, 8, 12):
        parts.append(_line(x(-12), y(tick), x(12), y(tick), "var(--line)"))
        parts.append(_text(42, y(tick) + 4, str(tick), anchor="end", dim=True))
        parts.append(_text(x(tick), 268, str(tick), anchor="middle", dim=True))
    parts.append(_text(210, 290, "deviation of the sample's mean, in standard errors", anchor="middle"))
    parts.append(
        f'<rect x="{x(-4):.1f}" y="40" width="{x(4) - x(-4):.1f}" height="210" fill="{BLUE}" opacity="0.08"/>'
    )
    lines = ((0.0, GREY, "5 3", "α = 0: InstanceNorm"), (1e9, ORANGE, "7 3", "α = ∞: BatchNorm"))
    for alpha, colour, dash, name in (*lines, (4.0, BLUE, "", "α = 4: IABN")):
        moved = correct(torch.tensor(0.0), deviation, torch.tensor(alpha))
        points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(deviation.tolist(), moved, strict=True))
        parts.append(_polyline(points, colour, dash))
        at = {0.0: (60, 52), 4.0: (60, 72), 1e9: (60, 92)}[alpha]
        parts.append(_line(at[0], at[1] - 4, at[0] + 24, at[1] - 4, colour, 2.5, dash))
        parts.append(_text(at[0] + 30, at[1], name))
    parts.append(_text(430, 22, "how far a sample's mean may lie from", bold=True))
    parts.append(_text(430, 40, "the layer's before α = 4 moves it", bold=True))
    for i, side in enumerate((32, 16, 8, 4, 2)):
        width = 4 / side  # alpha * sqrt(v / L), in standard deviations of the channel
        top = 62 + 36 * i
        parts.append(_text(490, top + 15, f"{side}×{side} map", anchor="end"))
        parts.append(f'<rect x="500" y="{top}" width="{100 * width:.1f}" height="20" rx="3" fill="{BLUE}"/>')
        parts.append(_text(506 + 100 * width, top + 15, f"{width:g} σ"))
    parts.append(_text(430, 262, "The fewer positions a map has, the less a", dim=True))
    parts.append(_text(430, 279, "sample's own statistics are worth.", dim=True))
    return standalone("".join([*parts, "</svg>"]), "IABN's soft shrinkage")


def memories(samples: int = 2000, capacity: int = 64) -> str:
    """What a FIFO, a reservoir and PBRS hold while a correlated stream goes by."""
    labels = torch.arange(samples) % 10
    labels = labels[tta.streams.dirichlet(labels, 0.1, torch.Generator().manual_seed(3))]
    held = {
        "FIFO": tta.FIFO(capacity),
        "Reservoir": tta.Reservoir(capacity, torch.Generator().manual_seed(0)),
        "PBRS": tta.PBRS(capacity, torch.Generator().manual_seed(0)),
    }
    left, width, step = 90, 650, 25
    parts = [_open(760, 400), _text(left - 10, 30, "stream", anchor="end")]
    parts.append(strip(labels.tolist(), 10, left, 12, width, 26))
    column = width * step / samples
    for place, (name, memory) in enumerate(held.items()):
        base = 150 + 108 * place
        parts.append(_text(left - 10, base - 40, name, anchor="end", bold=True))
        for i, label in enumerate(labels.tolist()):
            memory.add(torch.zeros(1), label)
            if (i + 1) % step:
                continue
            counts, top = Counter(memory.labels()), float(base)
            for own in range(10):
                height = 92 * counts[own] / capacity
                top -= height
                if height:
                    parts.append(
                        f'<rect x="{left + i // step * column:.1f}" y="{top:.1f}" '
                        f'width="{column - 0.6:.1f}" height="{height:.1f}" fill="{class_colour(own, 10)}"/>'
                    )
    parts.append(_text(left, 392, "first sample", dim=True))
    parts.append(
        _text(left + width / 2, 392, "time; colours are classes, height is their share", anchor="middle")
    )
    parts.append(_text(left + width, 392, f"{samples:,}th", anchor="end", dim=True))
    return standalone("".join([*parts, "</svg>"]), "Three memories of one correlated stream")


def batch_statistics() -> str:
    """Two classes in one channel, normalised by a mixed batch and by batches of one class each."""
    generator = torch.Generator().manual_seed(0)
    values = torch.cat(
        [torch.randn(4000, 1, generator=generator) - 1.5, torch.randn(4000, 1, generator=generator) + 1.5]
    )
    labels = torch.arange(8000) // 4000
    drifted = 1.5 * values + 4
    model = nn.Sequential(nn.BatchNorm1d(1, affine=False))
    with torch.no_grad():
        model.train()(values)
        layer = model[0]
        layer.running_mean, layer.running_var = values.mean(0), values.var(0)
    model.eval()
    mixed = torch.randperm(8000, generator=generator)
    normalise = tta.BNStats(model)
    panels = (
        ("before the drift", model(values).detach(), labels, "the boundary fits"),
        ("drift, source statistics", model(drifted).detach(), labels, "most on one side"),
        ("BN Stats, i.i.d. batches", _by_batches(normalise, drifted[mixed]), labels[mixed], "repaired"),
        ("BN Stats, one class a batch", _by_batches(normalise, drifted), labels, "classes laid together"),
    )
    parts = [_open(760, 230)]
    for place, (title, seen, classes, verdict) in enumerate(panels):
        left = 12 + 188 * place
        x = _scale(-4, 6, left, left + 172)
        parts.append(_text(left + 86, 20, title, anchor="middle", bold=True))
        parts.append(_line(left, 180, left + 172, 180, "var(--dim)"))
        parts.append(_line(x(0), 34, x(0), 186, "var(--fg)", 1.5, "4 3"))
        for own, colour in enumerate((BLUE, ORANGE)):
            counts = torch.histc(seen[classes == own], bins=50, min=-4, max=6)
            height = 180 - 130 * counts / 780
            points = " ".join(f"{x(-3.9 + 0.2 * i):.1f},{h:.1f}" for i, h in enumerate(height.tolist()))
            parts.append(
                f'<polygon points="{left},180 {points} {left + 172},180" fill="{colour}" opacity="0.45" '
                f'stroke="{colour}"/>'
            )
        error = 100 * ((seen[:, 0] > 0).long() != classes).double().mean()
        parts.append(_text(left + 86, 204, f"{error:.0f} % error", anchor="middle"))
        parts.append(_text(left + 86, 221, verdict, anchor="middle", dim=True))
    return standalone("".join([*parts, "</svg>"]), "What batch statistics do to one channel")


def _by_batches(method: tta.Method, values: Tensor) -> Tensor:
    return torch.cat([method(part) for part in values.split(64)])


def _scale(low: float, high: float, first: float, last: float) -> Callable[[float], float]:
    return lambda value: first + (float(value) - low) / (high - low) * (last - first)


def _open(width: int, height: int) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" width="{width}" height="{height}">'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1, dash: str = "") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}" stroke-dasharray="{dash}"/>'
    )


def _polyline(points: str, colour: str, dash: str) -> str:
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5" '
        f'stroke-dasharray="{dash}"/>'
    )


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", dim: bool = False, bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    colour = "var(--dim)" if dim else "var(--fg)"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(text)}</text>'
    )


DRAWINGS = {"shrinkage": shrinkage, "memories": memories, "batch-statistics": batch_statistics}


def main(folder: Path = PICTURES) -> None:
    """Write every drawing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWINGS.items():
        (folder / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
