"""Compiled kernels kept on disk: safe among processes, bounded in size, rebuilt when damaged."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from intaglio.core.locks import Level, across_forks

if TYPE_CHECKING:
    from collections.abc import Generator

FRESH: Final = 3600.0  # seconds after its last noted use in which an entry's use is not noted again
CHECK_EVERY: Final = 256  # writes between checks of the size
TABLE: Final = "objects (key text primary key, data blob not null, digest blob not null, used real not null)"


def default_folder() -> Path:
    """The user's cache folder for this package."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", str(Path.home()))
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    return Path(base) / "intaglio"


class DiskCache:
    """Keys to bytes in one SQLite file. Every failure of the file or folder means: no cache, never an error."""

    def __init__(self, folder: Path, limit: int) -> None:
        """Open or make the cache.

        Args:
            folder: Where the file lies; made if missing.
            limit: Bytes kept; the entries used longest ago go first.
        """
        self.path: Final = folder / "kernels.sqlite3"
        self.limit: int = limit
        self._lock: Final = across_forks(threading.Lock(), Level.CACHE)
        self._writes: int = 0
        self._process: int = os.getpid()
        self._connection: sqlite3.Connection | None = None
        self._inherited: Final[list[sqlite3.Connection | None]] = []
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        self._open()

    def keep_within(self, limit: int) -> None:
        """Keep no more bytes than this from now on."""
        if limit == self.limit:
            return
        with self._lock:
            self.limit = limit
            connection = self._ready()
            if connection is not None:
                with self._careful():
                    self._shrink(connection)

    @property
    def is_open(self) -> bool:
        """Whether there is a file to keep anything in."""
        return self._connection is not None

    def _open(self) -> None:
        """Connect; a damaged file, or one of another form, is removed and made anew."""
        for attempt in range(2):
            try:
                connection = sqlite3.connect(self.path, timeout=5.0, check_same_thread=False, isolation_level=None)
                connection.text_factory = bytes  # text where bytes should be is damage, and may be no UTF-8
                connection.execute("pragma synchronous=off")  # first: to make the file would else wait for the disk
                connection.execute("pragma journal_mode=wal")
                connection.execute(f"create table if not exists {TABLE}")
                (found,) = connection.execute("select sql from sqlite_master where name = 'objects'").fetchone()
                if found != f"CREATE TABLE {TABLE}".encode():  # as SQLite spells it
                    raise sqlite3.DatabaseError("the table is of another form")
                self._shrink(connection)
                self._connection = connection
                self._process = os.getpid()
            except sqlite3.DatabaseError as error:
                self._connection = None
                if attempt or not _is_damage(error):
                    return
                self._remove()
            else:
                return

    def _remove(self) -> None:
        """Remove the file and its companions."""
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                Path(f"{self.path}{suffix}").unlink()

    def _ready(self) -> sqlite3.Connection | None:
        """The connection of this process (a child after fork opens its own)."""
        if self._process != os.getpid():
            self._inherited.append(self._connection)  # the parent's: not to be closed here
            self._connection = None
            self._open()
        return self._connection

    def get(self, key: str) -> bytes | None:
        """The bytes of a key, or None."""
        with self._lock:
            connection = self._ready()
            if connection is None:
                return None
            with self._careful():
                row = connection.execute("select data, digest, used from objects where key = ?", (key,)).fetchone()
                if row is None:
                    return None
                data, digest, used = row
                if not isinstance(data, bytes) or not isinstance(used, float) or _digest(data) != digest:
                    return None  # what is put in its place is whole
                now = time.time()
                if used < now - FRESH:
                    connection.execute("update objects set used = ? where key = ?", (now, key))
                return data
        return None

    def put(self, key: str, data: bytes) -> None:
        """Keep bytes under a key."""
        with self._lock:
            connection = self._ready()
            if connection is None:
                return
            with self._careful():
                connection.execute(
                    "insert or replace into objects values (?, ?, ?, ?)", (key, data, _digest(data), time.time())
                )
                self._writes += 1
                if self._writes % CHECK_EVERY == 0:
                    self._shrink(connection)

    @contextlib.contextmanager
    def _careful(self) -> Generator[None]:
        """Work on the file: busy or full, it is left as it is, as if there were none; damaged, it is made anew."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if _is_damage(error):
                self._damaged()

    def _shrink(self, connection: sqlite3.Connection) -> None:
        """Drop the oldest entries beyond the limit."""
        total = connection.execute("select coalesce(sum(length(data)), 0) from objects").fetchone()[0]
        while total > self.limit:
            rows = connection.execute("select rowid, length(data) from objects order by used limit 64").fetchall()
            if not rows:
                return
            connection.executemany("delete from objects where rowid = ?", [(row,) for row, _ in rows])
            total -= sum(size for _, size in rows)

    def _damaged(self) -> None:
        """Start over after an error that a busy file does not explain."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None
        self._remove()
        self._open()

    def records(self, kind: str) -> list[tuple[str, bytes]]:
        """The entries whose keys begin with a kind and a colon, with their keys, those used last first."""
        with self._lock:
            connection = self._ready()
            if connection is None:
                return []
            with self._careful():
                rows = connection.execute(
                    "select key, data, digest from objects where key >= ? and key < ? order by used desc",
                    (f"{kind}:", f"{kind};"),
                ).fetchall()
                return [(bytes(key).decode(), bytes(data)) for key, data, digest in rows if _digest(data) == digest]
        return []

    def stats(self) -> tuple[int, int]:
        """(how many kernels, how many bytes in all)."""
        with self._lock:
            connection = self._ready()
            if connection is None:
                return 0, 0
            with self._careful():
                row = connection.execute(
                    "select coalesce(sum(instr(key, ':') = 0), 0), coalesce(sum(length(data)), 0) from objects"
                ).fetchone()
                return int(row[0]), int(row[1])
        return 0, 0

    def clear(self, kind: str = "") -> None:
        """Forget everything, or the entries of a kind."""
        least, most = (f"{kind}:", f"{kind};") if kind else ("", "~")
        with self._lock:
            connection = self._ready()
            if connection is not None:
                with self._careful():
                    connection.execute("delete from objects where key >= ? and key < ?", (least, most))
                    connection.execute("vacuum")

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether an error is the file's: it is no database, or has other tables. A busy or full one is none."""
    return not isinstance(error, sqlite3.OperationalError) or error.sqlite_errorcode == sqlite3.SQLITE_ERROR


def _digest(data: bytes) -> bytes:
    """What tells whole bytes from damaged ones."""
    return hashlib.blake2b(data, digest_size=16).digest()
