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
from typing import Final

from intaglio.core.locks import Level, across_forks

FRESH: Final = 3600.0  # seconds after its last noted use in which an entry's use is not noted again
CHECK_EVERY: Final = 256  # writes between checks of the size


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
        self.limit: Final = limit
        self._lock: Final = across_forks(threading.Lock(), Level.CACHE)
        self._writes: int = 0
        self._process: int = os.getpid()
        self._connection: sqlite3.Connection | None = None
        self._inherited: Final[list[sqlite3.Connection | None]] = []
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        self._open()

    def _open(self) -> None:
        """Connect; a damaged file is removed and made anew."""
        for attempt in range(2):
            try:
                connection = sqlite3.connect(self.path, timeout=5.0, check_same_thread=False, isolation_level=None)
                connection.execute("pragma journal_mode=wal")
                connection.execute("pragma synchronous=off")
                connection.execute(
                    "create table if not exists objects "
                    "(key text primary key, data blob not null, digest blob not null, used real not null)"
                )
                connection.execute("select count(*) from objects").fetchone()
                self._shrink(connection)
                self._connection = connection
                self._process = os.getpid()
            except sqlite3.DatabaseError as error:
                self._connection = None
                if attempt or isinstance(error, sqlite3.OperationalError):
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
            try:
                row = connection.execute("select data, digest, used from objects where key = ?", (key,)).fetchone()
                now = time.time()
                if row is not None and row[2] < now - FRESH:
                    connection.execute("update objects set used = ? where key = ?", (now, key))
            except sqlite3.OperationalError:
                return None  # the file is busy: this once there is no cache
            except sqlite3.DatabaseError:
                self._damaged()
                return None
            if row is None or _digest(bytes(row[0])) != row[1]:
                return None
            return bytes(row[0])

    def put(self, key: str, data: bytes) -> None:
        """Keep bytes under a key."""
        with self._lock:
            connection = self._ready()
            if connection is None:
                return
            try:
                connection.execute(
                    "insert or replace into objects values (?, ?, ?, ?)", (key, data, _digest(data), time.time())
                )
                self._writes += 1
                if self._writes % CHECK_EVERY == 0:
                    self._shrink(connection)
            except sqlite3.OperationalError:
                return  # busy or full: the kernel is not kept
            except sqlite3.DatabaseError:
                self._damaged()

    def _shrink(self, connection: sqlite3.Connection) -> None:
        """Drop the oldest entries beyond the limit."""
        total = connection.execute("select coalesce(sum(length(data)), 0) from objects").fetchone()[0]
        while total > self.limit:
            rows = connection.execute("select key, length(data) from objects order by used limit 64").fetchall()
            if not rows:
                return
            connection.executemany("delete from objects where key = ?", [(key,) for key, _ in rows])
            total -= sum(size for _, size in rows)

    def _damaged(self) -> None:
        """Start over after an error that a busy file does not explain."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None
        self._remove()
        self._open()

    def stats(self) -> tuple[int, int]:
        """(how many kernels, how many bytes)."""
        with self._lock:
            connection = self._ready()
            if connection is None:
                return 0, 0
            row = connection.execute("select count(*), coalesce(sum(length(data)), 0) from objects").fetchone()
            return int(row[0]), int(row[1])

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            connection = self._ready()
            if connection is not None:
                connection.execute("delete from objects")
                connection.execute("vacuum")

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _digest(data: bytes) -> bytes:
    """What tells whole bytes from damaged ones."""
    return hashlib.blake2b(data, digest_size=16).digest()
