"""The command line, `note-tta`: one file per subcommand, each imported only when it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from .. import __version__
from ..extras import MissingExtra

_COMMANDS = ["demo", "data", "train", "run", "reproduce", "report", "serve", "doctor"]
if (Path(__file__).parents[2] / "benchmarks" / "__main__.py").is_file():  # in a clone, not in a wheel
    _COMMANDS.append("bench")


class _LazyGroup(TyperGroup):
    """A group whose subcommand `<name>` is the `app` (a `typer.Typer`) of `note_tta.cli.<name>`."""

    def list_commands(self, ctx: Any) -> list[str]:
        return _COMMANDS

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _COMMANDS:
            return None
        command = typer.main.get_command(import_module(f".{cmd_name}", __name__).app)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    """Keep a trained classifier accurate on a drifting, time-correlated stream."""
    if version:
        print(f"note-tta {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; a user's mistake becomes one clear line and exit code 2."""
    try:
        app()
    except (ValueError, TypeError, OSError, MissingExtra) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
