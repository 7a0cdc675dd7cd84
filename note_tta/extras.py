"""What the optional parts need: a missing package is reported in one line, with the command that installs it."""

from __future__ import annotations

from importlib.util import find_spec


class MissingExtra(ModuleNotFoundError):
    """A part of the library was used without the packages it needs."""


def require(part: str, extra: str, *packages: str) -> None:
    """Make sure that the packages of an extra are installed.

    Args:
        part: What needs them.
        extra: The extra that brings them.
        *packages: The names they are imported by.

    Raises:
        MissingExtra: One is not there; the message has the command that installs it.

    Example:
        >>> require("the moon", "rockets", "torch", "saturn_v")
        Traceback (most recent call last):
        note_tta.extras.MissingExtra: the moon needs saturn_v: pip install 'note-tta[rockets]'
    """
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtra(f"{part} needs {package}: pip install 'note-tta[{extra}]'", name=package)
