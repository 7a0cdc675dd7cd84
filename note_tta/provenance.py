"""Where a result comes from: versions, commit, machine and time."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent


def provenance() -> dict[str, Any]:
    """Return what a reader needs to repeat a run of this process.

    Returns:
        `version` of note-tta; `commit` of its source tree and whether the code was `dirty`, both None for an
        installed wheel; versions of `torch`, `numpy` and `python`; `machine`; torch's `threads`; `time` in UTC.

    Example:
        >>> sorted(provenance())
        ['commit', 'dirty', 'machine', 'numpy', 'python', 'threads', 'time', 'torch', 'version']
    """
    import numpy
    import torch

    from . import __version__

    commit = _git("rev-parse", "HEAD") if _is_own_checkout() else None
    changes = None if commit is None else _git("status", "--porcelain", "--", str(_PACKAGE))
    return {
        "version": __version__,
        "commit": commit,
        "dirty": None if changes is None else bool(changes),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _is_own_checkout() -> bool:
    """Whether this is the library's source tree, and not another repository with an installed copy in it."""
    top = _git("rev-parse", "--show-toplevel")
    return top is not None and Path(top).resolve() / _PACKAGE.name == _PACKAGE


def _git(*arguments: str) -> str | None:
    command = ["git", "--no-optional-locks", "-C", str(_PACKAGE), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown processor"
