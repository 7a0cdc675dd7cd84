"""The example scripts run as a user would run them, and the new method keeps to the contract."""

import csv
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.slow


def run(root, folder, script, *arguments, **environment):
    command = [sys.executable, str(root / "examples" / script), *map(str, arguments)]
    settings = os.environ | {"OMP_NUM_THREADS": "1", "NOTE_TTA_DATA": str(folder / "none")} | environment
    done = subprocess.run(
        command, cwd=folder, env=settings, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_images(folder, count):
    from note_tta.data import open_dataset

    folder.mkdir()
    domain = open_dataset("digits").domain("contrast")
    pixels = (domain.inputs(slice(count)) * 255).round().numpy().astype(np.uint8)
    for i in range(count):
        Image.fromarray(pixels[i, 0]).save(folder / f"{i:04}.png")
    return domain.labels[:count].tolist()


def test_the_camera_adapts_and_remembers(root, tmp_path):
    first = run(root, tmp_path, "webcam_stream.py", "--count", 200)
    assert "3 updates, error so far" in first and "samples 200" in first
    write_images(tmp_path / "frames", 70)
    second = run(root, tmp_path, "webcam_stream.py", "--frames", "frames")
    assert "continuing after 200 frames" in second
    assert "4 updates\n" in second and "samples 270" in second


def test_the_wearable_follows_a_person(root, tmp_path):
    output = run(root, tmp_path, "sensor_stream.py", "--epochs", 4)
    assert "using synthetic recordings instead" in output
    assert "user22:" in output and "windows" in output and "second     0:" in output


def test_many_streams_each_recover(root, tmp_path):
    output = run(root, tmp_path, "many_streams.py", "--streams", 25, "--spill", "streams")
    head, *rows = output.splitlines()
    assert head.startswith("25 streams, 8,000 samples, 250 updates")
    drifts = {row[:18].strip(): (float(row.split()[-9]), float(row.split()[-7])) for row in rows}
    assert len(drifts) == 5
    assert all(fleet < model - 2 for drift, (model, fleet) in drifts.items() if drift != "none")
    assert (tmp_path / "streams" / "streams.sqlite").exists()


def test_the_nightly_job_goes_on_where_it_was(root, tmp_path):
    labels = write_images(tmp_path / "today", 80)
    (tmp_path / "today" / "9999.png").write_bytes(b"not an image")
    assert "81 images, 1 unreadable; 1 updates in total" in run(
        root, tmp_path, "batch_job.py", "today", "out.csv"
    )
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 81 and rows[80] == {"file": "9999.png", "class": "", "confidence": ""}
    wrong = sum(int(row["class"]) != label for row, label in zip(rows, labels, strict=False))
    assert wrong < 40
    again = run(root, tmp_path, "batch_job.py", "today", "out.csv")
    assert "2 unreadable; 2 updates in total" in again


def test_the_method_of_the_page_passes_the_contract_suite(root, tmp_path):
    """As the page says: the file into the package, one line into `names.py`, then the suite."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "note_tta", tmp_path / "note_tta", ignore=ignored)
    shutil.copytree(root / "tests" / "methods", tmp_path / "tests" / "methods", ignore=ignored)
    shutil.copy(root / "tests" / "conftest.py", tmp_path / "tests")
    shutil.copy(root / "pyproject.toml", tmp_path)
    shutil.copy(root / "examples" / "temporal_prior.py", tmp_path / "note_tta" / "methods")
    registry = tmp_path / "note_tta" / "names.py"
    page = (root / "docs" / "add-a-method.md").read_text(encoding="utf-8")
    added, anchor = '    "temporal_prior": "temporal_prior:TemporalPrior",\n', "METHOD_HOMES = {\n"
    assert f"+{added}" in page and f" {anchor}" in page
    text = registry.read_text(encoding="utf-8")
    assert text.count(anchor) == 1
    registry.write_text(text.replace(anchor, anchor + added), encoding="utf-8")
    command = [
        "-m",
        "pytest",
        "tests/methods/test_contract.py",
        "-k",
        "temporal_prior",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    passed = int(done.stdout.rpartition(" passed")[0].rpartition("\n")[2].split()[-1])
    assert passed >= 10


def test_the_notebook_is_the_quickstart_and_runs(root, tool):
    pytest.importorskip("nbclient", reason="the docs extra is not installed")
    nbformat = pytest.importorskip("nbformat", reason="the docs extra is not installed")
    notebook = tool("notebook")
    made = notebook.make_notebook(notebook.PAGE.read_text(encoding="utf-8"))
    kept = nbformat.read(notebook.NOTEBOOK, as_version=4)
    nbformat.validate(kept)
    assert [cell.source for cell in kept.cells] == [cell.source for cell in made.cells], "run `make figures`"
    done = notebook.execute(made)
    differs = tool("code_blocks").differs
    for shown, fresh in zip(kept.cells, done.cells, strict=True):
        texts = ["".join(o.get("text", "") for o in c.get("outputs", [])) for c in (shown, fresh)]
        assert differs(*texts) == ""
