"""The disk cache: bounded, shared by processes, and never in the way when it is damaged."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

from intaglio.runtime.disk_cache import DiskCache

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_put_is_got(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put("a", b"one")
    assert cache.get("a") == b"one"
    assert cache.get("b") is None
    assert cache.stats() == (1, 3)
    cache.clear()
    assert cache.get("a") is None
    cache.close()


def test_a_damaged_file_is_rebuilt(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put("a", b"one")
    cache.close()
    for suffix in ("-wal", "-shm"):
        cache.path.with_name(cache.path.name + suffix).unlink(missing_ok=True)
    cache.path.write_bytes(b"this is no database" * 100)
    again = DiskCache(tmp_path, 1 << 20)
    assert again.get("a") is None
    again.put("a", b"two")
    assert again.get("a") == b"two"
    again.close()


def test_a_folder_that_cannot_be_written_means_no_cache(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    cache = DiskCache(blocked / "folder", 1 << 20)
    cache.put("a", b"one")
    assert cache.get("a") is None
    cache.close()


def test_damaged_bytes_are_a_miss(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put("a", b"one two three")
    with sqlite3.connect(cache.path) as other:
        other.execute("update objects set data = ?", (b"one two",))
    other.close()
    assert cache.get("a") is None
    cache.close()


def test_a_busy_file_is_left_alone(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put("a", b"one")
    assert cache._connection is not None
    cache._connection.execute("pragma busy_timeout=10")
    other = sqlite3.connect(cache.path, isolation_level=None)
    other.execute("begin exclusive")
    cache.put("b", b"two")
    other.execute("rollback")
    other.close()
    assert cache.get("a") == b"one"
    cache.close()


def test_what_is_used_outlives_what_is_not(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 70_000)
    for k in range(100):
        cache.put(str(k), bytes(1000))
    assert cache._connection is not None
    cache._connection.execute("update objects set used = 1")
    assert cache.get("0") is not None
    cache.close()
    again = DiskCache(tmp_path, 70_000)
    assert again.stats()[1] <= 70_000
    assert again.get("0") is not None
    again.close()


def test_the_size_is_bounded(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 10_000)
    for k in range(300):
        cache.put(str(k), bytes(1000))
    assert cache.stats()[1] < 256 * 1000
    cache.close()


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from intaglio.runtime.disk_cache import DiskCache\n"
        "c = DiskCache(Path(sys.argv[1]), 1 << 20)\n"
        "for k in range(50): c.put(f'{sys.argv[2]}{k}', sys.argv[2].encode() * 10)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name]) for name in ("x", "y")]
    assert [p.wait(60) for p in running] == [0, 0]
    cache = DiskCache(tmp_path, 1 << 20)
    assert cache.stats()[0] == 100
    assert cache.get("x49") == b"x" * 10
    cache.close()
