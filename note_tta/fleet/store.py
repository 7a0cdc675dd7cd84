"""States of many streams in a folder: whole after any kill, found by id, one process at a time.

A state is kept as a record (see `codec`). The records are in an SQLite database with a write-ahead log, which
replaces many of them in one commit
(`python -m benchmarks --fleet --only stores` measures it against a file per stream).
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
"""Bytes of a database page: the largest there is, for records of hundreds of kilobytes."""


class Store:
    """A folder of streams, locked against every other process while it is open.

    What was committed is there after the process is killed at any moment; after a power cut it is whole, and as of
    the last `flush`.

    Args:
        folder: The folder; made where it is not there.

    Raises:
        ValueError: Another process has it open, or it is of a newer version.

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
            raise ValueError(f"spill must be a folder, {self.folder} is a file")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._database = _open(self.folder / "streams.sqlite")
        self.closed = False
        self.codec = Codec()

    def put(self, stream: Id, state: Mapping[str, Any], shape: tuple[int, ...] | None) -> None:
        """Write a stream's state in the place of the one before; it is there for good after `commit`.

        Args:
            stream: The stream.
            state: Tensors and plain values.
            shape: Of the samples that its memory holds.
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
        """A stream's state.

        Raises:
            KeyError: The stream is not here.
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
        """The shape of the samples that a stream's memory holds; None where it holds none."""
        row = self._database.execute("SELECT shape FROM streams WHERE id = ?", (_key(stream),)).fetchone()
        return None if row is None or row[0] is None else tuple(json.loads(row[0]))

    def shapes(self) -> set[tuple[int, ...]]:
        """Every shape of samples that there is."""
        rows = self._database.execute("SELECT DISTINCT shape FROM streams WHERE shape IS NOT NULL")
        return {tuple(json.loads(shape)) for (shape,) in rows}

    def remove(self, stream: Id) -> None:
        """Forget a stream, for good after `commit`."""
        if not self._database.in_transaction:
            self._database.execute("BEGIN")
        self._database.execute("DELETE FROM streams WHERE id = ?", (_key(stream),))

    def commit(self) -> None:
        """Let what was put and removed survive the process."""
        if self._database.in_transaction:
            self._database.execute("COMMIT")

    def flush(self) -> None:
        """Commit, and wait until all is on the disk."""
        self.commit()
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def note(self, name: str, value: str | None = None) -> str | None:
        """A short text kept with the streams; with `value`, it is kept from now on."""
        if value is not None:
            self._database.execute(
                "INSERT INTO notes VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (name, value),
            )
        row = self._database.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def close(self) -> None:
        """Commit, close and unlock."""
        if not self.closed:
            self.flush()
            self._database.close()
            self.closed = True

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
    """An id as the database has it: text and numbers apart, whatever the text."""
    if isinstance(stream, str):
        return b"s" + stream.encode("utf-8", "surrogatepass")
    return b"i%d" % stream


def _stream(key: bytes) -> Id:
    return key[1:].decode("utf-8", "surrogatepass") if key[:1] == b"s" else int(key[1:])


def _open(path: Path) -> sqlite3.Connection:
    """The database, locked by the operating system for as long as it is open or the process lives."""
    database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        database.execute(f"PRAGMA page_size = {_PAGE}")
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("BEGIN EXCLUSIVE")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > FORMAT:
            raise ValueError(f"{path.parent} was written by a newer version: update note-tta")
        database.execute("CREATE TABLE IF NOT EXISTS streams (id BLOB PRIMARY KEY, shape TEXT, record BLOB)")
        database.execute("CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT)")
        database.execute(f"PRAGMA user_version = {FORMAT}")
        database.execute("COMMIT")
    except sqlite3.OperationalError as error:
        database.close()
        if "locked" not in str(error):
            raise ValueError(f"{path} cannot be opened: {error}") from error
        raise ValueError(
            f"{path.parent} is in use by another fleet or process: give each a folder of its own"
        ) from None
    except sqlite3.DatabaseError as error:
        database.close()
        raise ValueError(f"{path} is not a store of streams: {error}") from error
    except BaseException:
        database.close()
        raise
    return database
