"""The states of many streams in a folder, by id; they stay complete if the process is killed.

Each state is kept as a record (see `codec`). The records are in an SQLite database with a write-ahead log, which
can replace many records in one commit. `python -m benchmarks --fleet --only stores` compares this with one file per
stream.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
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
        self._open: sqlite3.Connection | None = _open(self.folder / "streams.sqlite")
        self.codec = Codec()

    def put(self, stream: Id, state: Mapping[str, Any], shape: tuple[int, ...] | None) -> None:
        """Write a stream's state over the previous one; the next `commit` makes this permanent.

        Args:
            stream: The id of the stream.
            state: Tensors and plain values.
            shape: The shape of the samples in the stream's memory.
        """
        record = self.codec.encode(state)
        if not self._database.in_transaction:
            self._database.execute("BEGIN")
        self._database.execute(
            "INSERT INTO streams VALUES (?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET shape = excluded.shape, record = excluded.record",
            (_key(stream), None if shape is None else json.dumps(shape), record),
        )

    def get(self, stream: Id) -> dict[str, Any]:
        """Return a stream's state.

        Raises:
            KeyError: There is no such stream.
            ValueError: Its record is damaged.
        """
        row = self._database.execute("SELECT record FROM streams WHERE id = ?", (_key(stream),)).fetchone()
        if row is None:
            raise KeyError(stream)
        try:
            return self.codec.decode(row[0])
        except ValueError as error:
            raise ValueError(f"stream {stream!r} in {self.folder} is damaged: {error}") from error

    def shape(self, stream: Id) -> tuple[int, ...] | None:
        """The shape of the samples in a stream's memory; None if the memory is empty."""
        row = self._database.execute("SELECT shape FROM streams WHERE id = ?", (_key(stream),)).fetchone()
        return None if row is None or row[0] is None else tuple(json.loads(row[0]))

    def shapes(self) -> set[tuple[int, ...]]:
        """The set of all sample shapes in the folder."""
        rows = self._database.execute("SELECT DISTINCT shape FROM streams WHERE shape IS NOT NULL")
        return {tuple(json.loads(shape)) for (shape,) in rows}

    def remove(self, stream: Id) -> None:
        """Delete a stream; the next `commit` makes this permanent."""
        if not self._database.in_transaction:
            self._database.execute("BEGIN")
        self._database.execute("DELETE FROM streams WHERE id = ?", (_key(stream),))

    def commit(self) -> None:
        """Make all changes so far survive the end of the process."""
        if self._database.in_transaction:
            self._database.execute("COMMIT")

    def flush(self) -> None:
        """Commit, and wait until all is on disk."""
        self.commit()
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def note(self, name: str, value: str | None = None) -> str | None:
        """Return a short text that is kept with the streams; with `value`, store it first."""
        if value is not None:
            self._database.execute(
                "INSERT INTO notes VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (name, value),
            )
        row = self._database.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def close(self) -> None:
        """Commit, close the database and release the lock."""
        if self._open is not None:
            self.flush()
            self._open.close()
            self._open = None

    @property
    def is_open(self) -> bool:
        """Whether the folder is open."""
        return self._open is not None

    @property
    def _database(self) -> sqlite3.Connection:
        if self._open is None:
            raise ValueError(f"{self.folder} was closed: make a new fleet on it")
        return self._open

    def __contains__(self, stream: Id) -> bool:
        found = self._database.execute("SELECT 1 FROM streams WHERE id = ?", (_key(stream),))
        return found.fetchone() is not None

    def __iter__(self) -> Iterator[Id]:
        rows = self._database.execute("SELECT id FROM streams ORDER BY id").fetchall()
        return (_stream(key) for (key,) in rows)

    def __len__(self) -> int:
        count: int = self._database.execute("SELECT count(*) FROM streams").fetchone()[0]
        return count

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
    except sqlite3.OperationalError as error:
        database.close()
        if "locked" not in str(error):
            raise ValueError(f"{path} cannot be opened: {error}") from error
        raise ValueError(
            f"{path.parent} is in use by another fleet or process: give each its own folder"
        ) from None
    except sqlite3.DatabaseError as error:
        database.close()
        raise ValueError(f"{path} is not a store of streams: {error}") from error
    except BaseException:
        database.close()
        raise
    return database
