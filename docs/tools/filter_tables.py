"""The tables of docs/filter.md, from `results/studies/filter.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from markdown_table import markdown_table

STUDY = Path(__file__).resolve().parents[2] / "results" / "studies" / "filter.json"
TITLES = {
    "cifar10": "CIFAR-10, four extra corruptions",
    "cifar100": "CIFAR-100, four extra corruptions",
    "hapt": "HAPT, source users",
    "extrasensory": "ExtraSensory, source users",
    "digits": "Digits",
}
NONE = "No figures are committed yet: `python -m benchmarks.filter_study {step}` writes them."
LAYERS = {"iabn": "IABN, trained", "swapped": "IABN, swapped in", "bn": "BatchNorm"}
GOALS = {"10": 40, "1000": 150}
METHODS = {"source": "Source", "note": "NOTE", "lame": "LAME"}


def gains() -> str:
    """The effect of the filter on Source and NOTE on correlated and on shuffled streams."""
    rows = []
    for row in _rows():
        if (
            "-" not in row["data"]
            and row["order"] == "correlated"
            and row["method"] in ("source", _learner(row["data"]))
            and row["layers"] == _main(row["data"])
        ):
            shuffled = _find(row, order="shuffled")
            rows.append(
                (
                    _title(row["data"]),
                    f"{row['samples']:,}",
                    f"{row['run']:.1f}",
                    _method(row["method"], filtered=False),
                    _change(row) + _mark(row),
                    f"{row['doubled']:.2f}" if "doubled" in row else "–",
                    f"{row['after shuffled']:.2f}" if "after shuffled" in row else "–",
                    _change(shuffled) if shuffled else "–",
                    f"{shuffled['worst']:+.2f}" if shuffled else "–",
                )
            )
    heads = (
        "Streams",
        "Samples",
        "Mean run",
        "Method",
        "Correlated",
        "Logits doubled",
        "After a shuffle",
        "Shuffled",
        "Worst shuffled",
    )
    return markdown_table(heads, rows) + _legend()


def variants() -> str:
    """The filter with one setting changed: mean error of `adapt` on BatchNorm models."""
    found = _study().get("variants")
    if not found:
        return NONE.format(step="vary")
    columns = list(found["as chosen"])
    streams = _study()["varied"]
    heads = (
        "Setting",
        *(f"{_title(c.split()[0], short=True)}, {c.split()[1]}, {streams[c]} streams" for c in columns),
    )
    return markdown_table(heads, ((name, *(f"{row[c]:.2f}" for c in columns)) for name, row in found.items()))


def layers() -> str:
    """The choices of `adapt`: layers and warm starts, each with the filter, on correlated streams."""
    kept = [row for row in _rows() if row["order"] == "correlated"]
    data = [
        name
        for name in dict.fromkeys(r["data"] for r in kept)
        if any(r["data"] == name and "warm" in r["method"] for r in kept)
    ]
    heads = ("Layers", "Method", *(_title(name, short=True) for name in data))
    lines = []
    for layer in LAYERS:
        for method in dict.fromkeys(row["method"] for row in kept):
            cells = [
                next((r for r in kept if (r["data"], r["layers"], r["method"]) == (d, layer, method)), None)
                for d in data
            ]
            if any(cells):
                key = "error" if method == "lame" else "filtered"
                shown = ["–" if cell is None else f"{cell[key]:.2f}{_mark(cell)}" for cell in cells]
                lines.append((LAYERS[layer], _method(method), *shown))
    return markdown_table(heads, lines) + _legend()


def cost() -> str:
    """Microseconds per sample."""
    found = _study().get("cost")
    if not found:
        return NONE.format(step="cost")
    rows = ((f"{int(k):,}", f"{v:.0f}", str(GOALS.get(k, "–"))) for k, v in found.items())
    return markdown_table(("Classes", "Microseconds per sample", "Goal"), rows)


def _study() -> dict[str, Any]:
    study: dict[str, Any] = json.loads(STUDY.read_text(encoding="utf-8"))
    return study


def _rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _study()["rows"]
    return rows


def _find(like: dict[str, Any], **other: str) -> dict[str, Any] | None:
    wanted = {key: like[key] for key in ("data", "layers", "method", "order")} | other
    return next((row for row in _rows() if wanted.items() <= row.items()), None)


def _main(data: str) -> str:
    """The layers that the filter's tables show: IABN swapped in, as `adapt` does, where it was run."""
    found = {row["layers"] for row in _rows() if row["data"] == data}
    return "swapped" if "swapped" in found else "iabn"


def _learner(data: str) -> str:
    """The method that learns: with `adapt`'s warm start, where it was run."""
    found = {row["method"] for row in _rows() if (row["data"], row["layers"]) == (data, _main(data))}
    return "note warm 10" if "note warm 10" in found else "note"


def _title(data: str, short: bool = False) -> str:
    name, _, images = data.partition("-")
    title = TITLES[name].split(",")[0] if short else TITLES[name]
    return f"{title} ({int(images):,} images)" if images else title


def _method(name: str, filtered: bool = True) -> str:
    title = METHODS.get(name, name.replace("note warm ", "NOTE, warm start "))
    if not filtered:
        return title
    return f"{title}, without the filter" if name == "lame" else f"{title}, filter"


def _mark(row: dict[str, Any]) -> str:
    """A mark if the row's figure is of other settings of the filter."""
    return "" if row["method"] == "lame" or row["filter"] == _study()["filter"] else " †"


def _legend() -> str:
    """What the marked rows were measured with."""
    now = _study()["filter"].split()
    others = {word for row in _rows() for word in row["filter"].split() if word not in now}
    return f"\n\n† Measured with other settings: {', '.join(sorted(others))}." if others else ""


def _change(row: dict[str, Any]) -> str:
    return f"{row['error']:.2f} → {row['filtered']:.2f}"
