"""Index arithmetic keeps values, and leaves no division where bounds decide it."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

from intaglio.core.dtypes import dtypes
from intaglio.ir.interpret import evaluate
from intaglio.ir.node import Node, make, walk
from intaglio.lower.index import Index, number
from intaglio.ops.elementwise import FloorDiv, Mod, add, floor_div, mod, mul, sub
from intaglio.ops.loop import Range
from intaglio.ops.memory import Arg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Shape = tuple[int, ...]
Indices = tuple[Node, ...]


def counter(extent: int, axis: int = 0) -> Node:
    return make(Range(axis), number(extent))


def counters(shape: Shape) -> Indices:
    return tuple(counter(n, axis) for axis, n in enumerate(shape))


def divisions(node: Node) -> int:
    return sum(isinstance(n.op, (FloorDiv, Mod)) for n in walk((node,)))


def points(ranges: Indices) -> Iterator[dict[Node, int]]:
    for values in itertools.product(*(range(int(r.src[0].op.value)) for r in ranges)):
        yield dict(zip(ranges, values, strict=True))


def agree(before: Node, after: Node, ranges: Indices) -> None:
    low, high = Index().bounds(after)
    for point in points(ranges):
        value = evaluate(before, dict(point))
        assert evaluate(after, dict(point)) == value
        assert low <= value <= high


Pair = tuple[Node, Node]  # an expression as it is written, and by Index
BUILD: list[Callable[[Index, Pair, Pair, int], Pair]] = [
    lambda ix, x, y, d: (add(x[0], y[0]), ix.add(x[1], y[1])),
    lambda ix, x, y, d: (sub(x[0], y[0]), ix.sum([(x[1], 1), (y[1], -1)])),
    lambda ix, x, y, d: (mul(x[0], number(d - 7)), ix.mul(x[1], d - 7)),
    lambda ix, x, y, d: (floor_div(x[0], number(d)), ix.div(x[1], d)),
    lambda ix, x, y, d: (floor_div(y[0], number(d)), ix.div(y[1], d)),
    lambda ix, x, y, d: (mod(x[0], number(d)), ix.mod(x[1], d)),
    lambda ix, x, y, d: (mod(y[0], number(d)), ix.mod(y[1], d)),
    lambda ix, x, y, d: (x[0], ix.add(ix.mul(ix.div(x[1], d), d), ix.mod(x[1], d))),
    lambda ix, x, y, d: (
        mod(x[0], number(6 * d)),
        ix.add(ix.mul(ix.mod(ix.div(x[1], d), 6), d), ix.mod(x[1], d)),
    ),
]


@pytest.mark.parametrize("number_of_seed", range(150))
def test_random_expressions_keep_their_values_and_bounds(number_of_seed: int, seed: int) -> None:
    rng = random.Random(seed + number_of_seed)
    ix = Index()
    ranges = counters(tuple(rng.choices([1, 2, 3, 4, 6, 8], k=3)))
    pool: list[Pair] = [(r, r) for r in (*ranges, number(rng.randint(-9, 9)))]
    for _ in range(14):
        pool.append(rng.choice(BUILD)(ix, rng.choice(pool), rng.choice(pool), rng.choice([1, 2, 3, 4, 6, 8, 12, 24])))
    for before, after in pool[-4:]:
        agree(before, after, ranges)


SHAPES: list[Shape] = [(2, 3, 4), (6, 4), (24,), (2, 12), (3, 8), (4, 6), (2, 2, 6)]


def flatten(index: Indices, shape: Shape) -> Node:
    total = number(0)
    for i, n in zip(index, shape, strict=True):
        total = add(mul(total, number(n)), i)
    return total


@pytest.mark.parametrize(("outer", "inner"), list(itertools.product(SHAPES, SHAPES)))
def test_a_reshape_there_and_back_leaves_no_division(outer: Shape, inner: Shape) -> None:
    ix, index = Index(), counters(outer)
    there = ix.unflatten(ix.flatten(index, outer), inner)
    back = ix.unflatten(ix.flatten(there, inner), outer)
    assert sum(divisions(i) for i in back) == 0
    agree(flatten(index, outer), ix.flatten(back, outer), index)


@pytest.mark.parametrize(
    ("shape", "to"), [((6, 4), (2, 3, 4)), ((4, 6), (4, 2, 3)), ((2, 3, 4), (6, 4)), ((2, 3, 4), (24,))]
)
def test_splitting_or_merging_axes_of_a_flipped_shrunk_view_needs_none(shape: Shape, to: Shape) -> None:
    # x has twice the rows; the view takes every row from the end back. Loops run over the split axes.
    ix = Index()
    finest = to if len(to) > len(shape) else shape
    index = counters(finest)
    first, *rest = ix.unflatten(ix.flatten(index, finest), shape)
    flipped = (ix.sum([(first, -1)], 2 * shape[0] - 1), *rest)
    place = ix.flatten(flipped, (2 * shape[0], *shape[1:]))
    assert divisions(place) == 0
    agree(flatten(flipped, (2 * shape[0], *shape[1:])), place, index)


def test_the_remainder_of_a_flipped_axis_is_decided_by_its_bounds() -> None:
    ix = Index()
    flipped = ix.sum([(counter(8), -1)], 7)
    assert ix.mod(flipped, 8) is flipped
    assert ix.div(flipped, 8) is number(0)


@pytest.mark.parametrize(
    ("made", "want"),
    [
        (lambda ix, x: ix.div(ix.div(x, 3), 4), lambda x: floor_div(x, number(12))),
        (lambda ix, x: ix.mod(ix.mod(x, 12), 4), lambda x: mod(x, number(4))),
        (lambda ix, x: ix.add(ix.mul(ix.div(x, 5), 5), ix.mod(x, 5)), lambda x: x),
        (lambda ix, x: ix.div(ix.mul(x, 6), 3), lambda x: mul(x, number(2))),
        (lambda ix, x: ix.add(ix.mul(ix.mod(ix.div(x, 4), 3), 4), ix.mod(x, 4)), lambda x: mod(x, number(12))),
        (lambda ix, x: ix.add(x, ix.sum([(x, -1)], 3)), lambda x: number(3)),
        (lambda ix, x: ix.mod(x, 1), lambda x: number(0)),
    ],
)
def test_known_forms_of_an_unbounded_index(made: Callable[[Index, Node], Node], want: Callable[[Node], Node]) -> None:
    x = make(Arg(0, dtypes.int64))
    assert made(Index(), x) is want(x)


def test_affine_collects_terms() -> None:
    i, j = counter(4, 0), counter(5, 1)
    place = sub(add(mul(add(i, number(2)), number(5)), j), mul(j, number(3)))
    assert Index().affine(place) == (10, {i: 5, j: -2})
    assert Index().affine(sub(place, place)) == (0, {})


def test_a_long_sum_is_taken_apart_without_recursion() -> None:
    total: Node = counter(4)
    for _ in range(5000):
        total = add(total, add(counter(4), number(1)))
    assert Index().affine(total) == (5000, {counter(4): 5001})
