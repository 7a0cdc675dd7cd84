"""The states of many streams in a folder, by id; they stay complete if the process is killed.

Each state is kept as a record (see `codec`). The records are in an SQLite database with a write-ahead log, which
can replace many records in one commit. `python -m benchmarks --fleet --only stores` compares this with one file per
stream.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sqlite3
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from .codec import Codec

Id = str | int

FORMAT = 1
"""The format of the folder."""
_PAGE = 65536
"""Bytes per database page. This is SQLite's maximum, because a record has hundreds of kilobytes."""


class Store:
    """A folder of streams. While it is open, no other process can open it.

    Committed states survive if the process is killed at any moment. After a power cut the folder is intact, but may
    lack commits that came after the last `flush`.

    Args:
        folder: The folder; it is created if it does not exist.

    Raises:
        ValueError: Another process has the folder open, or a newer version of the library has written it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
        ...     store.put("cam-1", {"counters": {"samples": 3}}, shape=None)
        ...     store.commit()
        ...     list(store), store.get("cam-1")
        (['cam-1'], {'counters': {'samples': 3}})
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"spill must be a folder, but {self.folder} is a file")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._path = self.folder / "streams.sqlite"
        self._open: sqlite3.Connection | None = _open(self._path)
        self._process, self._file = os.getpid(), self._path.stat().st_ino
        self.codec = Codec()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_leave_to_parent, weakref.ref(self)))

    def put(self, stream: Id, state: Mapping[str, Any], shape: tuple[int, ...] | None) -> None:
        """Write a stream's state over the previous one; the next `commit` makes this permanent.

        Args:
            stream: The id of the stream.
            state: Tensors and plain values.
            shape: The shape of the samples in the stream's memory.
        """
        record = self.codec.encode(state)
        self._change(
            "INSERT INTO streams VALUES (?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET shape = excluded.shape, record = excluded.record",
            _key(stream),
            None if shape is None else json.dumps(shape),
            record,
        )

    def get(self, stream: Id) -> dict[str, Any]:
        """Return a stream's state.

        Raises:
            KeyError: There is no such stream.
            ValueError: Its record is damaged.
        """
        rows = self._run("SELECT record FROM streams WHERE id = ?", _key(stream))
        if not rows:
            raise KeyError(stream)
        try:
            return self.codec.decode(rows[0][0])
        except ValueError as error:
            raise ValueError(f"stream {stream!r} in {self.folder} is damaged: {error}") from error

    def shape(self, stream: Id) -> tuple[int, ...] | None:
        """The shape of the samples in a stream's memory; None if the memory is empty."""
        rows = self._run("SELECT shape FROM streams WHERE id = ?", _key(stream))
        return tuple(json.loads(rows[0][0])) if rows and rows[0][0] is not None else None

    def shapes(self) -> set[tuple[int, ...]]:
        """The set of all sample shapes in the folder."""
        rows = self._run("SELECT DISTINCT shape FROM streams WHERE shape IS NOT NULL")
        return {tuple(json.loads(shape)) for (shape,) in rows}

    def remove(self, stream: Id) -> None:
        """Delete a stream; the next `commit` makes this permanent."""
        self._change("DELETE FROM streams WHERE id = ?", _key(stream))

    def commit(self) -> None:
        """Make all changes so far survive the end of the process. If this fails, none of them is made.

        Raises:
            OSError: The disk is full, or the folder is gone.
        """
        if self.has_changes:
            self._check_file()
            self._change("COMMIT")

    def flush(self) -> None:
        """Commit, and wait until all is on disk."""
        self._check_file()
        self.commit()
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")

    def note(self, name: str, value: str | None = None) -> str | None:
        """Return a short text that is kept with the streams; with `value`, store it first."""
        if value is not None:
            self._run(
                "INSERT INTO notes VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                name,
                value,
            )
        rows = self._run("SELECT value FROM notes WHERE name = ?", name)
        return str(rows[0][0]) if rows else None

    def close(self) -> None:
        """Commit, close the database and release the lock. In a fork of the process, do nothing."""
        if self.is_open:
            database = self._database
            try:
                self.flush()
            finally:
                self._open = None
                database.close()

    @property
    def is_open(self) -> bool:
        """Whether the folder is open; never in a fork of the process that opened it."""
        return self._open is not None and self._process == os.getpid()

    @property
    def has_changes(self) -> bool:
        """Whether there are changes since the last commit."""
        return self._database.in_transaction

    @property
    def _database(self) -> sqlite3.Connection:
        if self._open is None:
            raise ValueError(f"{self.folder} was closed: make a new fleet on it")
        if self._process != os.getpid():
            raise ValueError(
                f"{self.folder} is open in another process, which this one was forked from: make a fleet with its own "
                "folder here"
            )
        return self._open

    def _run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise _named(error, self._path) from error

    def _change(self, statement: str, *values: object) -> None:
        """Run a statement of a transaction. If it fails, nothing since the last commit is kept."""
        if not self.has_changes:
            self._run("BEGIN")
        try:
            self._run(statement, *values)
        except BaseException:
            self.roll_back()
            raise

    def roll_back(self) -> None:
        """Give up all changes since the last commit."""
        with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back already
            self._database.execute("ROLLBACK")

    def _check_file(self) -> None:
        """Raise `OSError` if the file is no longer the one that was opened: SQLite would write to a deleted file."""
        try:
            found = self._path.stat().st_ino
        except FileNotFoundError:
            found = -1
        if found != self._file:
            raise OSError(f"{self._path} was deleted or replaced while it was in use")

    def __contains__(self, stream: Id) -> bool:
        return bool(self._run("SELECT 1 FROM streams WHERE id = ?", _key(stream)))

    def __iter__(self) -> Iterator[Id]:
        return (_stream(key) for (key,) in self._run("SELECT id FROM streams ORDER BY id"))

    def __len__(self) -> int:
        count: int = self._run("SELECT count(*) FROM streams")[0][0]
        return count

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _leave_to_parent(reference: weakref.ref[Store]) -> None:
    """Never free the connection in a fork: SQLite would delete the log that the parent process still writes."""
    store = reference()
    if store is not None and store._open is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(store._open))


def _key(stream: Id) -> bytes:
    """The database key of an id; a prefix separates strings from ints, so that "1" and 1 differ."""
    if isinstance(stream, str):
        return b"s" + stream.encode("utf-8", "surrogatepass")
    return b"i%d" % stream


def _stream(key: bytes) -> Id:
    return key[1:].decode("utf-8", "surrogatepass") if key[:1] == b"s" else int(key[1:])


def _open(path: Path) -> sqlite3.Connection:
    """Open the database. The operating system locks it until it is closed or the process ends."""
    database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        database.execute(f"PRAGMA page_size = {_PAGE}")
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("BEGIN EXCLUSIVE")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > FORMAT:
            raise ValueError(f"{path.parent} was written by a newer version of note-tta: update note-tta")
        database.execute("CREATE TABLE IF NOT EXISTS streams (id BLOB PRIMARY KEY, shape TEXT, record BLOB)")
        database.execute("CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT)")
        database.execute(f"PRAGMA user_version = {FORMAT}")
        database.execute("COMMIT")
    except sqlite3.DatabaseError as error:
        database.close()
        if "locked" in str(error):
            raise ValueError(
                f"{path.parent} is in use by another fleet or process: give each its own folder"
            ) from None
        raise _named(error, path) from error
    except BaseException:
        database.close()
        raise
    return database


def _named(error: sqlite3.DatabaseError, path: Path) -> Exception:
    """The same error with the name of the file: `OSError` if it could not be written, `ValueError` if it is damaged."""
    if isinstance(error, sqlite3.OperationalError):
        return OSError(f"{path}: {error}")
    return ValueError(f"{path} is not a store of streams, or damaged: {error}")
