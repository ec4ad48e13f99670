"""Reductions of more than the caches hold: the halves of the rows side by side, each row with the bits it has alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio.core.dtypes import dtypes
from intaglio.lower.loops import CHUNK, CHUNKS
from intaglio.ops.elementwise import eq, mul, ne, or_, sqrt, where
from intaglio.ops.loop import Prefetch
from intaglio.ops.memory import Load, const, iota
from intaglio.ops.movement import expand, reshape
from intaglio.ops.reduce import reduce
from intaglio.runtime.compiler import host_target
from tests.unit.lower.running import Operands, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.core.target import Target
    from intaglio.ir.node import Node
    from intaglio.lower.kernel import Lowered

COLUMNS = 2000  # no whole number of vectors, nor of blocks of a sum
MANY = 2 * CHUNK // COLUMNS + 2  # rows that threads share


def far(threads: int) -> Target:
    """This machine with caches that hold less than two rows."""
    return replace(host_target(threads), level2=1 << 12, level3=1 << 13)


def draws(*shape: int) -> np.ndarray:
    """Numbers whose sums round: another order of them has other bits."""
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def sums(x: Node) -> Node:
    """The sum of each row."""
    return reduce("sum", x, (x.rank - 1,))


def lengths(x: Node) -> Node:
    """The length of each row, as a vector."""
    return sqrt(sums(mul(x, x)))


def places(x: Node) -> Node:
    """The place of the largest number of each row."""
    best = expand(reshape(reduce("max", x, (1,)), (x.shape[0], 1)), x.shape)
    place = expand(reshape(iota(x.shape[1]), (1, x.shape[1])), x.shape)
    never = expand(const(dtypes.int64, x.shape[1]), x.shape)
    return reduce("min", where(or_(eq(x, best), ne(x, x)), place, never), (1,))


def count(lowered: Lowered, kind: type[object]) -> int:
    """How many instructions of the code are of a kind."""
    return sum(isinstance(n.op, kind) for n in lowered.linear.src)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, MANY, MANY + 1])
@pytest.mark.parametrize(("value", "dtype"), [(sums, "float32"), (lengths, "float32"), (places, "int64")])
def test_halves_of_the_rows_are_read_side_by_side(
    value: Callable[[Node], Node], dtype: str, rows: int, threads: int
) -> None:
    x = draws(rows, COLUMNS)
    k, near = Operands(), Operands()
    out, plain = np.zeros(rows, dtype), np.zeros(rows, dtype)
    lowered = run(k, k.write(out, value(k.read(x))), target=far(threads))
    single = run(near, near.write(plain, value(near.read(x))), threads=threads)
    np.testing.assert_array_equal(out.view(np.uint8), plain.view(np.uint8))
    halved = rows > 1 and (value is not places or far(1).vector_registers == 32)
    assert count(lowered, Load) == (2 + rows % 2 if halved else 1) * count(single, Load)
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


@pytest.mark.parametrize("shape", [(5, 7, COLUMNS), (2, 3, 2, 900)])
def test_halves_of_outer_rows_hold_all_inner_ones(shape: tuple[int, ...]) -> None:
    x = draws(*shape)
    k, near = Operands(), Operands()
    out, plain = np.zeros(shape[:-1], np.float32), np.zeros(shape[:-1], np.float32)
    run(k, k.write(out, sums(k.read(x))), target=far(1))
    run(near, near.write(plain, sums(near.read(x))))
    np.testing.assert_array_equal(out, plain)


def test_the_interpreter_goes_the_same_way() -> None:
    x = draws(5, COLUMNS)
    k, other = Operands(), Operands()
    out, told = np.zeros(5, np.float32), np.zeros(5, np.float32)
    run(k, k.write(out, sums(k.read(x))), target=far(1))
    run(other, other.write(told, sums(other.read(x))), target=far(1), interpret=True)
    np.testing.assert_array_equal(told, out)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("order", ["sml", "lms", "msl", "slm"])
@pytest.mark.parametrize("rows", [15, 16])
def test_stores_that_are_halved_and_others_share_chunks(rows: int, order: Sequence[str], threads: int) -> None:
    arrays = {"s": draws(rows, 300), "m": draws(rows, COLUMNS), "l": draws(rows, 40_000)}
    k = Operands()
    out = {size: np.full(rows, -7, np.float32) for size in order}
    stores = [k.write(out[size], sums(k.read(arrays[size]))) for size in order]
    lowered = run(k, *stores, target=replace(far(threads), level3=rows * 40_000 * 4))
    assert count(lowered, Prefetch)
    assert (lowered.chunks > 1) == (threads > 1)
    for size in order:
        np.testing.assert_allclose(out[size], arrays[size].sum(1, dtype=np.float64), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("rows", "halved"), [(2, False), (3, False), (CHUNKS, True), (CHUNKS + 1, True)])
def test_no_chunk_is_lost_where_there_are_few(rows: int, halved: bool) -> None:
    x = draws(rows, 2 * CHUNK)
    k, out = Operands(), np.zeros(rows, np.float32)
    lowered = run(k, k.write(out, reduce("max", k.read(x), (1,))), target=far(2))
    np.testing.assert_array_equal(out, x.max(1))
    assert lowered.chunks == (-(-rows // 2) if halved else rows)
