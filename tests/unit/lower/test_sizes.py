"""Kernels whose size is an argument give what kernels of a fixed size give, at every size."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pytest

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.size import NOMINAL, UnsizedError, at, split, varies
from intaglio.core.target import Target
from intaglio.ir.interpret import run_linear
from intaglio.ir.levels import Level
from intaglio.ir.node import Node, make
from intaglio.ir.verify import verify
from intaglio.ir.view import View
from intaglio.lower.kernel import Lowered, lower
from intaglio.ops.elementwise import add, cast, div, eq, exp, floor_div, lt, maximum, mod, mul, sub, where
from intaglio.ops.loop import FOR, Loop, Range, StoreAt, sink, store
from intaglio.ops.memory import Const, Load, Param, const, iota, take, window
from intaglio.ops.movement import expand, flip, pad, permute, reshape, shrink
from intaglio.ops.reduce import reduce, scan
from intaglio.render import c, llvm
from intaglio.runtime.compiler import host_target
from tests.unit.lower.running import compiler, function

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 255, 1000)
INTERPRETED = 40  # sizes up to it run in the interpreter as well
EDGE = 64  # bytes before and after each array, which nothing may change


class Program:
    """A kernel in the making at one size: its pointers, and arrays of whole numbers where the size is a real one."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.count = 0
        self.memories: list[np.ndarray] = []
        self.dtypes: list[DType] = []

    def pointer(self, dtype: DType, size: int, low: int = -4, high: int = 5) -> Node:
        """A parameter of so many elements."""
        slot = self.count
        self.count += 1
        if self.n < NOMINAL:
            raw = np.full(2 * EDGE + size * dtype.itemsize, 0x55, np.uint8)
            draw = np.random.default_rng(slot).integers(0 if dtype.is_bool else low, 2 if dtype.is_bool else high, size)
            raw[EDGE : EDGE + size * dtype.itemsize] = draw.astype(dtype.name).view(np.uint8)
            self.memories.append(raw)
            self.dtypes.append(dtype)
        return make(Param(slot, dtype, slot))

    def all(self, dtype: DType, *shape: int, low: int = -4, high: int = 5) -> Node:
        """All of a new array."""
        size = 1
        for extent in shape:
            size *= extent
        return window(View.contiguous(dtype, shape), self.pointer(dtype, size, low, high))

    def out(self, value: Node) -> Node:
        """The store of a value to a new array."""
        return store(self.all(value.dtype, *value.shape), value)

    def copies(self) -> list[np.ndarray]:
        """The bytes of all arrays, to run a kernel on."""
        return [m.copy() for m in self.memories]


Builder: TypeAlias = "Callable[[Program, int], list[Node]]"
f32, f64, i64 = dtypes.float32, dtypes.float64, dtypes.int64


def call(
    lowered: Lowered, memories: list[np.ndarray], arguments: tuple[int, ...] = (), *, interpret: bool = False
) -> None:
    """Run a kernel on the bytes of arrays."""
    slots = array("Q", [*(m.ctypes.data + EDGE for m in memories), *arguments])
    if interpret:
        run_linear(lowered.linear, list(slots), lowered.chunks)
        return
    target = host_target(1)
    address, _ = compiler().load(llvm.render(lowered.linear, target), lowered.name)
    function(address, lowered.linear)(slots.buffer_info()[0], 0, lowered.chunks)


def sized(build: Builder) -> Lowered:
    """A kernel with its size as an argument, checked."""
    k = Program(NOMINAL)
    ast = sink(*build(k, NOMINAL))
    verify(ast, Level.KERNEL)
    lowered = lower(ast, host_target(4), k.count)
    verify(lowered.linear, Level.LINEAR)
    assert lowered.chunks == 1
    assert str(NOMINAL)[:6] not in lowered.name
    for node in lowered.linear.src:
        for source in node.src:
            assert not (isinstance(source.op, Const) and source.dtype is i64 and varies(int(source.op.value)))
    scalar = lower(ast, Target("c", 0), k.count)
    verify(scalar.linear, Level.LINEAR)
    assert c.render(scalar.linear)
    return lowered


def check(
    build: Builder, *, least: int = 2, rtol: float = 0.0, sizes: tuple[int, ...] = SIZES, vector: bool | None = None
) -> Lowered:
    """Compare a kernel of an argument's size with kernels of fixed sizes, in LLVM and in the interpreter."""
    lowered = sized(build)
    assert lowered.least <= least
    scalar = replace(host_target(1), vector_bytes=0)
    if vector is not None:
        assert any(n.shape for n in lowered.linear.src if isinstance(n.op, Load)) is vector
    for n in sizes:
        if n < lowered.least:
            continue
        k = Program(n)
        fixed = lower(sink(*build(k, n)), scalar)
        want = k.copies()
        call(fixed, want)
        for interpret in (False, True) if n <= INTERPRETED else (False,):
            got = k.copies()
            call(lowered, got, (n,), interpret=interpret)
            for slot, dtype in enumerate(k.dtypes):
                a, b = got[slot], want[slot]
                if rtol:
                    values = (m[EDGE:-EDGE].view(dtype.name) for m in (a, b))
                    np.testing.assert_allclose(*values, rtol=rtol, err_msg=f"n = {n}, interpret = {interpret}")
                else:
                    np.testing.assert_array_equal(a, b, err_msg=f"n = {n}, slot {slot}, interpret = {interpret}")
    return lowered


def along(x: Node, axis: int, shape: tuple[int, ...]) -> Node:
    """A reduced value repeated along the axis that went."""
    kept = (*x.shape[:axis], 1, *x.shape[axis:])
    return expand(reshape(x, kept), shape)


# -- integers


def test_integers_at_the_nominal_size_are_read_off() -> None:
    assert split(7) == (7, 0, 0)
    assert split(-5 + 3 * NOMINAL) == (-5, 3, 0)
    assert split(-NOMINAL) == (0, -1, 0)
    assert split((4 * NOMINAL - 1) * (NOMINAL + 2)) == (-2, 7, 4)
    assert split(NOMINAL**3) is None
    assert split(-(2**63)) is None
    assert split(2**63 - 1) is None
    assert at((NOMINAL - 1) * (NOMINAL + 3) * 2, 10) == 9 * 13 * 2


# -- elementwise


@pytest.mark.parametrize("dtype", [f32, f64, i64, dtypes.int8, dtypes.float16, dtypes.bool, dtypes.uint8])
def test_elementwise(dtype: DType) -> None:
    check(lambda k, n: [k.out(add(mul(k.all(dtype, n), k.all(dtype, n)), k.all(dtype, n)))], vector=True)


@pytest.mark.parametrize("shape", ["n", "3n", "n3", "4n5", "n1", "1n", "nm1", "n_even"])
def test_elementwise_of_shapes(shape: str) -> None:
    def build(k: Program, n: int) -> list[Node]:
        full = {
            "n": (n,),
            "3n": (3, n),
            "n3": (n, 3),
            "4n5": (4, n, 5),
            "n1": (n + 1, 2),
            "1n": (1, n),
            "nm1": (n - 1,),
            "n_even": (2 * n, 8),
        }[shape]
        return [k.out(add(k.all(f32, *full), k.all(f32, *full)))]

    check(build)


def test_elementwise_with_broadcasts() -> None:
    def build(k: Program, n: int) -> list[Node]:
        x = k.all(f32, 5, n)
        row = expand(reshape(k.all(f32, n), (1, n)), (5, n))
        column = expand(reshape(k.all(f32, 5), (5, 1)), (5, n))
        return [k.out(add(mul(x, row), column))]

    check(build)


def test_several_stores_share_a_nest() -> None:
    def build(k: Program, n: int) -> list[Node]:
        x, y = k.all(f32, n, 3), k.all(f32, n, 3)
        return [k.out(add(x, y)), k.out(mul(x, y)), k.out(reduce("sum", x, (0,))), k.out(reduce("max", y, (1,)))]

    check(build)


def test_numbers_far_from_any_size_stay_as_they_are() -> None:
    def build(k: Program, n: int) -> list[Node]:
        x = k.all(i64, n)
        far = add(mul(mul(x, const(i64, 2**62 + 5)), const(i64, 2**21)), const(i64, 2**63 - 1))
        return [k.out(far), k.out(reduce("max", x, (0,))), k.out(where(lt(x, const(i64, -(2**63))), x, far))]

    check(build)


def test_numbers_of_the_size() -> None:
    def build(k: Program, n: int) -> list[Node]:
        size = const(i64, n)
        places = iota(n)
        return [
            k.out(sub(const(i64, n - 1), places)),
            k.out(cast(mul(places, size), f32)),
            k.out(cast(sub(add(places, size), places), dtypes.int32)),
            k.out(lt(mul(places, const(i64, 2)), size)),
            k.out(floor_div(mul(places, const(i64, 3)), size)),
            k.out(maximum(mod(add(places, const(i64, 5)), size), const(i64, 1))),
        ]

    check(build)


# -- views


def test_views_with_the_size_in_strides_and_offset() -> None:
    def build(k: Program, n: int) -> list[Node]:
        p = k.pointer(f32, 10 * n + 20)
        by_column = window(View(f32, (n, 3), (4, 4 * n), 0), p)
        backwards = window(View(f32, (n, 3), (-4, 4 * (n + 1)), 4 * (n - 1)), p)
        spread = window(View(f32, (n, 3), (8, 8 * n), 4 * n + 4), p)
        return [k.out(add(add(by_column, mul(backwards, spread)), by_column))]

    check(build)


def test_offsets_that_are_computed() -> None:
    def build(k: Program, n: int) -> list[Node]:
        p = k.pointer(f32, 4 * n)
        return [k.out(window(View(f32, (n,), (4,), 0), p, const(i64, 4 * n * 2)))]

    check(build)


def test_transposition() -> None:
    check(lambda k, n: [k.out(permute(k.all(f32, n, 24), (1, 0)))])
    check(lambda k, n: [k.out(permute(k.all(f32, 24, n), (1, 0)))])
    check(lambda k, n: [k.out(permute(k.all(f32, 3, n, 40), (2, 1, 0)))])


# -- reductions


@pytest.mark.parametrize("kind", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2), (0, 2)])
def test_reductions(kind: str, axes: tuple[int, ...]) -> None:
    low, high = (0, 2) if kind == "prod" else (-4, 5)
    check(lambda k, n: [k.out(reduce(kind, k.all(f32, 3, n, 5, low=low, high=high), axes))])


@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize("dtype", [f32, f64, i64, dtypes.int8, dtypes.float16, dtypes.bool])
def test_reductions_of_one_axis(kind: str, dtype: DType) -> None:
    check(lambda k, n: [k.out(reduce(kind, k.all(dtype, n), (0,)))], vector=True)
    check(lambda k, n: [k.out(reduce(kind, k.all(dtype, 9, n), (1,)))])
    check(lambda k, n: [k.out(reduce(kind, k.all(dtype, n, 9), (0,)))])


def test_long_sums_are_as_exact_as_those_of_fixed_size() -> None:
    check(
        lambda k, n: [k.out(reduce("sum", mul(k.all(f32, n), const(f32, 0.1)), (0,)))], rtol=1e-5, sizes=(9999, 300000)
    )


def test_first_place_of_the_maximum() -> None:
    def build(k: Program, n: int) -> list[Node]:
        x = k.all(f32, 3, n)
        top = along(reduce("max", x, (1,)), 1, (3, n))
        places = expand(reshape(iota(n), (1, n)), (3, n))
        return [k.out(reduce("min", where(eq(x, top), places, expand(const(i64, n), (3, n))), (1,)))]

    check(build)


@pytest.mark.parametrize("rows", [1, 7])
def test_softmax_along_the_size(rows: int) -> None:
    def build(k: Program, n: int) -> list[Node]:
        x = k.all(f32, rows, n)
        powers = exp(sub(x, along(reduce("max", x, (1,)), 1, x.shape)))
        return [k.out(div(powers, along(reduce("sum", powers, (1,)), 1, x.shape)))]

    check(build, rtol=3e-6, vector=True)


def test_softmax_of_as_many_rows_as_the_size() -> None:
    def build(k: Program, n: int) -> list[Node]:
        x = k.all(f32, n, 20)
        powers = exp(sub(x, along(reduce("max", x, (1,)), 1, x.shape)))
        return [k.out(div(powers, along(reduce("sum", powers, (1,)), 1, x.shape)))]

    check(build, rtol=3e-6)


def softmax(x: Node) -> Node:
    """The softmax along the last axis."""
    powers = exp(sub(x, along(reduce("max", x, (x.rank - 1,)), x.rank - 1, x.shape)))
    return div(powers, along(reduce("sum", powers, (x.rank - 1,)), x.rank - 1, x.shape))


def test_softmax_of_one_row_stored_many_times() -> None:
    check(lambda k, n: [k.out(expand(softmax(k.all(f32, 1, n)), (3, n)))], rtol=3e-6)
    check(lambda k, n: [k.out(expand(softmax(k.all(f32, 1, 4, n)), (3, 4, n)))], rtol=3e-6)


def test_softmax_in_place_and_of_views() -> None:
    def in_place(k: Program, n: int) -> list[Node]:
        target = k.all(f32, 3, n)
        return [store(target, softmax(target))]

    def backwards(k: Program, n: int) -> list[Node]:
        target = window(View(f32, (3, n), (8 * n, -4), 4 * (n - 1)), k.pointer(f32, 6 * n))
        return [store(target, softmax(k.all(f32, 3, n)))]

    def across(k: Program, n: int) -> list[Node]:
        target = window(View(f32, (3, n), (4, 12), 0), k.pointer(f32, 3 * n))
        return [store(target, softmax(k.all(f32, 3, n))), k.out(softmax(k.all(f64, n)))]

    def several(k: Program, n: int) -> list[Node]:
        value = softmax(k.all(f32, 3, n))
        return [k.out(value), k.out(add(value, value)), k.out(cast(value, dtypes.float16))]

    for build in (in_place, backwards, across, several):
        check(build, rtol=2e-3 if build is several else 3e-6)


# -- products


def product(a: Node, b: Node) -> Node:
    """a @ b."""
    *batch, m, depth = a.shape
    n = b.shape[-1]
    rank = len(batch)
    full = (*batch, m, n, depth)
    left = expand(reshape(a, (*batch, m, 1, depth)), full)
    right = expand(reshape(permute(b, (*range(rank), rank + 1, rank)), (*batch, 1, n, depth)), full)
    return reduce("sum", mul(left, right), (rank + 2,))


PRODUCTS: dict[str, Builder] = {
    "q @ K.T": lambda k, n: [k.out(product(k.all(f32, 1, 24), permute(k.all(f32, n, 24), (1, 0))))],
    "p @ V": lambda k, n: [k.out(product(k.all(f32, 1, n), k.all(f32, n, 24)))],
    "heads q @ K.T": lambda k, n: [
        k.out(product(k.all(f32, 3, 1, 16), permute(k.all(f32, 3, n, 16), (0, 2, 1)))),
    ],
    "heads p @ V": lambda k, n: [k.out(product(k.all(f32, 3, 1, n), k.all(f32, 3, n, 16)))],
    "rows p @ V": lambda k, n: [k.out(product(k.all(f32, 9, n), k.all(f32, n, 40)))],
    "x @ W": lambda k, n: [k.out(product(k.all(f32, n, 12), k.all(f32, 12, 40)))],
    "W @ x": lambda k, n: [k.out(product(k.all(f32, 11, 12), k.all(f32, 12, n)))],
    "f64": lambda k, n: [k.out(product(k.all(f64, 11, n), k.all(f64, n, 6)))],
    "heads x @ W": lambda k, n: [k.out(product(k.all(f32, 3, n, 12), k.all(f32, 3, 12, 70)))],
    "x @ W.T": lambda k, n: [k.out(product(k.all(f32, n, 24), permute(k.all(f32, 40, 24), (1, 0))))],
    "x @ W of more rows": lambda k, n: [k.out(product(k.all(f32, 2 * n + 3, 12), k.all(f32, 12, 5)))],
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
    check(PRODUCTS[name], vector=True)


@pytest.mark.parametrize("rows", ["n", "20"])
def test_products_with_much_to_compute_after_them(rows: str) -> None:
    def build(k: Program, n: int) -> list[Node]:
        m, columns = (n, 70) if rows == "n" else (20, n)
        bias = expand(reshape(k.all(f32, columns), (1, columns)), (m, columns))
        total = add(product(k.all(f32, m, 12), k.all(f32, 12, columns)), bias)
        return [k.out(exp(mul(total, const(f32, 1 / 64))))]

    check(build, rtol=1e-6)


def test_attention_over_part_of_a_cache() -> None:
    def build(k: Program, n: int) -> list[Node]:
        keys = window(View(f32, (3, n, 16), (1000 * 64, 64, 4), 0), k.pointer(f32, 3 * 1000 * 16))
        scores = product(k.all(f32, 3, 1, 16), permute(keys, (0, 2, 1)))
        powers = exp(sub(scores, along(reduce("max", scores, (2,)), 2, scores.shape)))
        return [k.out(div(powers, along(reduce("sum", powers, (2,)), 2, scores.shape)))]

    check(build, rtol=3e-6)


def test_attention_among_as_many_tokens() -> None:
    def build(k: Program, n: int) -> list[Node]:
        tokens = k.all(f32, n, 3 * 16)
        heads = permute(reshape(tokens, (n, 3, 16)), (1, 0, 2))
        scores = product(heads, permute(heads, (0, 2, 1)))
        rows = expand(reshape(iota(n), (1, n, 1)), scores.shape)
        columns = expand(reshape(iota(n), (1, 1, n)), scores.shape)
        masked = where(lt(rows, columns), expand(const(f32, -1e9), scores.shape), mul(scores, const(f32, 1 / 16)))
        return [k.out(masked)]

    def weigh(k: Program, n: int) -> list[Node]:
        scores = k.all(f32, 3, n, n)
        powers = exp(sub(scores, along(reduce("max", scores, (2,)), 2, scores.shape)))
        return [k.out(div(powers, along(reduce("sum", powers, (2,)), 2, scores.shape)))]

    def gather(k: Program, n: int) -> list[Node]:
        summed = permute(product(k.all(f32, 3, n, n), k.all(f32, 3, n, 16)), (1, 0, 2))
        return [k.out(reshape(summed, (n, 48)))]

    sizes = (2, 5, 16, 17, 33, 100)
    check(build, sizes=sizes)
    check(weigh, sizes=sizes, rtol=3e-6)
    check(gather, sizes=sizes)


def test_squares_in_steps_and_places() -> None:
    def build(k: Program, n: int) -> list[Node]:
        x, y = k.all(f32, 3, n, n), k.all(f32, n - 1, 2 * n)
        return [
            k.out(add(flip(x, (0, 2)), permute(x, (0, 2, 1)))),
            k.out(pad(shrink(x, ((1, 3), (n - 2, n), (1, n))), ((0, 1), (0, n), (1, 1)))),
            k.out(reduce("sum", x, (0, 2))),
            k.out(reduce("max", x, (0, 1, 2))),
            k.out(window(View(f32, (n,), (-4 * n - 4,), 4 * (n * n - 1)), k.pointer(f32, n * n))),
            k.out(reshape(flip(y, (0,)), (2 * n - 2, n))),
            k.out(scan("sum", x, 1)),
        ]

    check(build, sizes=(2, 3, 7, 16, 33, 70))


# -- movement


MOVES: dict[str, tuple[Callable[[int], tuple[int, ...]], Callable[[Node, int], Node]]] = {
    "(4, n) -> (4n,)": (lambda n: (4, n), lambda x, n: reshape(x, (4 * n,))),
    "(n, 6) -> (n, 2, 3)": (lambda n: (n, 6), lambda x, n: reshape(x, (n, 2, 3))),
    "(6n,) -> (n, 6)": (lambda n: (6 * n,), lambda x, n: reshape(x, (n, 6))),
    "(6n,) -> (6, n)": (lambda n: (6 * n,), lambda x, n: reshape(x, (6, n))),
    "(2, 3n) -> (6, n)": (lambda n: (2, 3 * n), lambda x, n: reshape(x, (6, n))),
    "(6, n) -> (2, 3n)": (lambda n: (6, n), lambda x, n: reshape(x, (2, 3 * n))),
    "(3, n) -> (n, 3) in order": (lambda n: (3, n), lambda x, n: reshape(x, (n, 3))),
    "(3, n).T -> (3n,)": (lambda n: (3, n), lambda x, n: reshape(permute(x, (1, 0)), (3 * n,))),
    "(3, n).T -> (3, n)": (lambda n: (3, n), lambda x, n: reshape(permute(x, (1, 0)), (3, n))),
    "heads": (lambda n: (n, 12), lambda x, n: reshape(permute(reshape(x, (n, 3, 4)), (1, 0, 2)), (3 * n, 4))),
    "reversed": (lambda n: (3, n), lambda x, n: flip(x, (0, 1))),
    "reversed flat": (lambda n: (3, n), lambda x, n: reshape(flip(reshape(x, (3 * n,)), (0,)), (n, 3))),
    "without the ends": (lambda n: (3, n), lambda x, n: shrink(x, ((0, 3), (1, n - 1)))),
    "the last": (lambda n: (3, n), lambda x, n: shrink(x, ((1, 3), (n - 1, n)))),
    "zeros around": (lambda n: (3, n), lambda x, n: pad(x, ((1, 2), (3, 0)))),
    "one more": (lambda n: (n - 1, 3), lambda x, n: pad(x, ((0, 1), (0, 0)))),
    "far zeros": (lambda n: (n, 3), lambda x, n: pad(x, ((n, n - 1), (0, 0)))),
    "shifted": (lambda n: (3, n), lambda x, n: pad(shrink(x, ((0, 3), (0, n - 1))), ((0, 0), (1, 0)))),
    "shifted flat": (
        lambda n: (3, n),
        lambda x, n: reshape(pad(shrink(reshape(x, (3 * n,)), ((0, 3 * n - 1),)), ((1, 0),)), (3, n)),
    ),
    "unfolded": (
        lambda n: (n,),
        lambda x, n: shrink(
            reshape(shrink(reshape(expand(reshape(x, (1, n)), (4, n)), (4 * n,)), ((0, 4 * n - 4),)), (4, n - 1)),
            ((0, 3), (0, n - 1)),
        ),
    ),
}


@pytest.mark.parametrize("name", MOVES)
def test_movement(name: str) -> None:
    shape, move = MOVES[name]

    def build(k: Program, n: int) -> list[Node]:
        moved = move(k.all(f32, *shape(n)), n)
        return [k.out(moved), k.out(reduce("sum", moved, tuple(range(moved.rank))))]

    check(build, least=3 if name == "without the ends" else 2)


@pytest.mark.parametrize(("length", "least"), [(64, 64), (100, 34)])  # one row, or rows that take a division
def test_the_first_of_a_flattened_array_needs_a_least_size(length: int, least: int) -> None:
    def build(k: Program, n: int) -> list[Node]:
        rows = window(View(f32, (3, n), (8 * n, 4), 0), k.pointer(f32, 6 * n))
        return [k.out(shrink(reshape(rows, (3 * n,)), ((0, length),)))]

    assert check(build, least=least).least == least


def test_views_of_computed_values() -> None:
    def build(k: Program, n: int) -> list[Node]:
        x = add(k.all(f32, 3, n), k.all(f32, 3, n))
        return [
            k.out(window(View(f32, (n, 3), (4, 4 * n), 0), x)),
            k.out(window(View(f32, (n - 1,), (-4,), 4 * (2 * n - 1)), x)),
        ]

    check(build)


def test_concatenation() -> None:
    def build(k: Program, n: int) -> list[Node]:
        x, y, z = k.all(f32, 3, n - 1), k.all(f32, 3, 1), k.all(f32, 3, n)
        parts = [pad(x, ((0, 0), (0, n + 1))), pad(y, ((0, 0), (n - 1, n))), pad(z, ((0, 0), (n, 0)))]
        place = expand(reshape(iota(2 * n), (1, 2 * n)), (3, 2 * n))
        chosen = where(lt(place, const(i64, n - 1)), parts[0], where(lt(place, const(i64, n)), parts[1], parts[2]))
        return [k.out(chosen), k.out(add(add(parts[0], parts[1]), parts[2]))]

    check(build)


# -- in order


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_scans(axis: int, kind: str) -> None:
    check(lambda k, n: [k.out(scan(kind, k.all(f32, 3, n), axis))])
    check(lambda k, n: [k.out(scan(kind, k.all(f32, n, 20), axis))])


def test_takes_at_computed_places() -> None:
    def build(k: Program, n: int) -> list[Node]:
        x, places = k.all(f32, n, 3), k.all(i64, 6, low=-2, high=4)
        inside = mod(mul(iota(n), const(i64, 7)), const(i64, n))
        return [
            k.out(take(x, places)),
            k.out(take(x, inside)),
            k.out(take(k.all(f32, n), sub(const(i64, n - 1), iota(n)))),
            k.out(take(k.all(f32, 6), k.all(i64, n, low=-2, high=8))),
        ]

    check(build)


@pytest.mark.parametrize("combine", ["set", "add", "max"])
@pytest.mark.parametrize("row", [(), (3,), (20,)])
def test_scatters(combine: str, row: tuple[int, ...]) -> None:
    def build(k: Program, n: int) -> list[Node]:
        op = make(StoreAt(combine), k.all(f32, n, *row), k.all(f32, 9, *row), k.all(i64, 9, low=-1, high=12))
        other = make(StoreAt(combine), k.all(f32, 5, n), k.all(f32, 4, n), k.all(i64, 4, low=-1, high=6))
        return [op, other, make(StoreAt(combine), k.all(f32, 9), k.all(f32, n), k.all(i64, n, low=-1, high=10))]

    check(build)


def test_a_loop_of_as_many_turns() -> None:
    def build(k: Program, n: int) -> list[Node]:
        counter = make(Range(1_000_000), const(i64, n - 1))
        p, q = k.pointer(f32, 2 * n), k.pointer(f32, n)
        one = View.contiguous(f32, ())
        here = mul(counter, const(i64, 4))
        step = store(
            window(one, p, add(here, const(i64, 4 * n + 4))),
            add(
                window(one, p, add(here, const(i64, 4 * n))),
                mul(window(one, q, here), cast(sub(const(i64, n), counter), f32)),
            ),
        )
        return [make(FOR, counter, step)]

    check(build)


def test_a_loop_over_rows_as_long_as_the_size() -> None:
    def build(k: Program, n: int) -> list[Node]:
        counter = make(Range(1_000_000), const(i64, 3))
        p = k.pointer(f32, 4 * n)
        row = View.contiguous(f32, (n,))
        here = mul(counter, const(i64, 4 * n))
        above = window(row, p, here)
        return [make(FOR, counter, store(window(row, p, add(here, const(i64, 4 * n))), add(above, flip(above, (0,)))))]

    check(build)


# -- limits


def test_cubes_of_the_size_and_squares_of_it_as_extents_are_refused() -> None:
    with pytest.raises(UnsizedError):
        sized(lambda k, n: [k.out(k.all(f32, 3, n, n, n, n))])
    with pytest.raises(UnsizedError):
        sized(lambda k, n: [k.out(reshape(k.all(f32, n, n), (n * n,)))])


def test_half_elements_are_refused() -> None:
    with pytest.raises(UnsizedError):
        sized(lambda k, n: [k.out(window(View(f32, (3,), (4,), n), k.pointer(f32, 1000)))])


def test_without_vectors() -> None:
    k = Program(NOMINAL)
    ast = sink(k.out(reduce("sum", k.all(f32, NOMINAL, 3), (0,))), k.out(add(k.all(f32, NOMINAL), k.all(f32, NOMINAL))))
    lowered = lower(ast, Target("c", 0), k.count)
    assert not any(n.shape for n in lowered.linear.src)
    assert any(isinstance(n.op, Loop) for n in lowered.linear.src)
    assert c.render(lowered.linear)


# -- random programs

Extent = tuple[int, int]  # (fixed, times): fixed + times * n


def extent_at(e: Extent, n: int) -> int:
    """An extent at a size."""
    return e[0] + e[1] * n


class Chain:
    """A random chain of movement, applied to nodes and to arrays alike."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.steps: list[tuple[Callable[[Node, int], Node], Callable[[np.ndarray, int], np.ndarray]]] = []
        self.text: list[str] = []
        varying = self.rng.choice([(0, 1), (0, 1), (0, 2), (0, 6), (-1, 1), (1, 1), (2, 2), (0, 12)])
        fixed = [(self.rng.choice([1, 2, 3, 4, 6]), 0) for _ in range(self.rng.randrange(0, 3))]
        shape = [varying, *fixed, *([(0, 1)] if len(fixed) < 2 and self.rng.random() < 0.2 else [])]
        self.rng.shuffle(shape)
        self.start = list(shape)
        self.shape: list[Extent] = shape
        for _ in range(self.rng.randrange(1, 7)):
            self.rng.choice(
                [self.permute, self.flip, self.shrink, self.pad, self.split, self.split, self.merge, self.merge,
                 self.exchange, self.exchange, self.expand]
            )()  # fmt: skip

    def step(
        self,
        text: str,
        shape: list[Extent],
        node: Callable[[Node, int], Node],
        values: Callable[[np.ndarray, int], np.ndarray],
    ) -> None:
        """One more op."""
        self.text.append(text)
        self.shape = shape
        self.steps.append((node, values))

    def permute(self) -> None:
        order = list(range(len(self.shape)))
        self.rng.shuffle(order)
        self.step(
            f"permute {order}",
            [self.shape[i] for i in order],
            lambda x, n: permute(x, tuple(order)),
            lambda x, n: x.transpose(order),
        )

    def flip(self) -> None:
        axis = self.rng.randrange(len(self.shape))
        self.step(f"flip {axis}", self.shape, lambda x, n: flip(x, (axis,)), lambda x, n: np.flip(x, axis))

    def shrink(self) -> None:
        axis = self.rng.randrange(len(self.shape))
        a, b = self.shape[axis]
        choices = [((0, 0), (a - 1, b)), ((1, 0), (a, b)), ((0, 0), (1, 0)), ((a - 1, b), (a, b))]
        if b:
            choices += [((0, 0), (5, 0)), ((2, 0), (10, 0)), ((0, 0), (18, 0)), ((a - 7, b), (a, b))] * 2
        if b > 1:
            choices += [((0, 0), (0, 1)), ((1, 1), (a, b)), ((0, 1), (a, b))]
        start, end = self.rng.choice(choices)
        extent = end[0] - start[0], end[1] - start[1]
        if extent_at(extent, 2) < 1:
            return

        def node(x: Node, n: int) -> Node:
            bounds = [(0, e) for e in x.shape]
            bounds[axis] = extent_at(start, n), extent_at(end, n)
            return shrink(x, tuple(bounds))

        def values(x: np.ndarray, n: int) -> np.ndarray:
            return x[(slice(None),) * axis + (slice(extent_at(start, n), extent_at(end, n)),)]

        shape = [*self.shape[:axis], extent, *self.shape[axis + 1 :]]
        self.step(f"shrink {axis} {start} {end}", shape, node, values)

    def pad(self) -> None:
        axis = self.rng.randrange(len(self.shape))
        alone = self.shape[axis][1] or not any(b for _, b in self.shape)
        amounts = [(0, 0), (1, 0), (3, 0), *([(0, 1), (-1, 1), (1, 2)] if alone else [])]
        before, after = self.rng.choice(amounts), self.rng.choice(amounts)
        a, b = self.shape[axis]

        def both(n: int, rank: int) -> tuple[tuple[int, int], ...]:
            pads = [(0, 0)] * rank
            pads[axis] = extent_at(before, n), extent_at(after, n)
            return tuple(pads)

        self.step(
            f"pad {axis} {before} {after}",
            [*self.shape[:axis], (a + before[0] + after[0], b + before[1] + after[1]), *self.shape[axis + 1 :]],
            lambda x, n: pad(x, both(n, x.rank)),
            lambda x, n: np.pad(x, both(n, x.ndim)),
        )

    def reshape(self, text: str, shape: list[Extent]) -> None:
        self.step(
            f"{text} {shape}",
            shape,
            lambda x, n: reshape(x, tuple(extent_at(e, n) for e in shape)),
            lambda x, n: x.reshape(tuple(extent_at(e, n) for e in shape)),
        )

    def split(self) -> None:
        axis = self.rng.randrange(len(self.shape))
        a, b = self.shape[axis]
        parts = [d for d in (2, 3, 4, 6) if a % d == 0 and b % d == 0]
        if parts:
            d = self.rng.choice(parts)
            pair = [(d, 0), (a // d, b // d)]
            self.rng.shuffle(pair)
            self.reshape("split", [*self.shape[:axis], *pair, *self.shape[axis + 1 :]])

    def merge(self) -> None:
        if len(self.shape) < 2:
            return
        axis = self.rng.randrange(len(self.shape) - 1)
        (a, b), (e, f) = self.shape[axis : axis + 2]
        if not (b and f):
            self.reshape("merge", [*self.shape[:axis], (a * e, a * f + b * e), *self.shape[axis + 2 :]])

    def exchange(self) -> None:
        if len(self.shape) >= 2:
            axis = self.rng.randrange(len(self.shape) - 1)
            pair = list(reversed(self.shape[axis : axis + 2]))
            self.reshape("exchange", [*self.shape[:axis], *pair, *self.shape[axis + 2 :]])

    def expand(self) -> None:
        axes = [i for i, e in enumerate(self.shape) if e == (1, 0)]
        if not axes:
            return
        axis = self.rng.choice(axes)
        to = self.rng.choice([(2, 0), (3, 0), *([(0, 1)] if not any(b for _, b in self.shape) else [])])
        shape = [*self.shape[:axis], to, *self.shape[axis + 1 :]]
        self.step(
            f"expand {shape}",
            shape,
            lambda x, n: expand(x, tuple(extent_at(e, n) for e in shape)),
            lambda x, n: np.broadcast_to(x, tuple(extent_at(e, n) for e in shape)),
        )


def run_chain(seed: int) -> None:
    """A random chain, stored, added to itself reversed, and reduced, at many sizes beside NumPy."""
    chain = Chain(seed)
    dtype = chain.rng.choice([f32, i64, dtypes.int32])
    axes = tuple(a for a in range(len(chain.shape)) if chain.rng.random() < 0.5)
    mode = chain.rng.randrange(3)

    def build(k: Program, n: int) -> list[Node]:
        x = k.all(dtype, *(extent_at(e, n) for e in chain.start))
        for step, _ in chain.steps:
            x = step(x, n)
        last = add(x, flip(x, tuple(range(x.rank)))) if mode == 1 else reduce("sum", x, axes) if mode == 2 else x
        return [k.out(last)]

    def want(x: np.ndarray, n: int) -> np.ndarray:
        for _, step in chain.steps:
            x = step(x, n)
        if mode == 1:
            return x + np.flip(x)
        return x.sum(axis=axes, dtype=x.dtype) if mode == 2 and axes else x

    story = f"seed {seed}: {chain.start} " + "; ".join(chain.text) + f"; mode {mode} {axes}"
    lowered = sized(build)
    assert lowered.least <= 64, story
    many = sum(times > 0 for _, times in chain.shape) > 1  # elements: a square of the size
    for n in (2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 31, 32, 33, 47, 64, 65, 100, 255):
        if n < lowered.least or (many and n > 70):
            continue
        k = Program(n)
        build(k, n)
        source = k.memories[0][EDGE:-EDGE].view(dtype.name).reshape([extent_at(e, n) for e in chain.start])
        expected = want(source, n)
        for interpret in (False, True) if n == 3 or (n == 17 and not many) else (False,):
            got = k.copies()
            call(lowered, got, (n,), interpret=interpret)
            values = got[1][EDGE:-EDGE].view(dtype.name)
            np.testing.assert_array_equal(values, expected.reshape(-1), err_msg=f"{story}; n = {n}")
            assert (got[1][:EDGE] == 0x55).all(), story
            assert (got[1][-EDGE:] == 0x55).all(), story
            assert (got[0] == k.memories[0]).all(), story


SMALL = (108, 155, 216, 224, 580, 587, 701, 845)  # a decision would be wrong for the least sizes


@pytest.mark.parametrize("seed", [*range(30), *SMALL])
def test_random_movement(seed: int) -> None:
    run_chain(seed)
