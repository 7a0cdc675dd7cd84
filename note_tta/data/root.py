"""Where data lives: the caller's folder, else `NOTE_TTA_DATA`, else the user's cache folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ENVIRONMENT_VARIABLE = "NOTE_TTA_DATA"


def cache_folder() -> Path:
    """The folder for data that nobody chose a place for, by the platform's custom."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "note-tta"


def resolve_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The data root: `root` if given, else `$NOTE_TTA_DATA`, else the user's cache folder.

    The folder need not exist yet. A path that exists and is not a folder is refused.

    >>> resolve_root("somewhere").name
    'somewhere'
    """
    chosen = root if root is not None else os.environ.get(ENVIRONMENT_VARIABLE) or cache_folder()
    path = Path(chosen).expanduser()
    if path.exists() and not path.is_dir():
        raise ValueError(f"the data root must be a folder, but {path} is a file")
    return path
