"""The allocator: aligned, counted, and reusing what it was given back."""

from __future__ import annotations

import pytest

from intaglio.core.errors import DeviceError
from intaglio.core.trace import GlobalCounters
from intaglio.runtime.allocator import ALIGNMENT, Allocator


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


def test_a_limit_refuses_and_says_how_much_is_in_use() -> None:
    allocator = Allocator()
    allocator.limit = 1000
    held = allocator.allocate(600)
    with pytest.raises(DeviceError, match="500 bytes do not fit; 600 of 1000 are in use"):
        allocator.allocate(500)
    assert held.nbytes == 600
