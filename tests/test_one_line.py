"""A new method and a new dataset are one file and one line each, and are then everywhere."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

METHOD = '''
from .source import Source


class Calm(Source):
    """Source under another name."""

    title = "Calm & Quiet"
    citation = "Nobody, 2026"
    keeps = "its temper"
    licence = "CC0"
'''

DATASET = """
import numpy as np

from .base import image_domain
from .record import DatasetRecord, Recipe


def _open(root):
    def domain(name, seed):
        labels = np.arange(120) % 2
        noise = np.random.default_rng(seed).integers(0, 60, (120, 32, 32, 1))
        images = (noise + 150 * labels[:, None, None, None]).astype(np.uint8)
        return lambda: image_domain(name, images, labels, origin="embedded")

    domains = {name: domain(name, seed) for seed, name in enumerate(("train", "test", "dusk"))}
    return SHADES.dataset(classes=("dark", "light"), input_shape=(1, 32, 32), openers=domains)


SHADES = DatasetRecord(
    name="shades",
    title="Shades of Grey",
    classes=2,
    targets=("dusk",),
    stream="dirichlet",
    network="digits_cnn",
    recipe=Recipe(epochs=1, lr=0.01),
    opens=_open,
    checks=lambda root: iter(()),
)
"""

SCRIPT = """
import sys

from typer.testing import CliRunner

from note_tta.cli import app

sys.path.insert(0, "docs/tools")


def call(*words):
    done = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


for command in (["run", "--help"], ["train", "--help"], ["data", "list"]):
    assert "shades" in call(*command), command
assert "calm" in call("run", "--help")
call("train", "--dataset", "shades", "--norm", "bn")
words = ["table-methods", "--dataset", "shades", "--rows", "source", "calm", "--seeds", "0", "--workers", "1"]
printed = call("reproduce", *words)
assert "| Calm & Quiet | " in printed and "| Method | Shades of Grey" in printed, printed
call("report", "results", "--out", "report")
markdown, page = (open(f"report/{name}", encoding="utf-8").read() for name in ("results.md", "index.html"))
for text in (markdown, page.replace("&amp;", "&")):
    assert "Calm & Quiet" in text and "Shades of Grey" in text
import costs
import record_tables

assert "| Calm & Quiet | `calm` | – | yes | 1 | its temper | CC0 |" in record_tables.method_table()
assert "| Shades of Grey | `shades` | 2 | 1 | dirichlet | `digits_cnn` |" in record_tables.dataset_table()
assert "::: note_tta.Calm" in record_tables.method_entries()
assert "Shades of Grey" in costs.reproduce_table()
import note_tta

assert note_tta.Calm is note_tta.METHODS["calm"]
"""


@pytest.mark.slow
def test_one_file_and_one_line_are_all_it_takes(tmp_path):
    shutil.copytree(ROOT / "note_tta", tmp_path / "note_tta", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs" / "tools", tmp_path / "docs" / "tools")
    (tmp_path / "note_tta" / "methods" / "calm.py").write_text(METHOD)
    (tmp_path / "note_tta" / "data" / "shades.py").write_text(DATASET)
    names = tmp_path / "note_tta" / "names.py"
    text = names.read_text(encoding="utf-8")
    for anchor, line in (
        ("METHOD_HOMES = {\n", '    "calm": "calm:Calm",\n'),
        ("DATASET_HOMES = {\n", '    "shades": "shades:SHADES",\n'),
    ):
        assert text.count(anchor) == 1
        text = text.replace(anchor, anchor + line)
    names.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "NOTE_TTA_DATA": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
