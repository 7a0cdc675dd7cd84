"""Which results the pages, the README and their tests are made from.

`note-tta report results/0.1 --out docs` and `make figures` write them anew.
"""

from __future__ import annotations

from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / "results" / "0.1"
"""The one choice: a folder of results."""
