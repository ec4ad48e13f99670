"""Loops whose turns have buffers of their own, or write onto what they read: one kernel at any length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor
from intaglio.engine.explain import sources
from intaglio.storage.flush import plans

Loop: TypeAlias = Callable[[int, Any, Any], None]  # its turns, a table that it writes, and one that it reads

WIDTH = 8


def clone_added_to(n: int, t: Any, x: Any) -> None:
    for i in range(n):
        r = copy(x[i])
        r += 1
        t[i] = r


def clone_scaled_and_mirrored(n: int, t: Any, x: Any) -> None:
    for i in range(n):
        r = copy(x[i])
        r += 1
        r *= 2
        t[i] = r + r[::-1]


def clone_summed(n: int, t: Any, x: Any) -> None:
    for i in range(1, n):
        r = copy(t[i - 1])
        r *= 0.5
        r += x[i]
        t[i] = r


def first_element_cleared(n: int, t: Any, x: Any) -> None:
    for i in range(n):
        r = copy(x[i])
        r[0] = 0
        t[i] = r


def element_of_another(n: int, t: Any, x: Any) -> None:
    for i in range(n):
        r = copy(x[i])
        r[0] = i
        r[1] = r[0] * 2
        t[i] = r


def neighbours_added(n: int, t: Any, x: Any) -> None:
    for i in range(n):
        r = x[i] * 2
        r[1:] += copy(r[:-1])
        t[i] = r


def buffer_filled(n: int, t: Any, x: Any) -> None:
    for i in range(n):
        r = x[i] * 0
        r[0] = x[i].sum()
        r[1] = x[i].max()
        t[i] = r


def two_buffers(n: int, t: Any, x: Any) -> None:
    for i in range(n):
        r = copy(x[i])
        r[0] = 0
        q = r * 2
        q[1] = r[2]
        t[i] = q + r


def buffer_of_the_turn_before(n: int, t: Any, x: Any) -> None:
    r = x[0] * 1
    for i in range(n):
        r = r * 0.5
        r[i % WIDTH] = 1
        t[i] = r


def neighbours_reversed(n: int, t: Any, x: Any) -> None:
    for i in range(n - 1):
        t[i : i + 2, 0] = copy(t[i : i + 2, 0][::-1]) + x[i, 0]


def neighbours_exchanged(n: int, t: Any, x: Any) -> None:
    for i in range(n - 1):
        r = copy(t[i : i + 2, 0])
        t[i, 0] = r[1] + 1
        t[i + 1, 0] = r[0]


def rows_turned_in_a_recurrence(n: int, t: Any, x: Any) -> None:
    for i in range(1, n):
        t[i] = t[i - 1] + x[i]
        t[i] = copy(t[i][::-1]) + t[i]


LOOPS: list[Loop] = [
    clone_added_to,
    clone_scaled_and_mirrored,
    clone_summed,
    first_element_cleared,
    element_of_another,
    neighbours_added,
    buffer_filled,
    two_buffers,
    buffer_of_the_turn_before,
    neighbours_reversed,
    neighbours_exchanged,
    rows_turned_in_a_recurrence,
]


def copy(value: Any) -> Any:
    """A tensor cloned, or an array copied."""
    return value.clone() if isinstance(value, Tensor) else value.copy()


@pytest.mark.parametrize("loop", LOOPS)
def test_turns_with_buffers_are_one_kernel_at_any_length(loop: Loop) -> None:
    lengths: list[int] = []
    for n in (64, 320):
        plans.clear()
        table, numbers = np.zeros((n, WIDTH)), np.arange(n * WIDTH, dtype=float).reshape(n, WIDTH) % 7
        t, x = Tensor(table).realize(), Tensor(numbers).realize()
        loop(n, table, numbers)
        loop(n, t, x)
        GlobalCounters.reset()
        with sources() as seen:
            got = t.numpy()
        texts = list(seen)
        assert np.array_equal(got, table)
        assert (GlobalCounters.kernel_count, len(texts)) == (1, 1)
        lengths.append(len(texts[0]))
    assert abs(lengths[0] - lengths[1]) <= 64  # the digits of numbers of turns and elements


def test_whole_buffers_take_no_bytes() -> None:
    n = 64
    table = np.arange(n * WIDTH, dtype=float).reshape(n, WIDTH)
    t, x = Tensor(np.zeros((n, WIDTH))).realize(), Tensor(table).realize()
    clone_scaled_and_mirrored(n, t, x)
    GlobalCounters.reset()
    assert np.array_equal(t.numpy(), 2 * (table + table[:, ::-1] + 2))
    assert GlobalCounters.global_mem == 2 * 8 * n * WIDTH


def test_a_buffer_that_is_kept_of_a_turn_is_what_it_was() -> None:
    n = 64
    table = np.arange(n * WIDTH, dtype=float).reshape(n, WIDTH)
    t, x = Tensor(np.zeros((n, WIDTH))).realize(), Tensor(table).realize()
    kept, views, expected = [], [], []
    for i in range(n):
        r = x[i].clone()
        r += 1
        r[0] = i
        t[i] = r
        if i % 9 == 4:
            kept.append(r)
            views.append(r[2:4])
            expected.append([i, *(table[i] + 1)[1:]])
        r[1] = -1
    for row, values in zip(kept, expected, strict=True):
        values[1] = -1
        assert row.tolist() == values
    for view, values in zip(views, expected, strict=True):
        assert view.tolist() == values[2:4]
    got = t.numpy()
    assert np.array_equal(got[:, 0], np.arange(n))
    assert np.array_equal(got[:, 1:], table[:, 1:] + 1)


def test_a_buffer_whose_element_was_read_and_is_held_is_what_it_was() -> None:
    n = 20
    t, x = Tensor(np.zeros((n, WIDTH))).realize(), Tensor(np.ones((n, WIDTH))).realize()
    held, sums = [], []
    for i in range(n):
        r = x[i].clone()
        r[0] = i
        s = r[0] * 2
        r[1] = s + r[0]
        held.append(r[0])
        sums.append(s)
        r[2] = 5
        t[i] = r
    assert t.numpy()[:, :3].tolist() == [[i, 3 * i, 5] for i in range(n)]
    assert [value.item() for value in held] == list(range(n))
    assert [value.item() for value in sums] == [2 * i for i in range(n)]


def test_a_buffer_that_elements_of_another_table_read_later_is_there() -> None:
    n = 20
    x = Tensor(np.arange(n * WIDTH, dtype=float).reshape(n, WIDTH)).realize()
    t, u = Tensor(np.zeros((n, WIDTH))).realize(), Tensor(np.zeros(n)).realize()
    for i in range(n):
        r = x[i].clone()
        r[0] = i
        r[1] = 2.5
        t[i, 0] = r[0] * 2
        u[i] = r[0] * 2
        t[i, 1] = r[1] + r[3]
    del r
    assert t.numpy()[:, :2].tolist() == [[2 * i, 2.5 + WIDTH * i + 3] for i in range(n)]
    assert u.tolist() == [2 * i for i in range(n)]
