"""The allocator: aligned, counted, and reusing what it was given back."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from intaglio.core.config import Context, settings_now
from intaglio.core.errors import DeviceError
from intaglio.core.trace import GlobalCounters
from intaglio.runtime import allocator as module
from intaglio.runtime.allocator import ALIGNMENT, Allocator, Order

STATM = Path("/proc/self/statm")


def test_blocks_are_aligned_and_counted() -> None:
    allocator = Allocator()
    before = GlobalCounters.mem_used
    blocks = [allocator.allocate(n) for n in (1, 100, 100_000)]
    assert all(block.address % ALIGNMENT == 0 for block in blocks)
    assert GlobalCounters.mem_used - before == 100_101
    del blocks
    allocator.collect()
    assert GlobalCounters.mem_used == before


def test_freed_memory_is_reused() -> None:
    allocator = Allocator()
    block = allocator.allocate(1 << 20)
    address = block.address
    del block
    assert allocator.allocate(1 << 20).address == address


def test_kept_memory_goes_back_to_the_system_before_a_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = Allocator()
    allocator.allocate(1 << 20)  # nobody holds it
    allocator.collect()
    taken: list[int] = []

    def full(capacity: int) -> tuple[object, int]:
        taken.append(capacity)
        if len(taken) == 1:
            raise DeviceError("allocate: the system has no more.")
        return take(capacity)

    take = module._take
    monkeypatch.setattr(module, "_take", full)
    block = allocator.allocate(1 << 21)
    assert (len(taken), allocator._kept, block.nbytes) == (2, 0, 1 << 21)
    taken.clear()
    with pytest.raises(DeviceError, match="has no more"):  # nothing is kept: it is asked for once
        allocator.allocate(1 << 21)
    assert len(taken) == 1


def test_a_limit_refuses_and_says_how_much_is_in_use() -> None:
    allocator = Allocator()
    with Context(memory_bytes=1000):
        held = allocator.allocate(600)
        with pytest.raises(DeviceError, match="500 bytes do not fit; 600 of 1000 are in use"):
            allocator.allocate(500)
    assert held.nbytes == 600
    assert allocator.allocate(500).nbytes == 500


def test_no_more_is_kept_than_the_settings_allow() -> None:
    allocator = Allocator()
    before = GlobalCounters.mem_kept
    blocks = [allocator.allocate(1 << 20) for _ in range(5)]
    del blocks
    with Context(kept_bytes=3 << 20):
        allocator.collect()
    assert GlobalCounters.mem_kept - before == 3 << 20
    assert allocator.used == 0


def test_blocks_of_several_sizes_are_handed_out_and_collected_in_any_order() -> None:
    allocator = Allocator()
    before = GlobalCounters.mem_used, GlobalCounters.mem_kept
    sizes = [100, 120, 1 << 16, 100, 64, 1 << 16]
    blocks = [*allocator.allocate_all(Order(sizes), settings_now())]
    assert [block.nbytes for block in blocks] == sizes
    assert len({block.address for block in blocks}) == len(sizes)
    assert (GlobalCounters.mem_used - before[0], GlobalCounters.mem_kept - before[1]) == (sum(sizes), 0)
    addresses = {block.address for block in blocks}
    blocks.reverse()
    while blocks:
        blocks.pop(len(blocks) // 2)
    allocator.collect()
    assert (GlobalCounters.mem_used - before[0], GlobalCounters.mem_kept - before[1]) == (0, 3 * 128 + 64 + (2 << 16))
    again = allocator.allocate_all(Order(sizes[::-1]), settings_now())
    assert {block.address for block in again} == addresses


def test_where_memory_ends_what_was_handed_out_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = Allocator()
    before = GlobalCounters.mem_used
    allocator.allocate(100)  # nobody holds it

    def none_left(capacity: int) -> tuple[object, int]:
        raise DeviceError("allocate: the system has no more.")

    monkeypatch.setattr(module, "_take", none_left)
    with pytest.raises(DeviceError, match="has no more"):
        allocator.allocate_all(Order([100, 100]), settings_now())
    allocator.collect()
    assert (allocator.used, GlobalCounters.mem_used) == (0, before)


def test_what_is_kept_goes_back_on_request() -> None:
    allocator = Allocator()
    before = GlobalCounters.mem_kept
    held, freed = allocator.allocate(1 << 20), [allocator.allocate(n) for n in (100, 1 << 16, 3 << 20)]
    held.copy_in(b"held")
    del freed
    assert allocator.trim() == 128 + (1 << 16) + (3 << 20)
    assert (allocator.trim(), GlobalCounters.mem_kept, allocator.used) == (0, before, 1 << 20)
    assert bytes(held.view()[:4]) == b"held"


@pytest.mark.skipif(not STATM.exists(), reason="asks Linux how much memory the process has")
def test_the_system_gets_the_pages() -> None:
    allocator = Allocator()
    block = allocator.allocate(64 << 20)
    block.copy_in(bytes(64 << 20))
    del block
    allocator.collect()
    before = resident()
    assert allocator.trim() == 64 << 20
    assert before - resident() > 60 << 20


def resident() -> int:
    return int(STATM.read_text().split()[1]) * mmap.PAGESIZE
