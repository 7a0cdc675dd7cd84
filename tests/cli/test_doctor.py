import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from note_tta.cli import doctor
from note_tta.families import FAMILIES
from note_tta.nn import native


def told(monkeypatch, kernel=None):
    if kernel is not None:
        monkeypatch.setattr(native, "kernel", lambda: kernel)
    result = CliRunner().invoke(doctor.app, [])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


@pytest.mark.skipif(not native.kernel().active, reason=native.kernel().reason)
def test_doctor_names_kernel_threads_and_device(monkeypatch):
    output = told(monkeypatch)
    assert f"on: fused IABN kernel, {native.kernel().isa} instructions" in output
    assert "threads: torch's own" in output
    assert f"{torch.get_num_threads()} (torch.get_num_threads" in output
    assert torch.__version__ in output


def test_doctor_says_why_the_kernel_is_missing_and_what_to_do(monkeypatch, tmp_path):
    output = told(monkeypatch, native.load(tmp_path / "_iabn.so"))
    assert "off:" in output and "the install found no working C compiler" in output
    assert "install a C compiler (gcc or clang), then install the package again" in output


def test_doctor_says_that_the_environment_switched_it_off(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "0")
    output = told(monkeypatch, native.load(native.kernel().path))
    assert f"off: switched off by the environment variable {native.SWITCH}" in output


def test_doctor_tells_the_data_root(monkeypatch, tmp_path):
    monkeypatch.setenv("NOTE_TTA_DATA", str(tmp_path / "nowhere"))
    assert "nowhere (does not exist yet)" in told(monkeypatch)


def test_doctor_works_without_the_packages_that_data_needs():
    code = "import sys; sys.modules['scipy'] = None; from note_tta.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "doctor"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "none: note_tta.data needs scipy: pip install 'note-tta[experiments]'" in done.stdout


def test_doctor_says_what_can_be_done_with_a_model(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doctors_nets.py").write_text(
        "from torch import nn\n\n\ndef make():\n    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8))\n"
    )
    result = CliRunner().invoke(doctor.app, ["--model", "doctors_nets:make"])
    output = " ".join(result.output.split())
    assert "norm layers 1 GroupNorm; 16 affine parameters" in output
    assert FAMILIES["sample"].convert in output and FAMILIES["sample"].expect in output
    assert "refuse it bn_stats onda: Sequential has no BatchNorm layer" in output
    wrong = CliRunner().invoke(doctor.app, ["--model", "doctors_nets"])
    assert "your own model is named module:name, got 'doctors_nets'" in str(wrong.exception)
