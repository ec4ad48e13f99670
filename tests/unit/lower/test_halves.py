"""Reductions of more than the caches hold: the halves of the rows side by side, each row with the bits it has alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio.core.dtypes import dtypes
from intaglio.lower.loops import CHUNK
from intaglio.ops.elementwise import eq, mul, ne, or_, sqrt, where
from intaglio.ops.loop import sink
from intaglio.ops.memory import Load, const, iota
from intaglio.ops.movement import expand, reshape
from intaglio.ops.reduce import reduce
from intaglio.runtime.compiler import host_target
from tests.unit.lower.running import Operands, numbers, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.core.target import Target
    from intaglio.ir.node import Node
    from intaglio.lower.kernel import Lowered

COLUMNS = 2000  # no whole number of vectors, nor of blocks of a sum
MANY = 2 * CHUNK // COLUMNS + 2  # rows that threads share


def far(threads: int) -> Target:
    """This machine with caches that hold less than two rows."""
    return replace(host_target(threads), level2=1 << 12, level3=1 << 13)


def sums(x: Node) -> Node:
    """The sum of each row."""
    return reduce("sum", x, (1,))


def lengths(x: Node) -> Node:
    """The length of each row, as a vector."""
    return sqrt(sums(mul(x, x)))


def places(x: Node) -> Node:
    """The place of the largest number of each row."""
    best = expand(reshape(reduce("max", x, (1,)), (x.shape[0], 1)), x.shape)
    place = expand(reshape(iota(COLUMNS), (1, COLUMNS)), x.shape)
    return reduce("min", where(or_(eq(x, best), ne(x, x)), place, expand(const(dtypes.int64, COLUMNS), x.shape)), (1,))


def loads(lowered: Lowered) -> int:
    """How many instructions of the code load something."""
    return sum(isinstance(n.op, Load) for n in lowered.linear.src)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, MANY, MANY + 1])
@pytest.mark.parametrize(("value", "dtype"), [(sums, "float32"), (lengths, "float32"), (places, "int64")])
def test_halves_of_the_rows_are_read_side_by_side(
    value: Callable[[Node], Node], dtype: str, rows: int, threads: int
) -> None:
    x = numbers((rows, COLUMNS))
    k, near = Operands(), Operands()
    out, plain = np.zeros(rows, dtype), np.zeros(rows, dtype)
    lowered = run(k, k.write(out, value(k.read(x))), target=far(threads))
    single = run(near, near.write(plain, value(near.read(x))), threads=threads)
    np.testing.assert_array_equal(out, plain)
    assert loads(lowered) >= (1 if rows == 1 else 2 + rows % 2) * loads(single) * (value is not places)
    assert (lowered.chunks > 1) == (rows >= MANY and threads > 1)


@pytest.mark.parametrize("rows", [6, 7])
def test_the_places_of_equal_numbers_and_of_no_numbers_are_the_first(rows: int) -> None:
    x = np.zeros((rows, COLUMNS), np.float32)
    x[0, 700:] = 1
    x[1, [3, 900]] = np.nan
    x[rows // 2, 1999] = 2
    x[rows - 1, [17, 18]] = np.inf
    k, out = Operands(), np.zeros(rows, np.int64)
    run(k, k.write(out, places(k.read(x))), target=far(1))
    np.testing.assert_array_equal(out, x.argmax(1))


def test_halves_of_outer_rows_hold_all_inner_ones() -> None:
    x = numbers((5, 7, COLUMNS))
    k, out = Operands(), np.zeros((5, 7), np.float32)
    run(k, k.write(out, reduce("max", k.read(x), (2,))), target=far(1))
    np.testing.assert_array_equal(out, x.max(2))


def test_two_results_of_one_array_are_computed_together() -> None:
    x = numbers((6, COLUMNS))
    k = Operands()
    read = k.read(x)
    total, best = np.zeros(6, np.float32), np.zeros(6, np.float32)
    kernel = sink(k.write(total, sums(read)), k.write(best, reduce("max", read, (1,))))
    run(k, kernel, target=far(1))
    np.testing.assert_allclose(total, x.sum(1, dtype=np.float64), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(best, x.max(1))
