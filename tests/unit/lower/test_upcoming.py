"""What is multiplied next: which lines of a matrix are asked for, and that it changes nothing else."""

from __future__ import annotations

import itertools
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio.core.dtypes import dtypes
from intaglio.ir.interpret import run_linear
from intaglio.ir.levels import Level
from intaglio.ir.node import make
from intaglio.ir.verify import verify
from intaglio.lower.emit import LINE, Emitter
from intaglio.lower.index import Index
from intaglio.lower.kernel import Lowered, lower
from intaglio.lower.upcoming import Upcoming, shares
from intaglio.ops.loop import PREFETCH, Linear, Prefetch, Range, sink, store
from intaglio.ops.memory import Local, Param, const, load
from intaglio.render import c, llvm
from intaglio.runtime.compiler import host_target
from tests.unit.lower.running import Operands, compiler, function, numbers
from tests.unit.lower.test_slabs import product

if TYPE_CHECKING:
    from intaglio.core.target import Target

LEVEL2 = 1 << 14  # bytes of a cache that holds none of the matrices


def asked(lowered: Lowered, k: Operands, size: int, target: Target) -> np.ndarray:
    """Which of so many elements of the second operand a kernel asks for, found by storing there."""
    marks = np.zeros(size, np.float32)
    slot = len(k.arrays)
    pointer = make(Param(slot, dtypes.float32, slot))
    code = [
        store(pointer, n.src[1], const(dtypes.float32, 1)) if isinstance(n.op, Prefetch) else n
        for n in lowered.linear.src
    ]
    marked = make(Linear(lowered.name), *code)
    address, _ = compiler().load(llvm.render(marked, target), lowered.name)
    slots = array("Q", (a.ctypes.data for a in (*k.arrays, marks)))
    function(address, lowered.linear)(slots.buffer_info()[0], 0, lowered.chunks)
    return marks != 0


def lowered_product(a: np.ndarray, b: np.ndarray, level2: int = LEVEL2) -> tuple[Lowered, Operands, np.ndarray, Target]:
    """The kernel of a @ b, its operands, its result, its target."""
    target = replace(host_target(1), level2=level2)
    out = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
    k = Operands()
    value = product(k, a, b)
    return lower(sink(k.write(out, value)), target), k, out, target


def starts_of_lines(rows: np.ndarray) -> np.ndarray:
    """Whether any element of each line of rows is marked."""
    line = LINE // rows.itemsize if rows.dtype != bool else LINE // 4
    return rows.reshape(*rows.shape[:-1], -1, line).any(-1)


@pytest.mark.parametrize("m", [17, 64, 100, 128])
@pytest.mark.parametrize(("depth", "n"), [(320, 576), (512, 768)])
def test_all_lines_of_a_slabbed_matrix_but_those_of_the_first_panel_are_asked_for(m: int, depth: int, n: int) -> None:
    a, b = numbers((m, depth)), numbers((depth, n), seed=1)
    lowered, k, out, target = lowered_product(a, b)
    marks = asked(lowered, k, 3 * depth * n, target)[: depth * n].reshape(depth, n)
    assert np.array_equal(out, a @ b)
    lines = starts_of_lines(marks)
    first = 8 * target.vector_bytes // LINE  # the most that is read at once: of the first slab it is not asked for
    assert lines[:, first:].all()


def test_all_columns_that_are_turned_but_those_of_the_first_block_are_asked_for() -> None:
    a, b = numbers((128, 256)), numbers((960, 256), seed=1)
    lowered, k, out, target = lowered_product(a, b.T)
    marks = asked(lowered, k, 2 * b.size, target)[: b.size].reshape(b.shape)
    assert np.array_equal(out, a @ b.T)
    first = next(j for j in range(len(b)) if marks[j:].any(-1).all())
    assert first <= 96
    assert starts_of_lines(marks[first:]).all()


def test_the_next_sheet_of_a_batch_is_asked_for() -> None:
    a, b = numbers((5, 64, 48)), numbers((5, 48, 64), seed=1)
    lowered, k, out, target = lowered_product(a, b, level2=1 << 20)
    marks = asked(lowered, k, 2 * b.size, target)[: b.size].reshape(b.shape)
    assert np.array_equal(out, a @ b)
    assert not marks[0].any()
    assert starts_of_lines(marks[1:]).all()


def test_scratch_is_not_asked_for() -> None:
    axes, emitter = itertools.count(), Emitter(Index(), host_target(1))
    row, column = (make(Range(next(axes)), const(dtypes.int64, 64)) for _ in range(2))
    place = emitter.index.sum([(row, 64), (column, 1)])
    for pointer, asked_for in (
        (make(Param(0, dtypes.float32, 0)), True),
        (make(Local(0, dtypes.float32, 4096)), False),
    ):
        upcoming = Upcoming(emitter, axes, load(pointer, place), row=row, column=column)
        assert bool(upcoming) == upcoming.is_in_lines == asked_for
        turned = Upcoming(emitter, axes, load(pointer, place), row=column, column=row)
        assert (bool(turned), turned.is_in_lines) == (asked_for, False)


@pytest.mark.parametrize("tiles", [1, 2, 5, 16, 100])
@pytest.mark.parametrize("lines", [1, 7, 64, 200, 256])
def test_tiles_ask_for_all_rows_of_a_panel(tiles: int, lines: int) -> None:
    every, count = shares(lines, tiles)
    found = {
        start + tile * count + k for tile in range(tiles) for start in range(0, lines, every) for k in range(count)
    }
    assert found >= set(range(lines))
    assert len(found) <= lines + every


def test_what_asks_is_a_hint_in_each_form() -> None:
    x, out = np.arange(3, dtype=np.float32), np.zeros(1, np.float32)
    given, result = (make(Param(slot, dtypes.float32, slot)) for slot in range(2))
    far = const(dtypes.int64, 1 << 40)
    value = load(given, const(dtypes.int64, 2))
    code = make(Linear("hint"), make(PREFETCH, given, far), value, store(result, const(dtypes.int64, 0), value))
    verify(code, Level.LINEAR)
    slots = array("Q", (x.ctypes.data, out.ctypes.data))
    run_linear(code, list(slots), 1)
    assert out[0] == 2
    out[0] = 0
    address, _ = compiler().load(llvm.render(code, host_target(1)), "hint")
    function(address, code)(slots.buffer_info()[0], 0, 1)
    assert out[0] == 2
    assert "__builtin_prefetch(&data0[1099511627776LL], 0, 2);" in c.render(code)
