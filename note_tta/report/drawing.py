"""Pictures in files: matplotlib's, the same bytes for the same data, readable in light and dark."""

from __future__ import annotations

import colorsys
import io
import math
import re
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

FG, DIM, LINE = "#1c2430", "#667085", "#dfe3ea"
"""Text, secondary text and grid: drawn in these colours, shown in those of the reader's theme."""

_DARK = {FG: "#e6e9ef", DIM: "#98a2b3", LINE: "#2c3442"}
_VARIABLES = {FG: "--fg", DIM: "--dim", LINE: "--line"}

_METHODS = {
    "source": ("#7a8699", ()),
    "bn_stats": ("#c2570c", (5, 3)),
    "onda": ("#a16207", (2, 3)),
    "pl": ("#b8336a", (7, 3)),
    "tent": ("#d1495b", ()),
    "lame": ("#3f8f4f", (5, 3)),
    "cotta": ("#7c5cc4", (7, 2, 2, 2)),
    "note": ("#1f6feb", ()),
    "note_iid": ("#0e9bb5", (4, 3)),
    "adapt": ("#d97706", ()),
    "iabn": ("#2a9d8f", (5, 3)),
    "pbrs": ("#8a6d3b", (7, 3)),
    "iabn_rs": ("#5b8def", (2, 3)),
    "in_pbrs": ("#9aa5b1", (2, 3)),
    "iabn_star": ("#58a55c", (7, 2, 2, 2)),
    "iabn_star_pbrs": ("#7aa2f7", (7, 2, 2, 2)),
}


def method_style(key: str) -> tuple[str, tuple[int, ...]]:
    """A row's colour and dashes, so that lines differ without colour too."""
    return _METHODS.get(key) or (class_colour(sum(key.encode()), 32), (1, 3))


def class_colour(label: int, classes: int) -> str:
    """A class's colour: hues far apart for neighbours, the same for everyone.

    Example:
        >>> class_colour(0, 10), class_colour(0, 10) != class_colour(1, 10)
        ('#5b81d7', True)
    """
    hue = (0.615 + label * (1 / classes if classes > 20 else 0.618034)) % 1
    lightness = (0.60, 0.50, 0.70)[label % 3]
    red, green, blue = colorsys.hls_to_rgb(hue, lightness, 0.61)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def draw(paint: Callable[[Any], Any], size: tuple[float, float], name: str) -> str:
    """An SVG for a page whose style sheet says what `--fg`, `--dim` and `--line` are.

    `paint` gets an empty `matplotlib.figure.Figure` of this size in pixels; `name` keeps the ids inside apart from
    those of other pictures on the page.
    """
    import matplotlib
    from matplotlib.figure import Figure

    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": 9,
        "text.color": FG,
        "axes.edgecolor": LINE,
        "axes.labelcolor": DIM,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "grid.color": LINE,
        "legend.frameon": False,
        "legend.handlelength": 2.6,
        "lines.scale_dashes": False,
        "xtick.color": LINE,
        "xtick.labelcolor": FG,
        "ytick.color": LINE,
        "ytick.labelcolor": DIM,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(size[0] / 96, size[1] / 96), layout="constrained")
        paint(figure)
        buffer = io.StringIO()
        kept = dict.fromkeys(("Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=kept)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].rstrip().replace("*{stroke-", "svg *{stroke-")
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    svg = re.sub(r'font: ([\d.]+px) [^;"]*', r"font-size: \1", re.sub(r' ?font-family: [^;"]*;?', "", svg))
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    return re.sub(r"(\d\.\d\d)\d+", r"\1", svg)  # a hundredth of a point is fine enough


def standalone(svg: str, title: str) -> str:
    """A picture as a file, with its colours and a title for screen readers."""
    light = "".join(f"{variable}:{colour};" for colour, variable in _VARIABLES.items())
    dark = "".join(f"{variable}:{_DARK[colour]};" for colour, variable in _VARIABLES.items())
    style = (
        f"svg{{{light}background:#fff;font-family:system-ui,sans-serif}}"
        f"@media(prefers-color-scheme:dark){{svg{{{dark}background:#12161d}}}}"
    )
    head, _, rest = svg.partition(">")
    return f"{head}><title>{escape(title)}</title><style>{style}</style>{rest}\n"


def error_axis(axes: Any, values: Sequence[float | None], label: str = "error (%)") -> None:
    """Errors from 0 to the next round value above the largest."""
    highest = max((value for value in values if value is not None), default=10.0)
    step = next(step for step in (1, 2, 5, 10, 20) if highest / step <= 6 or step == 20)
    top = step * math.ceil(highest / step + 1e-9)
    axes.set(ylabel=label, ylim=(0, top), yticks=range(0, top + 1, step))


def strip(axes: Any, labels: Sequence[int], classes: int) -> None:
    """A stream as coloured stretches, one per run of the same class, across the whole axes."""
    starts = [i for i in range(len(labels)) if i == 0 or labels[i] != labels[i - 1]]
    ends = [*starts[1:], len(labels)]
    axes.broken_barh(
        [(start, end - start) for start, end in zip(starts, ends, strict=True)],
        (0, 1),
        facecolors=[class_colour(labels[start], classes) for start in starts],
        antialiased=False,
    )
    axes.set(xlim=(0, max(1, len(labels))), ylim=(0, 1))
    axes.set_axis_off()
