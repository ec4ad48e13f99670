"""Loops that mix numbers with expressions, and handles of one storage with one another: one kernel at any length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor
from intaglio.storage.flush import plans

Loop: TypeAlias = Callable[
    [int, Any, Any, Any], None
]  # its turns, two tables that it writes, and numbers that it reads

WIDTH = 8


def number_then_expression(n: int, a: Any, b: Any, x: Any) -> None:
    for i in range(n):
        a[i, 0] = i
        b[i, 1] = a[i, 0] * 2


def reset_in_every_tenth_turn(n: int, a: Any, b: Any, x: Any) -> None:
    for i in range(1, n):
        if i % 10 == 0:
            a[i, 0] = 0
        else:
            a[i, 0] = a[i - 1, 0] + x[i, 0]


def number_that_is_added_to(n: int, a: Any, b: Any, x: Any) -> None:
    for i in range(1, n):
        a[i, 0] = 1
        a[i, 0] += a[i - 1, 0]


def two_rings(n: int, a: Any, b: Any, x: Any) -> None:
    for i in range(n):
        a[0, i % WIDTH] = b[1, (i + 1) % WIDTH] + 1
        b[1, i % WIDTH] = i


def table_and_its_transpose(n: int, a: Any, b: Any, x: Any) -> None:
    for i in range(n // WIDTH):
        for j in range(WIDTH):
            a[i, j] = i * j
            b[j, i % WIDTH] = a[i, j] + 1


def longest_common_substring(n: int, a: Any, b: Any, x: Any) -> None:
    for i in range(1, n // WIDTH):
        for j in range(1, WIDTH):
            if (i * i + j) % 3:
                a[i, j] = a[i - 1, j - 1] + 1
            else:
                a[i, j] = 0


def number_that_is_overwritten(n: int, a: Any, b: Any, x: Any) -> None:
    for i in range(n):
        a[i, 0] = 0
        a[i, 0] = x[i, 0] * 2


def row_and_its_first_element(n: int, a: Any, b: Any, x: Any) -> None:
    for i in range(n):
        a[i] = x[i] * 2
        a[i, 0] = 5


def elements_of_rows(n: int, a: Any, b: Any, x: Any) -> None:
    for i in range(n):
        for j in range(WIDTH):
            a[i][j] = i + j


def views_in_turn(n: int, a: Any, b: Any, x: Any) -> None:
    even, odd, backwards = a[::2, 0], a[1::2, 0], a[::-1, 1]
    for i in range(n // 2):
        even[i] = i
        odd[i] = -i
        backwards[i] = 7


LOOPS: list[Loop] = [
    number_then_expression,
    reset_in_every_tenth_turn,
    number_that_is_added_to,
    table_and_its_transpose,
    longest_common_substring,
    number_that_is_overwritten,
    row_and_its_first_element,
    elements_of_rows,
    views_in_turn,
]


@pytest.mark.parametrize("loop", [*LOOPS, two_rings])
def test_mixed_loops_take_as_many_kernels_at_any_length_and_are_right(loop: Loop) -> None:
    kernels: set[int] = set()
    for n in (64, 160, 320):
        plans.clear()
        arrays = [np.zeros((n, WIDTH)), np.zeros((n, WIDTH)), np.arange(n * WIDTH, dtype=float).reshape(n, WIDTH)]
        tensors = [Tensor(array).realize() for array in arrays]
        loop(n, *arrays)
        GlobalCounters.reset()
        loop(n, *tensors)
        Tensor.realize(*tensors)
        kernels.add(GlobalCounters.kernel_count)
        for tensor, array in zip(tensors, arrays, strict=True):
            assert np.array_equal(tensor.numpy(), array)
    assert len(kernels) == 1
    assert loop is two_rings or kernels == {1}
