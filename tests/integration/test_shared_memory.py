"""Memory that is shared with NumPy: writes are there when the statement returns, reads are what was there then."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.errors import ReadOnlyError


def test_writes_show_in_the_array_at_once() -> None:
    array = np.zeros(6, np.float32)
    t = Tensor.from_numpy(array)
    t[1] = 5
    assert array[1] == 5
    t[2:4] += 1
    t[[4, 5]] = Tensor([8.0, 9.0])
    t[t > 8] = -1
    assert array.tolist() == [0, 5, 1, 1, 8, -1]


def test_reads_take_what_the_array_holds_at_the_statement() -> None:
    array = np.arange(4, dtype=np.int64)
    t = Tensor.from_numpy(array)
    first = t * 2
    array[:] = 10
    second = t * 2
    array[:] = 20
    assert first.tolist() == [0, 2, 4, 6]
    assert second.tolist() == [20] * 4
    assert t.tolist() == [20] * 4


def test_a_copy_is_taken_by_the_constructor() -> None:
    array = np.arange(3)
    t = Tensor(array)
    array[:] = 7
    assert t.tolist() == [0, 1, 2]


def test_read_only_memory_cannot_be_written() -> None:
    array = np.arange(3)
    array.flags.writeable = False
    with pytest.raises(ReadOnlyError):
        Tensor.from_numpy(array)[0] = 1
