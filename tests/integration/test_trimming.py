"""Writes that nobody sees go without a trace: errors of their positions are raised, files hold what they should."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor, no_grad
from intaglio.core.errors import IndexRangeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLACES = Tensor([0, 3])


def at_bad_places(t: Tensor) -> None:
    t[PLACES + 3] = 9.0


def from_bad_places(t: Tensor) -> None:
    t[:2] = Tensor([1.0, 2.0, 3.0])[PLACES + 3]


def from_bad_places_of_what_was_written(t: Tensor) -> None:
    t[:] = Tensor([1.0, 2.0])
    t[:] = t[PLACES + 0]


@pytest.mark.parametrize("write", [at_bad_places, from_bad_places, from_bad_places_of_what_was_written])
def test_a_covered_write_through_positions_out_of_range_is_an_error_all_the_same(
    write: Callable[[Tensor], None],
) -> None:
    t = Tensor.zeros(2).realize()
    write(t)
    t[:] = Tensor([5.0, 6.0])
    with pytest.raises(IndexRangeError, match="is out of range for axis 0"):
        t.realize()
    assert t.tolist() == [5, 6]


def test_a_write_that_failed_covers_nothing() -> None:
    t, x = Tensor.zeros(3).realize(), Tensor([1.0, 2.0, 3.0])
    t[:] = x + 1
    t[:] = x[Tensor([0, 1, 2]) * 2]
    with pytest.raises(IndexRangeError, match="4 is out of range"):
        t.realize()
    assert t.tolist() == [2, 3, 4]


def test_kernelize_checks_positions() -> None:
    t = Tensor.zeros(4).realize()
    t[PLACES + 3] = 1.0
    with pytest.raises(IndexRangeError, match="6 is out of range"):
        t.kernelize()
    t[PLACES] = 2.0
    t.kernelize()
    assert t.tolist() == [2, 0, 0, 2]


def test_what_was_never_written_is_zeros() -> None:
    assert Tensor.empty(3).tolist() == [0, 0, 0]
    t = Tensor.empty(2, 2).realize()
    t[1] = 5
    assert t.tolist() == [[0, 0], [5, 5]]


def test_a_file_is_written_once_where_it_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "t"
    t, x = Tensor.empty(100, device=f"DISK:{path}"), Tensor(np.arange(100, dtype=np.float32)).realize()
    GlobalCounters.reset()
    t[:] = x.exp()
    t[10:] = x[:90]
    for i in range(10):
        t[i] = 3
    t.realize()
    assert np.fromfile(path, np.float32).tolist() == [3] * 10 + [*range(90)]
    assert GlobalCounters.global_mem == 10 * 4 + 90 * 8


def test_numbers_of_dropped_segments_are_no_longer_counted() -> None:
    t, u = Tensor.zeros(8).realize(), Tensor.zeros(8).realize()
    for turn in range(5):
        t[turn] = turn
        t[:] = u + turn
        t[7] = turn + 0.5
    storage = t._storage  # pyright: ignore[reportPrivateUsage]
    assert storage is not None
    total = t.sum()
    t[0] = 1
    assert total.item() == 4 * 7 + 4.5
    assert storage.numbers == 0
    assert t.tolist() == [1, 4, 4, 4, 4, 4, 4, 4.5]
    assert (storage.numbers, storage.last, storage.log) == (0, None, [])


def test_what_rows_of_a_history_read_is_not_dropped() -> None:
    x = Tensor([3.0, 2.0, 2.0, 1.0], requires_grad=True)
    t = x * 1
    for i in range(1, 4):
        t[i] = t[i - 1] * x[i]
    with no_grad():
        t[:] = 0.0
    assert t.tolist() == [0.0] * 4
    t.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [11.0, 15.0, 12.0, 12.0]
