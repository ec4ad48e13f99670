"""The reads of a storage: none that lives is lost, whoever adds some meanwhile."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import TYPE_CHECKING

import pytest

from intaglio.core.dtypes import dtypes
from intaglio.ir.view import View
from intaglio.ops.memory import const
from intaglio.storage.storage import Reads, Storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from intaglio.ir.node import Node


class Adding(weakref.ref["Node"]):
    """A reference that adds another read when it is looked at, as a thread may that gets its turn just then."""

    reads: Reads
    added: Node | None = None

    def __call__(self) -> Node | None:
        """What it refers to."""
        if self.added is None:
            self.added = const(dtypes.int32, 1_000_003)
            self.reads.add(self.added)
        return super().__call__()


def test_what_is_added_while_reads_are_looked_through_stays() -> None:
    reads = Reads()
    kept = [const(dtypes.int32, 1_000_100 + k) for k in range(200)]
    first = Adding(kept[0])
    first.reads = reads
    reads.live.append(first)
    for node in kept[1:]:
        reads.add(node)
        reads.add(const(dtypes.float64, 0.5 + id(node)))  # which dies
    assert first.added is not None
    assert len(reads.live) < 3 * len(kept)
    assert {reference() for reference in reads.live}.issuperset([first.added, *kept])


@pytest.fixture
def short_turns() -> Iterator[None]:
    """Threads take turns as often as they can."""
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(old)


@pytest.mark.usefixtures("short_turns")
def test_threads_that_read_at_once_lose_nothing() -> None:
    storage = Storage(1 << 16, "CPU")
    kept: list[list[Node]] = [[] for _ in range(4)]

    def work(own: list[Node], first: int) -> None:
        for k in range(3000):
            node = storage.read_past(View.contiguous(dtypes.uint8, (1,), (first + k) % (1 << 16)), 0)
            if k % 5 == 0:
                own.append(node)

    threads = [threading.Thread(target=work, args=(own, 7919 * k)) for k, own in enumerate(kept)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    living = set(storage.living_reads())
    assert all(living.issuperset(own) for own in kept)
