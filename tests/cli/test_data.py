"""`note-tta data`, every subcommand, as a user calls it."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from note_tta.cli import app, main

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))

from published_formats import write_cifar10, write_hapt


def run(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def root(tmp_path):
    write_cifar10(tmp_path)
    write_hapt(tmp_path)
    return tmp_path


def test_list_names_every_dataset():
    result = run("list")
    assert result.exit_code == 0
    names = {line.split()[0] for line in result.output.splitlines() if line[0] != " "}
    assert names == {
        "cifar10",
        "cifar100",
        "imagenet",
        "mnist",
        "kitti",
        "harth",
        "extrasensory",
        "hapt",
        "digits",
    }


def test_status_tells_what_is_there(root):
    result = run("status", "--data-root", root)
    lines = result.output.splitlines()
    assert lines[0] == f"data root: {root}"
    assert "yes hapt          1 of 9 target domains (published)" in lines
    assert any(line.startswith("no  harth") and "note-tta data download harth" in line for line in lines)


def test_the_environment_names_the_root(root, monkeypatch):
    monkeypatch.setenv("NOTE_TTA_DATA", str(root))
    assert f"data root: {root}" in run("status").output


def test_prepare_then_verify_then_preview(root, tmp_path):
    options = ["--severity", 5, "--corruption", "fog", "--workers", 1, "--data-root", root]
    result = run("prepare", "cifar10", *options)
    assert result.exit_code == 0
    assert f"regenerated set: {root / 'CIFAR-10-C-regenerated'}" in result.output
    result = run("verify", "cifar10", "--data-root", root)
    assert result.exit_code == 1  # ten images a batch are not CIFAR-10
    assert "BAD  train: 10 samples, published 50,000" in result.output
    assert "ok   fog: 20 images, checksums right for severity 5" in result.output
    out = tmp_path / "fog.png"
    result = run("preview", "cifar10", "--data-root", root, "--out", out)
    assert "14 made for this picture" in result.output
    assert out.stat().st_size > 10_000


def test_verify_succeeds_on_whole_data(tmp_path):
    result = run("verify", "digits", "--data-root", tmp_path)
    assert result.exit_code == 0
    assert "BAD" not in result.output


def test_download_of_the_embedded_set_is_nothing_to_do(tmp_path):
    result = run("download", "digits", "--data-root", tmp_path)
    assert result.exit_code == 0
    assert "nothing to download" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "cifar10"], "error: cifar10 test images not found; looked in"),
        (["verify", "svhn"], "error: unknown dataset 'svhn'; known are cifar10"),
        (["preview", "digits", "--out", "x.gif"], "error: the picture's name must end in .png"),
        (["download", "svhn"], "error: unknown dataset 'svhn'"),
    ],
)
def test_a_user_error_is_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(sys, "argv", ["note-tta", "data", *arguments, "--data-root", str(tmp_path)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(message)
    assert len(said.splitlines()) == 1


def test_help_imports_nothing_heavy():
    script = (
        "import sys; from note_tta.cli import app\n"
        "try: app(['data', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'numpy', 'PIL'} & set(sys.modules), 'heavy import'"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=120)
