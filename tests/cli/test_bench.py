import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "note_tta"


def test_options_reach_the_benchmarks(program, capfd):
    assert program("bench", "--fleet", "--only", "nothing") == 2
    assert "--only must be among limit, flat, separate" in capfd.readouterr().err


def test_a_package_outside_of_a_clone_has_no_benchmarks_and_no_command_for_them(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "note_tta", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "note_tta", "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "reproduce" in done.stdout and "bench" not in done.stdout
