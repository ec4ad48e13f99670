"""The disk cache: bounded, shared by processes, and never in the way when it is damaged."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from intaglio import Context, Tensor
from intaglio.engine.devices import disk_cache
from intaglio.runtime.compiler import Compiler, cache_key
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


def test_making_the_file_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)
        connection.set_trace_callback(said.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    DiskCache(tmp_path, 1 << 20).close()
    assert said[0] == "pragma synchronous=off"


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


def _alter(cache: DiskCache, *statements: str) -> None:
    """Change a closed cache's file from outside."""
    cache.close()
    with sqlite3.connect(cache.path) as other:
        for statement in statements:
            other.execute(statement)
    other.close()


@pytest.mark.parametrize(
    "statement",
    [
        "create table objects (key text primary key, code blob)",
        "create table objects (key text, data blob, digest blob, used real, more int)",
        "create table objects (a, b, c, d)",
        "create view objects as select 1 as key, 2 as data, 3 as digest, 4 as used",
        "create table objects (key text primary key, data blob, digest blob, used real) without rowid",
    ],
)
def test_a_table_of_another_form_is_rebuilt(tmp_path: Path, statement: str) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    _alter(cache, "drop table objects", statement)
    again = DiskCache(tmp_path, 1 << 20)
    for name in ("a", "b"):
        again.put(name, b"two")
    assert [again.get(name) for name in ("a", "b")] == [b"two", b"two"]
    assert again.stats() == (2, 6)
    again.close()


@pytest.mark.parametrize(
    "damage",
    ["data = 'one'", "data = cast(x'ff' as text)", "data = 7", "used = 'lately'", "used = x'00'", "digest = 'text'"],
)
def test_a_damaged_entry_is_a_miss_and_is_put_again(tmp_path: Path, damage: str) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put("a", b"one two three")
    cache.put("b", b"other")
    _alter(cache, f"update objects set {damage} where key = 'a'")
    again = DiskCache(tmp_path, 1 << 20)
    assert (again.get("a"), again.get("b")) == (None, b"other")
    again.put("a", b"one two three")
    assert again.get("a") == b"one two three"
    again.keep_within(0)
    assert again.stats() == (0, 0)
    again.close()


def test_a_table_that_is_dropped_while_it_is_open_is_made_anew(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put("a", b"one")
    with sqlite3.connect(cache.path) as other:
        other.execute("drop table objects")
    other.close()
    assert cache.get("a") is None
    cache.put("a", b"two")
    assert cache.get("a") == b"two"
    cache.close()


def _lone_kernel(number: int) -> str:
    """IR text of a kernel that does nothing, told apart by its number."""
    return f"define void @lone(ptr %args, i64 %begin, i64 %end) {{\n  ret void\n}}\n; {number}\n"


@pytest.mark.parametrize("damage", ["empty", "class", "machine", "cut", "text"])
def test_an_object_that_cannot_be_loaded_is_compiled_anew(tmp_path: Path, damage: str) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    compiler = Compiler(lambda: cache)
    source = _lone_kernel(len(damage))
    assert compiler.load(source, "lone")[1]
    assert not compiler.load(source, "lone")[1]
    key = cache_key(source)
    whole = cache.get(key)
    assert whole is not None
    damaged = {
        "empty": b"", "class": whole[:4] + b"\x01" + whole[5:], "machine": whole[:18] + b"\x03\x00" + whole[20:],
        "cut": whole[: len(whole) // 2], "text": b"no object at all",
    }[damage]  # fmt: skip
    cache.put(key, damaged)
    assert compiler.load(source, "lone")[1]
    assert cache.get(key) == whole
    assert not compiler.load(source, "lone")[1]
    cache.close()


def test_the_settings_in_force_say_which_cache_is_used(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with Context(CACHE_DIR=str(first), CACHE_SIZE_MB=3):
        one = disk_cache()
        assert one is not None
        assert (one.path.parent, one.limit) == (first, 3 << 20)
        with Context(CACHE_DIR=str(second)):
            other = disk_cache()
            assert other is not None
            assert other.path.parent == second
        with Context(CACHE=False):
            assert disk_cache() is None
        with Context(CACHE_SIZE_MB=1):
            assert disk_cache() is one
            assert one.limit == 1 << 20
        assert disk_cache() is one
        assert one.limit == 3 << 20
    extent = 1237  # of no other test: its kernel is in no memory
    with Context(CACHE_DIR=str(second)):
        (Tensor.arange(extent) * 3 + 41).realize()
    assert one.stats()[0] == 0
    assert other.stats()[0] >= 1
    one.close()
    other.close()
