"""Atomic writing of files, and their checksums."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: Path, mark: str = "") -> Iterator[Path]:
    """A temporary file beside `path`, which is renamed to `path` if the block succeeds and removed if it fails.

    What a killed process has left is overwritten by the next one. If several processes may write the same
    file, `mark` keeps their temporary names apart.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "a.txt")) as temporary:
    ...         _ = temporary.write_text("whole")
    ...     Path(folder, "a.txt").read_text()
    'whole'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{mark}.part" if mark else f".{path.name}.part")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; refuse it if another process has it. A killed process loses its lock."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as lock:
        try:
            _lock(lock.fileno(), wait=False)
        except BlockingIOError:
            raise ValueError(f"another process is writing to {folder}; wait for it or stop it") from None
        yield


def append_line(path: Path, line: str) -> None:
    r"""Append a line to a file atomically, also if other processes append at the same time.

    A line is complete with its newline. What a killed process left without one is cut off first.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.jsonl")
    ...     _ = path.write_text('{"a": 1}\n{"a": ')
    ...     append_line(path, '{"a": 2}')
    ...     path.read_text().split()
    ['{"a":', '1}', '{"a":', '2}']
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    rest = memoryview(f"{line}\n".encode())
    with path.open("ab+", buffering=0) as file:
        _lock(file.fileno())
        end = _end_of_lines(file)
        file.truncate(end)
        try:
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise


def _end_of_lines(file: BinaryIO) -> int:
    """Where the last complete line of a file ends."""
    place = file.seek(0, os.SEEK_END)
    while place:
        start = max(0, place - (1 << 16))
        file.seek(start)
        found = file.read(place - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        place = start
    return 0


def _lock(descriptor: int, *, wait: bool = True) -> None:
    """Lock an open file for this process until it is closed."""
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that at any moment, also after a kill, it is either the old one or the new one."""
    with replacing(path, f"{os.getpid()}-{threading.get_ident()}") as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """The hex digest of a file's bytes."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
