"""Numbers written through handles that keep a way into the journal: what closes it, what it takes, what it holds."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import pytest

from intaglio import Tensor, dtypes
from intaglio.core.errors import IndexRangeError, ValueRangeError


def test_numbers_written_after_a_read_are_later_than_it() -> None:
    t = Tensor.zeros(3).contiguous()
    t[0] = 1
    before = t + 0
    t[0] = 2
    t[1] = 3
    assert before.tolist() == [1, 0, 0]
    assert t.tolist() == [2, 3, 0]


def test_handles_of_one_storage_write_in_the_order_of_the_program() -> None:
    t = Tensor.zeros(4).contiguous()
    tail = t[1:]
    for i in range(3):
        t[1 + i] = 10 + i
        tail[i] = 20 + i
        t[1] = i
    assert t.tolist() == [0, 2, 21, 22]


def test_positions_count_from_either_end_and_are_checked_at_the_statement() -> None:
    t = Tensor.zeros(3).contiguous()
    for i in (0, -1, 1, -2, 2, -3):
        t[i] = i
    for i in (3, -4):
        with pytest.raises(IndexRangeError):
            t[i] = 1
    assert t.tolist() == [-3, -2, 2]


def test_numbers_are_checked_at_the_statement_whatever_came_before() -> None:
    for dtype in (dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.uint64):
        t = Tensor.zeros(3, dtype=dtype).contiguous()
        t[0] = 1
        t[1] = int(dtype.max)
        t[2] = int(dtype.min)
        for value in (int(dtype.max) + 1, int(dtype.min) - 1, float("nan"), float("inf")):
            with pytest.raises(ValueRangeError):
                t[0] = value
        t[0] = 1.75
        assert t.tolist() == [1, dtype.max, dtype.min]


def test_truths_and_numbers_go_into_bool_and_float_as_themselves() -> None:
    t, flags = Tensor.zeros(4).contiguous(), Tensor.zeros(4, dtype=dtypes.bool).contiguous()
    for i, value in enumerate((1, True, 2**60 + 1, 0.5)):
        t[i] = value
        flags[i] = value
    assert t.tolist() == [1.0, 1.0, float(2**60), 0.5]
    assert flags.tolist() == [True] * 4


def test_a_handle_holds_no_numbers_that_have_been_written_to_memory() -> None:
    t = Tensor.zeros(2, dtype=dtypes.int64).contiguous()
    t[0] = 1
    pen = t._pen
    assert pen is not None
    assert pen.numbers == {0: 1}
    t.realize()
    assert not pen.numbers
    t[0] = 2
    assert t.tolist() == [2, 0]
    held = weakref.ref(t)
    del t
    gc.collect()
    assert held() is None


def test_elements_in_turns_of_numbers_of_two_classes_stay_in_order() -> None:
    x = [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    t, expected = Tensor(x), list(x)
    for i in range(1, 6):
        factor = 2 if i % 2 else 0.25
        t[i] = t[i - 1] * factor
        expected[i] = expected[i - 1] * factor
    assert t.tolist() == expected


def test_nothing_that_one_thread_writes_is_lost_while_another_reads() -> None:
    extent = 4000
    x = Tensor.arange(extent).realize()
    for expressions in (True, False):
        t = Tensor.zeros(extent, dtype=dtypes.int64).contiguous()

        def write(t: Tensor = t, expressions: bool = expressions) -> None:
            for i in range(extent):
                t[i] = x[i] * 2 + 1 if expressions else i * 2 + 1

        writer = threading.Thread(target=write)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            writer.start()
            while writer.is_alive():
                t.tolist()
        finally:
            sys.setswitchinterval(interval)
            writer.join()
        assert t.tolist() == [i * 2 + 1 for i in range(extent)]


def test_elements_past_the_moment_that_is_asked_for_stay_pending() -> None:
    t = Tensor([0.0] * 6)
    for i in range(3):
        t[i] = t[5 - i] + i + 1
    early = t[0] * 10
    kept = t.sum()
    for i in range(3, 6):
        t[i] = t[i - 3] * 2
    assert kept.tolist() == 6.0
    assert t.journal().entries == 3
    assert early.tolist() == 10.0
    assert t.tolist() == [1.0, 2.0, 3.0, 2.0, 4.0, 6.0]


def test_an_arm_that_runs_in_some_turns_only_writes_whole_elements() -> None:
    values = [float(i) for i in range(9)]
    t = Tensor(values)
    for target, source, twice in ((0, 0, 1), (6, 1, 1), (0, 2, 1), (1, 4, 0), (2, 4, 1), (0, 6, 0), (2, 6, 1)):
        t[target] = t[source] * 2 + 1 if twice else 5 - t[source]
        values[target] = values[source] * 2 + 1 if twice else 5 - values[source]
    assert t.tolist() == values


def test_a_reversed_view_copied_onto_itself_again_and_again_reads_what_it_wrote() -> None:
    t = Tensor([0, 1, 2, 3, 4])
    back = t[::-1]
    for _ in range(3):
        back[1:3] = back[0:2]
    assert t.tolist() == [0, 1, 4, 4, 4]
