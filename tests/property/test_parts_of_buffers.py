"""Programs that read a buffer as a whole and a part of it, any part in turn, without forgetting what ran before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Tensor

if TYPE_CHECKING:
    import random


ROWS, COLUMNS = 5, 6


def written_into_a_copy(x: Any, copy: Any, row: int, count: int) -> Any:
    """A row, scaled, in a copy of all."""
    z = copy(x)
    z[0] = x[row] * 2
    return z


def written_into_a_value(x: Any, copy: Any, row: int, count: int) -> Any:
    """Rows in what is computed from all."""
    z = x * 2
    z[1 : 1 + count] = x[row : row + 1] + 1
    return z


def read_beside_all(x: Any, copy: Any, row: int, count: int) -> Any:
    """A row written to something else, which is then added to all."""
    u = copy(x) * 0
    u[0] = x[row] * 2
    return u + x


def subtracted(x: Any, copy: Any, row: int, count: int) -> Any:
    """A row taken from all."""
    return x - x[row]


def in_place(x: Any, copy: Any, row: int, count: int) -> Any:
    """Some rows that are changed by others and by all."""
    y = copy(x)
    y[:count] += x[row] + x.sum(0)
    y[-1] = x[row, :] * y[0]
    return y


PROGRAMS = [written_into_a_copy, written_into_a_value, read_beside_all, subtracted, in_place]


@pytest.mark.parametrize("program", PROGRAMS)
def test_any_part_of_a_buffer_that_is_read_as_a_whole(program: Any, rng: random.Random) -> None:
    array = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS) + 1
    x = Tensor(array).realize()
    draws = [(0, 1), *[(rng.randrange(ROWS), rng.randint(1, 3)) for _ in range(12)]]
    for row, count in draws:
        got = program(x, Tensor.clone, row, count).numpy()
        assert np.array_equal(got, program(array, np.copy, row, count)), (row, count)


def test_programs_in_turn(rng: random.Random) -> None:
    array = np.random.default_rng(3).integers(-4, 5, (ROWS, COLUMNS)).astype(np.float32)
    x = Tensor(array).realize()
    for _ in range(150):
        first, second = rng.choice(PROGRAMS), rng.choice(PROGRAMS)
        row, other, count = rng.randrange(ROWS), rng.randrange(ROWS), rng.randint(1, 3)
        got = second(first(x, Tensor.clone, row, count), Tensor.clone, other, count) + x[row]
        want = second(first(array, np.copy, row, count), np.copy, other, count) + array[row]
        assert np.array_equal(got.numpy(), want), (first, second, row, other, count)
