"""A full disk and folders that cannot be written to: one clear line, exit code 2, nothing half-written."""

import contextlib
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
    small = ("--width", "2", "--epochs", "1", "--samples", "64")
    return ("train", "--dataset", "digits", *small, "--out", folder)


def run_into(folder):
    where = ("--models", MODELS, "--results", folder)
    return ("run", "--dataset", "digits", "--width", "8", "--samples", "64", "--domains", "style", *where)


@contextlib.contextmanager
def mounted(place, options):
    """A disk in memory, mounted at a new folder."""
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a tmpfs can be mounted by root only: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 128 kB."""
    with mounted(tmp_path / "disk", "size=128k") as place:
        yield place


def fill(place, but):
    """Fill a disk up to its last `but` bytes."""
    handle = os.open(place / "ballast", os.O_CREAT | os.O_WRONLY)
    with contextlib.suppress(OSError):
        while os.statvfs(place).f_bavail * os.statvfs(place).f_bsize > but:
            os.write(handle, bytes(1024))
    os.close(handle)


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 8192], ids=["full", "full in the middle of a file"])
def test_a_full_disk_is_one_clear_line_and_leaves_nothing_half_written(small_disk, tmp_path, left):
    fill(small_disk, but=left)
    commands = [train_into(small_disk / "m.safetensors")] + (
        [] if left else [run_into(small_disk / "results")]
    )
    for arguments in commands:
        assert_one_clear_line(cli(*arguments, folder=tmp_path), "No space left on device")
        assert [path.name for path in small_disk.rglob("*") if path.is_file() and path.stat().st_size] == [
            "ballast"
        ]


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_to_is_one_clear_line(tmp_path):
    """A file in the place of a folder, and for users other than root a folder without permission."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    for arguments in (train_into(blocked / "m.safetensors"), run_into(blocked)):
        assert_one_clear_line(cli(*arguments, folder=tmp_path), str(blocked))


@pytest.mark.slow
def test_a_read_only_disk_is_one_clear_line(tmp_path):
    with mounted(tmp_path / "disk", "ro,size=64k") as place:
        for arguments in (train_into(place / "m.safetensors"), run_into(place / "results")):
            assert_one_clear_line(cli(*arguments, folder=tmp_path), "Read-only file system")
