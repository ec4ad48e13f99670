"""Values that a loop carries from turn to turn: as many kernels at any length, and work in proportion to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor
from intaglio.storage.flush import plans

Loop: TypeAlias = Callable[[int, Any, Any, Any], Any]  # its turns, a table that it writes, one that it reads, a start


def average(n: int, y: Any, x: Any, m: Any) -> Any:
    for i in range(n):
        m = m * 0.5 + x[i, 0] * 0.25
        y[i, 0] = m
    return m


def total(n: int, y: Any, x: Any, m: Any) -> Any:
    for i in range(n):
        m = m + x[i, 0]
    return m


def two_terms(n: int, y: Any, x: Any, m: Any) -> Any:
    before = m + 1
    for i in range(n):
        m, before = before, (m + before) * 0.5
        y[i, 0] = m
    return before


def activation(n: int, y: Any, x: Any, m: Any) -> Any:
    for i in range(n):
        m = abs(m * 0.5 - x[i, 0])
        y[i, 1] = m
    return m


def average_of_rows(n: int, y: Any, x: Any, m: Any) -> Any:
    row = x[0] * 0
    for i in range(n):
        row = row * 0.5 + x[i]
        y[i] = row
    return row


@pytest.mark.parametrize("loop", [average, total, two_terms, activation, average_of_rows])
def test_carried_values_take_as_many_kernels_at_any_length(loop: Loop) -> None:
    kernels: set[int] = set()
    for n in (200, 400, 800):
        plans.clear()
        table, numbers = np.zeros((n, 4)), np.arange(4.0 * n).reshape(n, 4) % 7
        y, x, m = Tensor(table), Tensor(numbers), Tensor(np.float64(3))
        expected = loop(n, table, numbers, np.float64(3))
        GlobalCounters.reset()
        got = loop(n, y, x, m)
        assert np.array_equal(y.numpy(), table)
        assert np.array_equal(got.numpy(), expected)
        kernels.add(GlobalCounters.kernel_count)
    assert len(kernels) == 1
    assert kernels.pop() <= 2


def test_a_carried_value_keeps_what_it_was_when_its_place_is_written_again() -> None:
    ring, kept = Tensor(np.zeros(3)), []
    m = Tensor(np.float64(1))
    for i in range(20):
        m = m * 0.5 + i
        ring[i % 3] = m
        kept.append(m)
    expected, value = [], 1.0
    for i in range(20):
        value = value * 0.5 + i
        expected.append(value)
    assert ring.tolist() == [expected[18], expected[19], expected[17]]
    assert [m.item() for m in kept] == expected
