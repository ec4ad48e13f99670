"""Scatters give what NumPy's `ufunc.at` gives, in the order of positions, whoever of how many threads makes them."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.ir.node import make
from intaglio.ops.loop import StoreAt
from intaglio.ops.memory import iota
from intaglio.ops.movement import expand, reshape
from intaglio.ops.reduce import reduce
from tests.unit.lower.running import Operands, numbers, run

COMBINE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def draws(below: int, shape: tuple[int, ...]) -> np.ndarray:
    """Positions, some of them often, some out of range."""
    return np.random.default_rng(1).integers(-1, below + 1, shape)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("combine", [*COMBINE, "set"])
@pytest.mark.parametrize("row", [(200,), (33,), (7, 30), (40, 3), (2,)])
def test_rows_at_positions(row: tuple[int, ...], combine: str, threads: int) -> None:
    count = -(-(1 << 19) // int(np.prod(row)))
    values = np.random.default_rng(0).standard_normal((count, *row)).astype(np.float32)
    places = draws(50, (count,))
    out = numbers((50, *row), seed=2)
    want = out.copy()
    inside = (places >= 0) & (places < 50)
    if combine == "set":
        for place, value in zip(places[inside], values[inside], strict=True):
            want[place] = value
    else:
        COMBINE[combine].at(want, places[inside], values[inside])
    k = Operands()
    target = k.read(out)
    lowered = run(k, make(StoreAt(combine), target, k.read(values), k.read(places)), threads=threads)
    np.testing.assert_array_equal(out, want)
    assert lowered.chunks <= threads
    assert (lowered.chunks > 1) == (threads > 1 and row[0] > 2)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("axis", [0, 1])
def test_elements_at_positions_along_an_axis(axis: int, threads: int) -> None:
    values = np.random.default_rng(0).standard_normal((600, 900)).astype(np.float32)
    places = draws(70, values.shape)
    inside = np.nonzero((places >= 0) & (places < 70))
    out = np.zeros((70, 900) if axis == 0 else (600, 70), np.float32)
    want = out.copy()
    np.add.at(want, (places[inside], inside[1]) if axis == 0 else (inside[0], places[inside]), values[inside])
    k = Operands()
    target, source, positions = k.read(out), k.read(values), k.read(places)
    other = 1 - axis
    counter = expand(reshape(iota(values.shape[other]), (1, 900) if axis == 0 else (600, 1)), values.shape)
    indices = (positions, counter) if axis == 0 else (counter, positions)
    lowered = run(k, make(StoreAt("add"), target, source, *indices), threads=threads)
    np.testing.assert_array_equal(out, want)
    assert lowered.chunks == threads


@pytest.mark.parametrize("combine", [*COMBINE, "set"])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 1003])
def test_elements_that_are_stored_a_few_in_a_row_come_in_order(count: int, combine: str) -> None:
    values, places = numbers((count,)), draws(3, (count,))
    out = numbers((3,), seed=2)
    want = out.copy()
    inside = (places >= 0) & (places < 3)
    if combine == "set":
        want[places[inside]] = values[inside]
    else:
        COMBINE[combine].at(want, places[inside], values[inside])
    k = Operands()
    run(k, make(StoreAt(combine), k.read(out), k.read(values), k.read(places)))
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize(("place", "want"), [(2, [1, 1, 6]), (3, [1, 1, 1]), (-1, [1, 1, 1])])
def test_one_element_at_one_position(place: int, want: list[int]) -> None:
    out, value, position = np.ones(3, np.float32), np.full((), 5, np.float32), np.full((), place)
    k = Operands()
    run(k, make(StoreAt("add"), k.read(out), k.read(value), k.read(position)))
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("count", [7, 8])
def test_sums_that_are_scattered_have_the_bits_they_have_alone(count: int) -> None:
    x = np.random.default_rng(3).standard_normal((count, 1000)).astype(np.float32)
    places = np.arange(count)[::-1].copy()
    sums, out = np.zeros(count, np.float32), np.zeros(count, np.float32)
    alone, k = Operands(), Operands()
    run(alone, alone.write(sums, reduce("sum", alone.read(x), (1,))))
    run(k, make(StoreAt("set"), k.read(out), reduce("sum", k.read(x), (1,)), k.read(places)))
    np.testing.assert_array_equal(out[places], sums)
