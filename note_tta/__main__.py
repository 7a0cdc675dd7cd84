"""The command `note-tta`, also as `python -m note_tta`."""

from __future__ import annotations

import sys

from .extras import MissingExtra, require


def main() -> None:
    """Run the command line, or say in one line what has to be installed for it."""
    try:
        require("the command line", "experiments", "typer", "rich")
    except MissingExtra as error:
        sys.exit(f"error: {error}")
    from .cli import main as run

    run()


if __name__ == "__main__":
    main()
