"""The scratch of threads: what could not be had is asked for again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from intaglio.runtime import pool as module
from intaglio.runtime.pool import PAGES, Pool

if TYPE_CHECKING:
    import mmap


def test_scratch_that_could_not_be_had_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool()

    def none_left(size: int) -> tuple[mmap.mmap, int]:
        raise MemoryError(size)

    monkeypatch.setattr(module, "anonymous", none_left)
    with pytest.raises(MemoryError):
        pool.provide(PAGES + 1)
    assert pool.scratch == 0
    monkeypatch.undo()
    pool.provide(PAGES + 1)
    assert pool.scratch
    before = pool.scratch
    pool.provide(2 * PAGES)
    assert pool.scratch == before
