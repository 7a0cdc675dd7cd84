"""The drawings of the README and the site: each line and bar is computed by the package itself.

`python docs/tools/drawings.py` writes docs/pictures/*.svg.
"""

from __future__ import annotations

import copy
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from live_tables import FOLDER, RATE, figures, sizes
from torch import Tensor, nn

import note_tta as tta
from note_tta.example import drifting_digits
from note_tta.nn.functional import correct
from note_tta.report.drawing import DIM, FG, class_colour, draw, method_style, standalone, strip

PICTURES = Path(__file__).resolve().parents[1] / "pictures"
LATENCY = PICTURES.parents[1] / "results" / "benchmarks" / "latency.json"
BLUE, ORANGE, GREY, GREEN = "#1f6feb", "#c2570c", "#7a8699", "#3f8f4f"


def drift(figure: Any, shown: int = 16, begin: int = 50) -> None:
    """The README's example: digits of the stream as they come, and the error of each method so far."""
    model, stream = drifting_digits()
    inputs, labels = (torch.cat(part) for part in zip(*stream, strict=True))
    methods = {
        "tent": ("TENT", tta.TENT(model)),
        "source": ("no adaptation", tta.Source(model)),
        "note": ("NOTE", tta.NOTE(tta.convert_iabn(copy.deepcopy(model)))),
        "adapt": ("adapt (ours)", tta.adapt(model)),
    }
    top, below = figure.subplots(2, 1, height_ratios=(1, 5))
    places = [(2 * place + 1) * len(inputs) // (2 * shown) for place in range(shown)]
    top.imshow(torch.cat([inputs[place, 0] for place in places], dim=1).numpy(), cmap="gray", aspect="auto")
    top.set_axis_off()
    title = f"every {len(inputs) // shown}th digit of a stream that drifts"
    top.set_title(title, loc="left", fontsize=11)
    for row, (name, method) in methods.items():
        result = tta.evaluate(method, stream, progress=False)
        colour, _ = method_style(row)
        error = result.cumulative_error
        below.plot(range(begin, len(error)), error[begin:], color=colour, linewidth=2.5)
        end = {"color": colour, "weight": "bold", "fontsize": 11, "va": "center", "annotation_clip": False}
        below.annotate(f" {name} {result.error:.1f} %", (len(error), float(error[-1])), **end)
    below.set(xlim=(0, len(inputs)), ylim=(0, 100), yticks=range(0, 101, 25))
    runs = tta.streams.mean_run_length(labels)
    below.set_xlabel(f"samples, in runs of about {runs:.0f} of the same class", fontsize=11)
    below.set_ylabel("error so far (%)", fontsize=11)
    below.tick_params(labelsize=11)


def shrinkage(figure: Any) -> None:
    """What IABN makes of a sample's deviation from the layer, and how wide its dead zone is."""
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    deviation = torch.linspace(-12, 12, 97)
    lines = ((0.0, GREY, (5, 3), "α = 0: InstanceNorm"), (1e9, ORANGE, (7, 3), "α = ∞: BatchNorm"))
    left.axvspan(-4, 4, color=BLUE, alpha=0.08, linewidth=0)
    for alpha, colour, dashes, name in (*lines, (4.0, BLUE, (), "α = 4: IABN")):
        moved = correct(torch.tensor(0.0), deviation, torch.tensor(alpha))
        left.plot(deviation.numpy(), moved.numpy(), color=colour, dashes=dashes, linewidth=2.5, label=name)
    ticks = (-12, -8, -4, 0, 4, 8, 12)
    left.set(xlim=(-12, 12), ylim=(-12, 12), xticks=ticks, yticks=ticks)
    left.set(xlabel="deviation of the sample's mean, in standard errors")
    left.set_title("correction applied, in standard errors", loc="left", fontsize=9)
    left.legend(loc="upper left")
    sides = (32, 16, 8, 4, 2)
    widths = [4 / side for side in sides]  # alpha * sqrt(v / L), in standard deviations of the channel
    bars = right.barh([f"{side}×{side} map" for side in sides], widths, color=BLUE)
    right.bar_label(bars, [f" {width:g} σ" for width in widths], color=FG)
    right.invert_yaxis()
    right.set(xlim=(0, 2.6), xticks=[])
    right.grid(visible=False)
    title = "how far a sample's mean may lie\nfrom the layer's before α = 4 moves it"
    right.set_title(title, loc="left", fontsize=9)
    right.set_xlabel("The fewer positions a map has, the less\na sample's own statistics are worth.")


def memories(figure: Any, samples: int = 2000, capacity: int = 64, step: int = 25) -> None:
    """What a FIFO, a reservoir and PBRS hold while a correlated stream goes by."""
    labels = torch.arange(samples) % 10
    labels = labels[tta.streams.dirichlet(labels, 0.1, torch.Generator().manual_seed(3))]
    held = {
        "FIFO": tta.FIFO(capacity),
        "Reservoir": tta.Reservoir(capacity, torch.Generator().manual_seed(0)),
        "PBRS": tta.PBRS(capacity, torch.Generator().manual_seed(0)),
    }
    first, *below = figure.subplots(4, 1, height_ratios=(1, 3.4, 3.4, 3.4))
    strip(first, labels.tolist(), 10)
    first.text(-0.015, 0.5, "stream", ha="right", va="center", transform=first.transAxes)
    for axes, (name, memory) in zip(below, held.items(), strict=True):
        counts = []
        for i, label in enumerate(labels.tolist()):
            memory.add(torch.zeros(1), label)
            if (i + 1) % step == 0:
                counts.append(Counter(memory.labels()))
        counts.append(counts[-1])  # the last step has an end too
        shares = [[count[own] / capacity for count in counts] for own in range(10)]
        colours = [class_colour(own, 10) for own in range(10)]
        axes.stackplot(range(len(counts)), shares, colors=colours, step="post", linewidth=0)
        axes.set(xlim=(0, len(counts) - 1), ylim=(0, 1))
        axes.set_axis_off()
        axes.text(-0.015, 0.5, name, ha="right", va="center", weight="bold", transform=axes.transAxes)
    figure.supxlabel(
        f"time, {samples:,} samples; colours are classes, height is their share", fontsize=9, color=DIM
    )


def batch_statistics(figure: Any) -> None:
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
        ("BN Stats, one class per batch", _by_batches(normalise, drifted), labels, "classes laid together"),
    )
    bins = torch.linspace(-4, 6, 51).tolist()
    for axes, (title, seen, classes, verdict) in zip(figure.subplots(1, 4), panels, strict=True):
        for own, colour in enumerate((BLUE, ORANGE)):
            values_of_class = seen[classes == own].flatten().numpy()
            axes.hist(values_of_class, bins, histtype="stepfilled", color=f"{colour}73", edgecolor=colour)
        axes.axvline(0, color=FG, dashes=(4, 3))
        axes.set(xlim=(-4, 6), ylim=(0, 900), xticks=[], yticks=[])
        axes.set_title(title, fontsize=8, weight="bold")
        error = 100 * ((seen[:, 0] > 0).long() != classes).double().mean()
        axes.set_xlabel(f"{error:.0f} % error\n{verdict}")


def latency(figure: Any) -> None:
    """How long each call takes on a stream of single frames, from the last `make bench-latency`."""
    measured = json.loads(LATENCY.read_text(encoding="utf-8"))["figures"]
    calls = next(f["detail"] for f in measured if f["detail"] and "inside" in f["detail"])
    panels = (
        ("source", GREY, "Source"),
        ("inside", ORANGE, "NOTE, updates inside calls"),
        ("calls", BLUE, "delay=64, one per 60 ms"),
    )
    top = 1.3 * max(calls["inside"])
    for axes, (name, colour, title) in zip(figure.subplots(1, 3, sharey=True), panels, strict=True):
        axes.plot(calls[name], color=colour, linewidth=0.8)
        axes.set(yscale="log", ylim=(5, top), xlabel="frame")
        axes.set_title(f"{title}\nat most {max(calls[name]):,.0f} ms", loc="left", fontsize=8, weight="bold")
    figure.axes[0].set_ylabel("milliseconds per call")


def many_streams(figure: Any, folder: Path = FOLDER) -> None:
    """Throughput and memory over the number of streams, from the last `make bench-fleet`."""
    grids = sizes(figures("fleet", folder))
    rates, memory = figure.subplots(1, 2)
    for (mix, grid), colour in zip(grids.items(), (BLUE, ORANGE, GREEN, GREY), strict=False):
        streams = [int(size) for size in grid]
        rates.plot(streams, [of["fleet"][RATE] for of in grid.values()], "o-", color=colour, label=mix)
    rates.axhline(1, color=FG, dashes=(4, 3))
    rates.set(xscale="log", xlabel="streams", ylabel="samples/s ÷ one NOTE at B=64")
    rates.set_ylim(bottom=0)
    rates.set_title("Throughput of a fleet, updates included", loc="left", fontsize=8, weight="bold")
    rates.legend(ncols=2, loc="lower left", frameon=False)
    names = {"copies": ("a copy of the model each", GREY), "separate": ("methods that share it", ORANGE)}
    for kind, (label, colour) in {**names, "fleet": ("a fleet", BLUE)}.items():
        held = [(int(n), of[kind]["memory, MB"]) for n, of in grids["uniform"].items() if kind in of]
        memory.plot(
            *zip(*[pair for pair in held if pair[1] > 0], strict=True), "o-", color=colour, label=label
        )
    memory.set(xscale="log", yscale="log", xlabel="streams", ylabel="MB")
    memory.set_title("Memory beyond the model", loc="left", fontsize=8, weight="bold")
    memory.legend(loc="lower right", frameon=False)


def _by_batches(method: tta.Method, values: Tensor) -> Tensor:
    return torch.cat([method(part) for part in values.split(64)])


DRAWINGS = {
    "drift": (drift, (620, 300), "The error of four methods on drifting digits in long runs of one class"),
    "shrinkage": (shrinkage, (760, 300), "IABN's soft shrinkage"),
    "memories": (memories, (760, 400), "Three memories of one correlated stream"),
    "latency": (latency, (760, 230), "The time of every call"),
    "batch-statistics": (batch_statistics, (760, 230), "What batch statistics do to one channel"),
}
if sizes(figures("fleet")):
    DRAWINGS["many-streams"] = (many_streams, (760, 280), "Throughput and memory over the number of streams")


def drawing(name: str) -> str:
    """A drawing's file."""
    paint, size, title = DRAWINGS[name]
    return standalone(draw(paint, size, name), title)


def main(folder: Path = PICTURES) -> None:
    """Write every drawing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in DRAWINGS:
        (folder / f"{name}.svg").write_text(drawing(name), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
