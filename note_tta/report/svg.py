"""Small charts as SVG text: the same bytes for the same data, readable in light and dark."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Series", "bar_chart", "class_colour", "line_chart", "method_colour", "standalone", "strip"]

STYLE = """
svg{--fg:#1c2430;--dim:#667085;--line:#dfe3ea;--bg:#ffffff;background:var(--bg);
font:12px/1.3 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
@media(prefers-color-scheme:dark){svg{--fg:#e6e9ef;--dim:#98a2b3;--line:#2c3442;--bg:#12161d}}
"""

_METHODS = {
    "source": ("#7a8699", ""),
    "bn_stats": ("#c2570c", "5 3"),
    "onda": ("#a16207", "2 3"),
    "pl": ("#b8336a", "7 3"),
    "tent": ("#d1495b", ""),
    "lame": ("#3f8f4f", "5 3"),
    "cotta": ("#7c5cc4", "7 2 2 2"),
    "note": ("#1f6feb", ""),
    "note_iid": ("#0e9bb5", "4 3"),
    "iabn": ("#2a9d8f", "5 3"),
    "pbrs": ("#8a6d3b", "7 3"),
    "iabn_rs": ("#5b8def", "2 3"),
    "in_pbrs": ("#9aa5b1", "2 3"),
    "iabn_star": ("#58a55c", "7 2 2 2"),
    "iabn_star_pbrs": ("#7aa2f7", "7 2 2 2"),
}


@dataclass(frozen=True)
class Series:
    """A line of a chart: one value a place on the axis, None where there is none."""

    key: str
    name: str
    values: tuple[float | None, ...]


def method_colour(key: str) -> tuple[str, str]:
    """A row's colour and dashes, so that lines differ without colour too."""
    return _METHODS.get(key, ("#667085", "1 3"))


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


def standalone(svg: str, title: str) -> str:
    """A chart as a file of its own, with its colours and a title for those who cannot see it."""
    head, _, rest = svg.partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title><style>{STYLE}</style>{rest}\n'


def line_chart(
    series: Sequence[Series],
    labels: Sequence[str],
    *,
    x_title: str,
    y_title: str = "error (%)",
    size: tuple[int, int] = (640, 340),
) -> str:
    """Lines with a mark at each place of a named axis, a legend above."""
    width, height = size
    frame = _Frame(
        series, width, height, left=46, right=16, top=18 + 20 * math.ceil(len(series) / 4), bottom=46
    )
    step = (frame.right - frame.left) / max(1, len(labels) - 1)
    parts = [_open(width, height), _legend([(s.key, s.name) for s in series], width), frame.grid(y_title)]
    for i, label in enumerate(labels):
        parts.append(_text(frame.left + i * step, frame.bottom + 18, label, anchor="middle"))
    parts.append(_text((frame.left + frame.right) / 2, height - 6, x_title, anchor="middle", dim=True))
    for one in series:
        colour, dash = method_colour(one.key)
        points = [(frame.left + i * step, frame.y(v)) for i, v in enumerate(one.values) if v is not None]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        stroke = 3 if one.key == "note" else 1.8
        parts.append(
            f'<g data-method="{one.key}"><polyline points="{path}" fill="none" stroke="{colour}" '
            f'stroke-width="{stroke}" stroke-dasharray="{dash}" stroke-linejoin="round"/>'
        )
        for x, y in points:
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{stroke + 0.6:.1f}" fill="{colour}"/>')
        parts.append("</g>")
    return "".join([*parts, "</svg>"])


def curve_chart(
    series: Sequence[Series],
    labels: Sequence[int],
    classes: int,
    samples: int,
    *,
    size: tuple[int, int] = (640, 300),
) -> str:
    """Cumulative error over a stream; under it the stream's classes as a strip, if there are labels."""
    width, height = size
    frame = _Frame(
        series,
        width,
        height,
        left=46,
        right=16,
        top=18 + 20 * math.ceil(len(series) / 4),
        bottom=62 if labels else 34,
    )
    parts = [
        _open(width, height),
        _legend([(s.key, s.name) for s in series], width),
        frame.grid("error so far (%)"),
    ]
    for one in series:
        colour, dash = method_colour(one.key)
        step = (frame.right - frame.left) / max(1, len(one.values) - 1)
        path = " ".join(
            f"{frame.left + i * step:.1f},{frame.y(v):.1f}" for i, v in enumerate(one.values) if v is not None
        )
        stroke = 2.6 if one.key == "note" else 1.5
        parts.append(
            f'<polyline data-method="{one.key}" points="{path}" fill="none" stroke="{colour}" '
            f'stroke-width="{stroke}" stroke-dasharray="{dash}"/>'
        )
    if labels:
        parts.append(strip(labels, classes, frame.left, frame.bottom + 10, frame.right - frame.left, 14))
    parts.append(_text(frame.left, height - 10, "1", dim=True))
    parts.append(
        _text(
            (frame.left + frame.right) / 2,
            height - 10,
            "samples, classes by colour" if labels else "samples",
            anchor="middle",
            dim=True,
        )
    )
    parts.append(_text(frame.right, height - 10, f"{samples:,}", anchor="end", dim=True))
    return "".join([*parts, "</svg>"])


def bar_chart(
    names: Sequence[tuple[str, str]],
    groups: Sequence[tuple[str, Sequence[float | None]]],
    marks: Sequence[Sequence[float | None]],
    *,
    size: tuple[int, int] = (640, 320),
) -> str:
    """Two bars a method, the first outlined, the second filled; a tick where the paper has its value.

    Args:
        names: A method's key and name, one a place.
        groups: The name of each of the two bars and its values.
        marks: The paper's values, as `groups` has ours.
        size: Width and height.
    """
    width, height = size
    flat = [Series("", "", tuple(values)) for _, values in groups] + [Series("", "", tuple(m)) for m in marks]
    frame = _Frame(flat, width, height, left=46, right=12, top=40, bottom=40)
    parts = [_open(width, height)]
    x = 14.0
    for i, (name, _) in enumerate(groups):
        fill = "none" if i == 0 else "var(--fg)"
        parts.append(
            f'<rect x="{x:.0f}" y="8" width="14" height="11" fill="{fill}" stroke="var(--fg)" rx="2"/>'
        )
        parts.append(_text(x + 20, 18, name))
        x += 34 + 7 * len(name)
    parts.append(
        f'<line x1="{x:.0f}" x2="{x + 16:.0f}" y1="14" y2="14" stroke="var(--fg)" stroke-width="2.5"/>'
    )
    parts.append(_text(x + 22, 18, "the paper's"))
    parts.append(frame.grid("error (%)"))
    slot = (frame.right - frame.left) / max(1, len(names))
    bar = slot * 0.34
    for i, (key, name) in enumerate(names):
        colour, _ = method_colour(key)
        middle = frame.left + (i + 0.5) * slot
        parts.append(_text(middle, frame.bottom + 18, name, anchor="middle"))
        for j, (_, values) in enumerate(groups):
            left = middle + (j - 1) * (bar + 2) + 1
            value, mark = values[i], marks[j][i]
            if value is not None:
                fill = f'fill="{colour}" fill-opacity="{0.18 if j == 0 else 1}" stroke="{colour}"'
                y = frame.y(value)
                parts.append(
                    f'<rect x="{left:.1f}" y="{y:.1f}" width="{bar:.1f}" '
                    f'height="{frame.bottom - y:.1f}" {fill} rx="2">'
                    f"<title>{escape(name)}: {value:.1f} %</title></rect>"
                )
                top = y if mark is None else min(y, frame.y(mark))
                parts.append(_text(left + bar / 2, top - 5, f"{value:.0f}", anchor="middle", small=True))
            if mark is not None:
                y = frame.y(mark)
                parts.append(
                    f'<line x1="{left - 2:.1f}" x2="{left + bar + 2:.1f}" y1="{y:.1f}" y2="{y:.1f}" '
                    'stroke="var(--fg)" stroke-width="2.5"/>'
                )
    return "".join([*parts, "</svg>"])


def strip_chart(strips: Sequence[tuple[str, str, Sequence[int]]], classes: int, *, width: int = 640) -> str:
    """One strip of classes over time a line: its name at the left, a remark at the right."""
    left, right, row = 70, 96, 34
    height = row * len(strips) + 26
    parts = [_open(width, height)]
    for i, (name, remark, labels) in enumerate(strips):
        y = 8 + i * row
        parts.append(_text(left - 10, y + 16, name, anchor="end"))
        parts.append(strip(labels, classes, left, y, width - left - right, 24))
        parts.append(_text(width - right + 8, y + 16, remark, dim=True))
    parts.append(_text(left, height - 4, "time →", dim=True))
    return "".join([*parts, "</svg>"])


def strip(labels: Sequence[int], classes: int, x: float, y: float, width: float, height: float) -> str:
    """A stream as coloured stretches, one a run of the same class."""
    step = width / max(1, len(labels))
    parts = []
    start = 0
    for i in range(1, len(labels) + 1):
        if i == len(labels) or labels[i] != labels[start]:
            colour = class_colour(labels[start], classes)
            parts.append(
                f'<rect x="{x + start * step:.2f}" y="{y:.0f}" width="{(i - start) * step + 0.05:.2f}" '
                f'height="{height:.0f}" fill="{colour}"/>'
            )
            start = i
    return f'<g class="strip" shape-rendering="crispEdges">{"".join(parts)}</g>'


class _Frame:
    """The plotting area: error from 0 to the next round value above the largest."""

    def __init__(
        self,
        series: Sequence[Series],
        width: int,
        height: int,
        *,
        left: int,
        right: int,
        top: int,
        bottom: int,
    ) -> None:
        values = [value for one in series for value in one.values if value is not None]
        highest = max(values, default=10.0)
        self.step = next(step for step in (1, 2, 5, 10, 20) if highest / step <= 6 or step == 20)
        self.high = self.step * math.ceil(highest / self.step + 1e-9)
        self.left, self.right, self.top, self.bottom = left, width - right, top, height - bottom

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * value / self.high

    def grid(self, title: str) -> str:
        parts = []
        for i in range(round(self.high / self.step) + 1):
            y = self.y(i * self.step)
            parts.append(
                f'<line x1="{self.left}" x2="{self.right}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>'
            )
            parts.append(_text(self.left - 8, y + 4, str(i * self.step), anchor="end", dim=True))
        middle = (self.top + self.bottom) / 2
        parts.append(
            f'<text transform="translate(12 {middle:.0f}) rotate(-90)" text-anchor="middle" '
            f'fill="var(--dim)">{escape(title)}</text>'
        )
        return "".join(parts)


def _open(width: int, height: int) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" width="{width}" height="{height}">'


def _legend(names: Sequence[tuple[str, str]], width: int) -> str:
    parts = []
    for i, (key, name) in enumerate(names):
        x, y = 46 + (i % 4) * (width - 60) / 4, 14 + 20 * (i // 4)
        colour, dash = method_colour(key)
        parts.append(
            f'<line x1="{x:.0f}" x2="{x + 24:.0f}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" '
            f'stroke-width="{3 if key == "note" else 2}" stroke-dasharray="{dash}"/>'
        )
        parts.append(_text(x + 30, y, name))
    return "".join(parts)


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", dim: bool = False, small: bool = False
) -> str:
    colour = "var(--dim)" if dim else "var(--fg)"
    size = ' font-size="10"' if small else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{size}>{escape(text)}</text>'
