"""Reductions of more than the caches hold: which lines are asked for ahead, and that only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio.core.dtypes import dtypes
from intaglio.core.size import NOMINAL
from intaglio.ir.view import View
from intaglio.lower.ahead import SOON
from intaglio.lower.emit import LINE
from intaglio.lower.kernel import Lowered, lower
from intaglio.ops.elementwise import add, eq, mul, ne, or_, where
from intaglio.ops.loop import EndLoop, Loop, Prefetch, Store, sink, store
from intaglio.ops.memory import const, iota, window
from intaglio.ops.movement import expand, reshape
from intaglio.ops.reduce import reduce
from intaglio.render import c, llvm
from intaglio.runtime.compiler import host_target
from tests.unit.lower.running import Operands, numbers, run
from tests.unit.lower.test_upcoming import asked

if TYPE_CHECKING:
    from intaglio.core.target import Target
    from intaglio.ir.node import Node

ROWS, COLUMNS = 96, 2048
KEPT = 16  # rows that half of the third cache holds


def small(threads: int = 1) -> Target:
    """This machine with a second cache that holds two rows, and a third one that holds some more."""
    return replace(host_target(threads), level2=1 << 14, level3=2 * KEPT * COLUMNS * 4)


def sums(x: Node) -> Node:
    """The sum of each row."""
    return reduce("sum", x, (1,))


def places(x: Node) -> Node:
    """The place of the largest of each row."""
    best = expand(reshape(reduce("max", x, (1,)), (ROWS, 1)), x.shape)
    place = expand(reshape(iota(COLUMNS), (1, COLUMNS)), x.shape)
    never = expand(const(dtypes.int64, COLUMNS), x.shape)
    return reduce("min", where(or_(eq(x, best), ne(x, x)), place, never), (1,))


def deviations(x: Node) -> Node:
    """The sum of squares of each row less its first moment: each element is needed twice."""
    rest = add(x, expand(reshape(sums(x), (ROWS, 1)), x.shape))
    return sums(mul(rest, rest))


def hints(lowered: Lowered) -> int:
    """How many instructions of the code ask for a line."""
    return sum(isinstance(n.op, Prefetch) for n in lowered.linear.src)


def stored(lowered: Lowered) -> list[int]:
    """How many pointers each of the outermost loops stores through."""
    counts: list[int] = []
    depth = 0
    pointers: set[Node] = set()
    for node in lowered.linear.src:
        match node.op:
            case Loop():
                depth += 1
            case EndLoop():
                depth -= 1
                if not depth:
                    counts.append(len(pointers))
                    pointers = set()
            case Store():
                pointers.add(node.src[0])
    return counts


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("value", "dtype"), [(sums, "float32"), (places, "int64")])
def test_each_line_of_what_no_cache_holds_is_asked_for_ahead(value, dtype: str, threads: int) -> None:
    x = numbers((ROWS, COLUMNS))
    k, near = Operands(), Operands()
    out, plain = np.zeros(ROWS, dtype), np.zeros(ROWS, dtype)
    lowered = run(k, k.write(out, value(k.read(x))), target=small(threads))
    assert hints(run(near, near.write(plain, value(near.read(x))), threads=threads)) == 0
    np.testing.assert_array_equal(out, plain)
    assert hints(lowered)
    marks = asked(lowered, k, x.size + SOON, small(threads))
    starts = marks[: x.size].reshape(-1, LINE // x.itemsize).any(1)
    first = SOON * x.itemsize // LINE
    assert not starts[:first].any()
    assert starts[first:].all()


def test_what_is_needed_again_is_there() -> None:
    x, out = numbers((ROWS, COLUMNS)), np.zeros(ROWS, np.float32)
    k = Operands()
    assert hints(run(k, k.write(out, deviations(k.read(x))), target=small())) == 0


def test_what_a_cache_holds_is_not_asked_for() -> None:
    x, out = numbers((2 * KEPT - 1, COLUMNS)), np.zeros(2 * KEPT - 1, np.float32)
    k = Operands()
    assert hints(run(k, k.write(out, sums(k.read(x))), target=small())) == 0


@pytest.mark.parametrize(("rows", "is_asked"), [(KEPT, True), (2, False)])
def test_a_matrix_that_is_multiplied_by_a_row_is_asked_for_unless_the_second_cache_holds_it(
    rows: int, is_asked: bool
) -> None:
    x, row, out = numbers((rows, COLUMNS)), numbers((COLUMNS,), seed=1), np.zeros(rows, np.float32)
    k = Operands()
    both = mul(k.read(x), expand(reshape(k.read(row), (1, COLUMNS)), x.shape))
    lowered = run(k, k.write(out, sums(both)), target=small())
    np.testing.assert_array_equal(out, x @ row)
    assert bool(hints(lowered)) == is_asked


def test_what_has_nothing_in_common_is_read_in_one_go_each() -> None:
    arrays = [numbers((ROWS, COLUMNS), seed=seed) for seed in range(3)]
    row = numbers((COLUMNS,), seed=4)
    outs = [np.zeros(ROWS, np.float32) for _ in range(4)]
    k = Operands()
    near = expand(reshape(k.read(row), (1, COLUMNS)), (ROWS, COLUMNS))
    a, b, c = map(k.read, arrays)
    values = [sums(mul(a, near)), sums(mul(b, near)), sums(mul(c, near)), reduce("max", a, (1,))]
    stores = [k.write(out, value) for out, value in zip(outs, values, strict=True)]
    lowered = run(k, *stores, target=small(2))
    for out, want in zip(outs, [*[x @ row for x in arrays], arrays[0].max(1)], strict=True):
        np.testing.assert_array_equal(out, want)
    assert sorted(stored(lowered)) == [1, 1, 2]


def test_a_hint_brings_a_line_into_the_second_cache() -> None:
    x, out = numbers((3, 4096)), np.zeros(3, np.float32)
    k = Operands()
    lowered = run(k, k.write(out, sums(k.read(x))), target=replace(small(), level3=1 << 14))
    np.testing.assert_array_equal(out, x.sum(1))
    assert hints(lowered)
    assert "i32 0, i32 2, i32 1" in llvm.render(lowered.linear, host_target(1))
    scalar = lower(sink(k.write(out, sums(k.read(x)))), replace(small(), vector_bytes=0, level3=1 << 14))
    assert "__builtin_prefetch(&" in c.render(scalar.linear)


def test_what_has_any_size_may_be_small_and_is_not_asked_for() -> None:
    k = Operands()
    x = window(View.contiguous(dtypes.float32, (8, NOMINAL)), k.pointer(np.empty(1, np.float32)))
    out = window(View.contiguous(dtypes.float32, (8,)), k.pointer(np.empty(1, np.float32)))
    assert hints(lower(sink(store(out, sums(x))), small(), size_slot=2)) == 0


@pytest.mark.parametrize("step", [3, 16])
def test_elements_apart_are_not_asked_for_one_by_one(step: int) -> None:
    x = numbers((5, 1000, step))
    k = Operands()
    out = np.zeros(5, np.float32)
    lowered = run(k, k.write(out, reduce("sum", k.read(x[:, :, :2]), (1, 2))), target=replace(small(), level3=1 << 10))
    np.testing.assert_array_equal(out, x[:, :, :2].sum((1, 2)))
    assert hints(lowered) == 0
