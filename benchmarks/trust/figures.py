"""A file of figures that several runs write to, each its own part."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from note_tta.files import write_text
from note_tta.provenance import provenance


def read(path: Path, part: str) -> dict[str, Any]:
    """A part of the figures that are in the file."""
    found: dict[str, Any] = json.loads(path.read_text()).get(part, {}) if path.is_file() else {}
    return found


def write(path: Path, where: tuple[str, ...], figures: dict[str, Any]) -> None:
    """Put figures into the file, beside what is there, with the commit that they were measured at."""
    source = provenance()
    content = json.loads(path.read_text()) if path.is_file() else {}
    place = content
    for key in where[:-1]:
        place = place.setdefault(key, {})
    place[where[-1]] = {**place.get(where[-1], {}), **figures, "commit": source["commit"]}
    content["provenance"] = source
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    print(*where, json.dumps(figures, ensure_ascii=False), file=sys.stderr, flush=True)
