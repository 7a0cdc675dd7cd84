"""Write docs/guarantees.md from the figures in results/trust and the template beside this file.

python -m benchmarks.trust.guarantees
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jinja2

from note_tta.data.archives import ALLOWANCE, EXPANSION, LONGEST_HEADER
from note_tta.data.pictures import MAX_PIXELS
from note_tta.data.tables import MOST_ROWS
from note_tta.experiments.store import MAX_BYTES

from .common import RESULTS, TREE

PAGE = TREE / "docs" / "guarantees.md"
WATCH = TREE / "results" / "benchmarks" / "watch.json"
TEMPLATE = Path(__file__).with_name("guarantees.md.j2")


def page() -> str:
    """The page's text; a figure that is not in the results is an error, not a gap."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown of our own figures
    )
    environment.filters["thousands"] = "{:,}".format
    environment.filters["signed"] = "{:+.2f}".format
    bounds = {
        "expansion": EXPANSION,
        "allowance_mb": ALLOWANCE >> 20,
        "header_mb": LONGEST_HEADER >> 20,
        "rows": MOST_ROWS,
        "pixels": MAX_PIXELS,
        "result_mb": MAX_BYTES // 10**6,
    }
    figures = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    watch = json.loads(WATCH.read_text())
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        figures, bounds=bounds, watch=watch
    )


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
