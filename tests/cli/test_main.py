import subprocess
import sys

import pytest
from typer.testing import CliRunner

import note_tta
from note_tta import cli


def run(*arguments):
    code = "import sys; from note_tta.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def test_help_lists_every_command_without_importing_torch():
    code = (
        "import sys; sys.argv = ['note-tta', '--help']; from note_tta.cli import main\n"
        "try: main()\nexcept SystemExit: print('torch' in sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    assert out.endswith("False\n")
    assert all(name in out for name in cli._COMMANDS)


@pytest.mark.parametrize("name", cli._COMMANDS)
def test_every_command_has_a_help_of_its_own(name):
    result = CliRunner().invoke(cli.app, [name, "--help"])
    assert result.exit_code == 0 and "Usage" in result.output


def test_version():
    assert run("--version").stdout == f"note-tta {note_tta.__version__}\n"


def test_no_arguments_is_help():
    assert "Usage" in CliRunner().invoke(cli.app, []).output


def test_a_users_mistake_is_one_line_and_exit_code_2():
    done = run("run", "--method", "magic", "--dataset", "digits")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and "magic" in done.stderr
