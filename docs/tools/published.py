"""Which results the pages, the README and their tests are made from.

`note-tta report results/0.2 --archive results/0.1 --out docs`, `note-tta report results/0.1 --out docs/archive` and
`make figures` regenerate them.
"""

from __future__ import annotations

from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / "results" / "0.2"
"""What the results page and the README's table are made from."""

ARCHIVE = RESULTS.with_name("0.1")
"""The results of version 0.1, which have their own page and a section on the results page."""
