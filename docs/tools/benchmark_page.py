"""The benchmarks page, from `results/benchmarks/*.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HEAD = """# Benchmarks

Speed is measured as ratios: the things that are compared take turns in one process, so that a busy machine slows all of
them. A figure with a bar is kept or missed. To measure again:

| Command | Measures |
|---|---|
| `make bench` | speed; it fails if a bar is missed |
| `make bench-latency` | single calls |
| `make bench-fleet` | many streams |
| `python -m benchmarks.serve` | the service |
| `python -m benchmarks.corruptions` | the corruptions |
| `python -m benchmarks.kills` | what is lost when fleets and servers are killed |
"""
NONE = "\nNo measurement is committed yet; `make bench` writes one to `results/benchmarks/`.\n"


def benchmarks(folder: Path) -> str:
    """The page in Markdown: one section per file."""
    paths = sorted(folder.glob("*.json"), key=lambda path: (path.stem != "speed", path.stem))
    sections = [_section(path) for path in paths]
    return HEAD + ("\n".join(sections) if sections else NONE)


def _section(path: Path) -> str:
    data = json.loads(path.read_text(encoding="utf-8"))
    lines = [f"\n## {path.stem.replace('_', ' ').replace('-', ' ').capitalize()}\n", _origin(data), ""]
    figures = data.get("figures") if isinstance(data, dict) else None
    if isinstance(figures, list) and figures:
        lines.append(figure_table(figures))
    else:
        lines += _listed(data)
    return "\n".join(lines) + "\n"


def figure_table(figures: Iterable[Mapping[str, Any]]) -> str:
    """Figures with their limits, one per row."""
    head = ["| Figure | Median | Quartiles | Bar | |", "|---|---:|---:|---:|---|"]
    return "\n".join(head + [_row(figure) for figure in figures])


def _origin(data: Any) -> str:
    source = data.get("provenance", {}) if isinstance(data, dict) else {}
    kernel = data.get("kernel", {}) if isinstance(data, dict) else {}
    words = [
        f"note-tta {source['version']}" if "version" in source else "",
        _commits(data),
        f"torch {source['torch']}" if "torch" in source else "",
        f"{source['threads']} threads" if "threads" in source else "",
        f"kernel: {kernel['instruction_set']}" if kernel.get("active") else "",
    ]
    return ", ".join(filter(None, words)) + "." if any(words) else ""


def _commits(data: Any) -> str:
    """The commits at which figures were measured, the latest last."""
    figures = [figure for figure in data.get("figures", ()) if isinstance(figure, dict)]
    told = [figure["commit"] for figure in figures if figure.get("commit")]
    commits = dict.fromkeys(told or filter(None, [data.get("provenance", {}).get("commit")]))
    words = [str(commit)[:10] for commit in commits]
    return f"{'commit' if len(words) == 1 else 'commits'} {', '.join(words)}" if words else ""


def _row(figure: Mapping[str, Any]) -> str:
    unit = f" {figure['unit']}" if figure.get("unit") else ""
    bar = figure.get("bar")
    limit = "" if bar is None else f"{'≤' if figure.get('at_most', True) else '≥'} {_shown(bar)}{unit}"
    verdict = "" if bar is None else "kept" if figure.get("kept") else "**missed**"
    spread = f"{_shown(figure['low'])} – {_shown(figure['high'])}"
    return f"| {figure['name']} | {_shown(figure['value'])}{unit} | {spread} | {limit} | {verdict} |"


def _listed(data: Any, margin: str = "") -> list[str]:
    """Any other JSON: its numbers and short words, one per row; nested values are folded away below."""
    values = data if isinstance(data, dict) else {}
    rows = [
        f"{margin}| {_words(key)} | {_value(value)} |" for key, value in values.items() if _value(value) != ""
    ]
    lines = [f"{margin}| What | Value |", f"{margin}|---|---:|", *rows, ""] if rows else []
    for key, value in values.items():
        inner = _listed(value, margin + "    ") if key != "provenance" else []
        if inner:
            lines += [f'{margin}??? note "{_words(key).capitalize()}"', "", *inner]
    return lines


def _words(key: str) -> str:
    return key.replace("_", " ")


def _value(value: Any) -> str:
    """A number, a bool or a few words; empty for anything else."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _shown(value)
    return value if isinstance(value, str) and len(value) < 80 else ""


def _shown(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"
