"""The tables of docs/filter.md, from `results/studies/filter.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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
METHODS = {"source": "Source", "note": "NOTE", "lame": "LAME"}


def gains() -> str:
    """What the filter does to Source and NOTE on correlated and on shuffled streams."""
    rows = []
    for row in _rows():
        if (
            "-" not in row["data"]
            and row["order"] == "correlated"
            and row["method"] in ("source", "note")
            and row["layers"] == _main(row["data"])
        ):
            shuffled = _find(row, order="shuffled")
            rows.append(
                (
                    _title(row["data"]),
                    f"{row['samples']:,}",
                    f"{row['run']:.1f}",
                    METHODS[row["method"]],
                    _change(row),
                    f"{row['doubled']:.2f}",
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
        "Shuffled",
        "Worst shuffled",
    )
    return _table(heads, rows)


def variants() -> str:
    """The filter with one setting changed: mean error of NOTE with the filter."""
    found = _study().get("variants")
    if not found:
        return NONE.format(step="vary")
    columns = list(found["as chosen"])
    heads = ("Setting", *(f"{_title(c.split()[0], short=True)}, {c.split()[1]}" for c in columns))
    return _table(heads, ((name, *(f"{row[c]:.2f}" for c in columns)) for name, row in found.items()))


def layers() -> str:
    """What `adapt` chose between: layers and warm starts, each with the filter, on correlated streams."""
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
                shown = ["–" if cell is None else f"{cell[key]:.2f}" for cell in cells]
                lines.append((LAYERS[layer], _method(method), *shown))
    return _table(heads, lines)


def cost() -> str:
    """Microseconds per sample."""
    found = _study().get("cost")
    if not found:
        return NONE.format(step="cost")
    return _table(
        ("Classes", "Microseconds per sample"), ((f"{int(k):,}", f"{v:.0f}") for k, v in found.items())
    )


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
    """The layers that the filter's tables show: trained ones, where there are."""
    found = {row["layers"] for row in _rows() if row["data"] == data}
    return "iabn" if "iabn" in found else "swapped"


def _title(data: str, short: bool = False) -> str:
    name, _, images = data.partition("-")
    title = TITLES[name].split(",")[0] if short else TITLES[name]
    return f"{title} ({int(images):,} images)" if images else title


def _method(name: str) -> str:
    if name == "lame":
        return "LAME, without the filter"
    return METHODS.get(name, name.replace("note warm ", "NOTE, warm start ")) + ", filter"


def _change(row: dict[str, Any]) -> str:
    return f"{row['error']:.2f} → {row['filtered']:.2f}"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = tuple(heads)
    rule = "|---" * 1 + "|---:" * (len(heads) - 1) + "|"
    return "\n".join(
        ["| " + " | ".join(heads) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)]
    )
