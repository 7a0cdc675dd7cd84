"""Which results the pages, the README and their tests are made from.

`note-tta report results/0.2 --archive results/0.1 --out docs`, `note-tta report results/0.1 --out docs/archive` and
`make figures` write them anew.
"""

from __future__ import annotations

from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / "results" / "0.2"
"""What the results page and the README's table are made from."""

ARCHIVE = RESULTS.with_name("0.1")
"""Of version 0.1: a page of its own, and a part of the results page that is named so."""
