"""Positions of extremes: found in one pass, the first of equals, NaN before all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.dtypes import dtypes
from intaglio.ops.elementwise import eq, ne, or_, where
from intaglio.ops.memory import const, iota
from intaglio.ops.movement import expand, reshape
from intaglio.ops.reduce import reduce
from tests.unit.lower.running import Operands, loops, run

if TYPE_CHECKING:
    from intaglio.ir.node import Node


def position(kind: str, x: Node) -> Node:
    """The position of the extreme of each row."""
    rows, n = x.shape
    best = expand(reshape(reduce(kind, x, (1,)), (rows, 1)), x.shape)
    hit = or_(eq(x, best), ne(x, x)) if x.dtype.is_float else eq(x, best)
    place = expand(reshape(iota(n), (1, n)), x.shape)
    return reduce("min", where(hit, place, const(dtypes.int64, n)), (1,))


def rows(n: int, dtype: str, seed: int) -> np.ndarray:
    """Rows of many equals, of NaN, of infinities."""
    rng = np.random.default_rng(seed)
    found = rng.integers(0, 5, (6, n)).astype(dtype)
    if found.dtype.kind == "f":
        found[1, rng.integers(0, n, 3)] = np.nan
        found[2], found[3], found[4] = -np.inf, np.inf, np.nan
        found[5, ::2] = -0.0
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
@pytest.mark.parametrize("n", [2, 15, 16, 17, 31, 32, 33, 64, 65, 129, 257, 1000])
def test_the_first_of_equals_is_found(n: int, dtype: str, seed: int) -> None:
    x = rows(n, dtype, seed)
    for kind in ("max", "min"):
        for interpret in (False, True):
            if interpret and n > 65:
                continue
            out = np.zeros(6, np.int64)
            k = Operands()
            run(k, k.write(out, position(kind, k.read(x))), interpret=interpret)
            assert out.tolist() == getattr(x, f"arg{kind}")(1).tolist()


def test_a_row_is_read_once_for_its_extreme_and_its_position() -> None:
    x = np.random.default_rng(0).standard_normal((10, 1000), np.float32)
    best, where_found = np.zeros(10, np.float32), np.zeros(10, np.int64)
    k = Operands()
    value = k.read(x)
    lowered = run(k, k.write(best, reduce("max", value, (1,))), k.write(where_found, position("max", value)))
    assert loops(lowered) == 2  # rows, and in each its vectors
    assert np.array_equal(best, x.max(1))
    assert np.array_equal(where_found, x.argmax(1))


@pytest.mark.parametrize("shape", [(1 << 21,), ((1 << 21) + 1,), (3, 1 << 20), (1 << 20, 2)])
def test_positions_in_all_of_a_large_tensor(shape: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape, np.float32)
    for change in ("", "equals", "nan"):
        places = rng.integers(0, x.size, 3)
        if change:
            x.flat[places] = 9 if change == "equals" else np.nan
        t = Tensor(x)
        assert (t.argmax().item(), t.argmin().item()) == (x.argmax(), x.argmin())
