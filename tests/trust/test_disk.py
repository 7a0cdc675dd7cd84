"""A full disk and folders that cannot be written to: one clear line, exit code 2, nothing half-written."""

import os
import subprocess
import sys

import pytest

from benchmarks.trust.common import MODELS

MAIN = "from note_tta.cli import main; main()"


def cli(*arguments, folder, code=MAIN):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NOTE_TTA_DATA": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
    )


def assert_one_clear_line(done, word):
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and word in errors[0], done.stderr


def train_into(folder):
    return (
        "train",
        "--dataset",
        "digits",
        "--width",
        "2",
        "--epochs",
        "1",
        "--samples",
        "64",
        "--out",
        folder,
    )


def run_into(folder):
    where = ("--models", MODELS, "--results", folder)
    return ("run", "--dataset", "digits", "--width", "8", "--samples", "64", "--domains", "style", *where)


@pytest.fixture
def tiny_disk(tmp_path):
    """A disk of 64 kB that is full up to its last page."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a tmpfs can be mounted by root only: {mounted.stderr.strip()}")
    with (place / "ballast").open("wb") as ballast:
        ballast.write(bytes(60_000))
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.slow
def test_a_full_disk_is_one_clear_line_and_leaves_nothing_half_written(tiny_disk, tmp_path):
    for arguments in (train_into(tiny_disk / "m.safetensors"), run_into(tiny_disk / "results")):
        filled = tiny_disk / "filled"
        with filled.open("wb") as rest:
            try:
                while True:
                    rest.write(bytes(512))
                    rest.flush()
            except OSError:
                pass
        assert_one_clear_line(cli(*arguments, folder=tmp_path), "No space left on device")
        left = {path.name for path in tiny_disk.rglob("*") if path.is_file()}
        assert left == {"ballast", "filled"}


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_to_is_one_clear_line(tmp_path):
    """A file in the place of a folder, and for users other than root a folder without permission."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    for arguments in (train_into(blocked / "m.safetensors"), run_into(blocked)):
        assert_one_clear_line(cli(*arguments, folder=tmp_path), str(blocked))


@pytest.mark.slow
def test_a_read_only_disk_is_one_clear_line(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a tmpfs can be mounted by root only: {mounted.stderr.strip()}")
    try:
        for arguments in (train_into(place / "m.safetensors"), run_into(place / "results")):
            assert_one_clear_line(cli(*arguments, folder=tmp_path), "Read-only file system")
    finally:
        subprocess.run(["umount", str(place)], check=True)
