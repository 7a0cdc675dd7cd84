"""Optional packages: a missing one is reported in one line with the command that installs it."""

from __future__ import annotations

from importlib.util import find_spec


class MissingExtra(ModuleNotFoundError):
    """A part of the library was used without the packages that it needs."""


def require(part: str, extra: str, *packages: str) -> None:
    """Check that the packages of an extra are installed.

    Args:
        part: The part of the library that needs them.
        extra: The extra that installs them.
        *packages: The names to import.

    Raises:
        MissingExtra: A package is missing. The message has the command that installs it.

    Example:
        >>> require("the moon", "rockets", "torch", "saturn_v")
        Traceback (most recent call last):
        note_tta.extras.MissingExtra: the moon needs saturn_v: pip install 'note-tta[rockets]'
    """
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtra(f"{part} needs {package}: pip install 'note-tta[{extra}]'", name=package)
