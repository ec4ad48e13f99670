"""The product after the one at hand: launches in a series, and what each asks for of the next one."""

from __future__ import annotations

from array import array
from dataclasses import replace

import numpy as np
import pytest

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import InternalError
from intaglio.ir.interpret import run_linear
from intaglio.ir.levels import Level
from intaglio.ir.node import make
from intaglio.ir.verify import verify
from intaglio.lower.emit import LINE
from intaglio.lower.kernel import Lowered, lower
from intaglio.lower.product import tile_shape
from intaglio.ops.elementwise import add, maximum
from intaglio.ops.loop import PREFETCH, Chunk, Linear, Prefetch, sink, store
from intaglio.ops.memory import NextParam, Param, const, load
from intaglio.render import c, llvm
from intaglio.runtime.compiler import host_target
from tests.unit.lower.running import Operands, compiler, function, numbers
from tests.unit.lower.test_slabs import product

ELEMENTS = LINE // 4
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def drawn(count: int, m: int, depth: int, n: int) -> list[Arrays]:
    """Factors of some products, and where the results go."""
    return [
        (numbers((m, depth), seed=k), numbers((depth, n), seed=100 + k), np.zeros((m, n), np.float32))
        for k in range(count)
    ]


def lowered_product(arrays: Arrays, *, level2: int = 1 << 20, threads: int = 1) -> tuple[Lowered, Operands]:
    """The kernel of a product of two matrices, and its operands."""
    a, b, out = arrays
    k = Operands()
    value = product(k, a, b)
    target = replace(host_target(threads), level2=level2)
    return lower(sink(k.write(out, value)), target), k


def words(given: list[Arrays], k: Operands, arrays: Arrays) -> array[int]:
    """The arguments of launches on some arrays, as a kernel that was made for others of them takes them."""
    order = [next(j for j, own in enumerate(arrays) if own is operand) for operand in k.arrays]
    return array("Q", [each[j].ctypes.data for each in given for j in order])


def lines_of(marks: np.ndarray) -> np.ndarray:
    """Whether any element of each line of rows is marked."""
    return marks.reshape(len(marks), -1, ELEMENTS).any(-1)


@pytest.mark.parametrize(("m", "depth", "n"), [(64, 64, 64), (128, 128, 128), (61, 48, 64), (17, 33, 29), (64, 16, 16)])
def test_launches_in_a_series_are_chunks_of_one_call(m: int, depth: int, n: int) -> None:
    given = drawn(5, m, depth, n)
    lowered, k = lowered_product(given[0])
    assert (lowered.chunks, lowered.parallel) == (1, False)
    assert lowered.series == (3 if host_target(1).vector_bytes else 0)
    slots = words(given, k, given[0])
    address, _ = compiler().load(llvm.render(lowered.linear, host_target(1)), lowered.name)
    for begin, end in ((3, 4), (0, 3)):
        function(address, lowered.linear)(slots.buffer_info()[0], begin, end)
    assert [np.array_equal(out, a @ b) for a, b, out in given] == [True] * 4 + [False]
    for _, _, out in given:
        out[:] = 0
    if m * depth * n < 1 << 15:
        run_linear(lowered.linear, list(slots), 5)
        assert all(np.array_equal(out, a @ b) for a, b, out in given)


@pytest.mark.parametrize(("m", "depth", "n"), [(64, 64, 64), (128, 128, 128), (96, 64, 128), (50, 80, 192)])
def test_all_that_the_next_launch_works_on_is_asked_for_by_whole_tiles(m: int, depth: int, n: int) -> None:
    given = drawn(1, m, depth, n)[0]
    lowered, k = lowered_product(given)
    if not lowered.series:
        pytest.skip("no vectors")
    target = host_target(1)
    rows, _ = tile_shape(m, 4 * n // target.vector_bytes, target, near=True)
    marks = [np.zeros((3 * own.size,), np.float32) for own in k.arrays]
    code = [
        store(make(Param(3 + n.src[0].op.slot, dtypes.float32, 3)), n.src[1], const(dtypes.float32, 1))
        if isinstance(n.op, Prefetch) and isinstance(n.src[0].op, NextParam)
        else n
        for n in lowered.linear.src
    ]
    assert not any(isinstance(n.op, Prefetch) for n in code)
    marking = make(Linear(lowered.name), *code)
    address, _ = compiler().load(llvm.render(marking, target), lowered.name)
    slots = array("Q", (each.ctypes.data for each in (*k.arrays, *marks)))
    function(address, marking)(slots.buffer_info()[0], 0, 1)
    for own, found in zip(k.arrays, marks, strict=True):
        asked = lines_of(found[: own.size].reshape(own.shape))
        assert asked[: depth if own is given[1] else m - m % rows].all()


def test_what_is_shared_by_threads_packed_or_not_alone_is_no_series() -> None:
    large = drawn(1, 256, 256, 256)[0]
    assert lowered_product(large, threads=2)[0].series == 0
    small = drawn(1, 128, 64, 128)[0]
    assert lowered_product(small, level2=1 << 14)[0].series == 0
    k = Operands()
    a, b, out = small
    first = k.write(out, product(k, a, b))
    second = k.write(np.zeros(7, np.float32), k.read(np.ones(7, np.float32)))
    assert lower(sink(first, second), host_target(1)).series == 0


def test_the_next_launch_is_known_by_its_arguments() -> None:
    given, other = make(Param(0, dtypes.float32, 0)), make(Param(1, dtypes.float32, 1))
    zero = const(dtypes.int64, 0)
    value = load(given, zero)
    total = add(value, value)
    asks = make(PREFETCH, make(NextParam(0, dtypes.float32)), zero)
    code = make(Linear("twice", (), 2), asks, value, total, store(other, zero, total))
    verify(code, Level.LINEAR)
    cells = np.arange(8, dtype=np.float32)
    slots = array("Q", [cells.ctypes.data + 4 * j for j in (1, 0, 0, 2, 2, 3)])  # each reads what the last one wrote
    address, _ = compiler().load(llvm.render(code, host_target(1)), "twice")
    function(address, code)(slots.buffer_info()[0], 0, 3)
    assert cells.tolist() == [2, 1, 4, 8, 4, 5, 6, 7]
    cells[:] = np.arange(8)
    run_linear(code, list(slots), 3)
    assert cells.tolist() == [2, 1, 4, 8, 4, 5, 6, 7]
    assert "prefetch" not in c.render(code)


def test_the_next_launch_is_only_asked_for_and_has_no_chunks() -> None:
    following, zero = make(NextParam(0, dtypes.float32)), const(dtypes.int64, 0)
    with pytest.raises(InternalError, match="load must go through a param or local"):
        verify(make(Linear("k", (), 1), load(following, zero)), Level.LINEAR)
    least = maximum(make(Chunk("begin")), zero)
    verify(make(Linear("k"), make(Chunk("begin")), least), Level.LINEAR)
    with pytest.raises(InternalError, match="the chunks of a series are launches"):
        verify(make(Linear("k", (), 1), make(Chunk("begin")), least), Level.LINEAR)
