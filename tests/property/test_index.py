"""Index simplification keeps values, and leaves no division where bounds decide it."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

from intaglio.core.dtypes import dtypes
from intaglio.ir.interpret import evaluate
from intaglio.ir.node import Node, make, walk
from intaglio.ops.elementwise import (
    FloorDiv,
    Mod,
    add,
    and_,
    eq,
    floor_div,
    le,
    lt,
    maximum,
    minimum,
    mod,
    mul,
    ne,
    neg,
    not_,
    or_,
    sub,
    where,
)  # fmt: skip
from intaglio.ops.loop import Range
from intaglio.ops.memory import Arg, const
from intaglio.rules.index import affine, bounds, simplify_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def number(value: int) -> Node:
    return const(dtypes.int64, value)


def counter(extent: int, axis: int = 0) -> Node:
    return make(Range(axis), number(extent))


def divisions(node: Node) -> int:
    return sum(isinstance(n.op, (FloorDiv, Mod)) for n in walk((node,)))


def points(ranges: list[tuple[Node, int]]) -> Iterator[dict[Node, int]]:
    for values in itertools.product(*(range(extent) for _, extent in ranges)):
        yield dict(zip((r for r, _ in ranges), values, strict=True))


def agree(before: Node, after: Node, ranges: list[tuple[Node, int]]) -> None:
    low, high = bounds(before)
    for point in points(ranges):
        value = evaluate(before, dict(point))
        assert evaluate(after, dict(point)) == value
        assert low <= value <= high


BUILD: list[Callable[[Node, Node, Node], Node]] = [
    lambda x, y, d: add(x, y),
    lambda x, y, d: sub(x, y),
    lambda x, y, d: neg(x),
    lambda x, y, d: mul(x, sub(d, number(7))),
    lambda x, y, d: floor_div(x, d),
    lambda x, y, d: floor_div(y, d),
    lambda x, y, d: mod(x, d),
    lambda x, y, d: mod(y, d),
    lambda x, y, d: maximum(x, y),
    lambda x, y, d: minimum(x, y),
    lambda x, y, d: add(mul(floor_div(x, d), d), mod(x, d)),
]


@pytest.mark.parametrize("number_of_seed", range(150))
def test_random_expressions_keep_their_values_and_bounds(number_of_seed: int, seed: int) -> None:
    rng = random.Random(seed + number_of_seed)
    ranges = [(counter(extent, axis), extent) for axis, extent in enumerate(rng.choices([1, 2, 3, 4, 6, 8], k=3))]
    pool = [r for r, _ in ranges] + [number(rng.randint(-9, 9))]
    gates = [lt(pool[0], pool[1])]
    for _ in range(14):
        x, y = rng.choice(pool), rng.choice(pool)
        d = number(rng.choice([1, 2, 3, 4, 6, 8, 12, 24]))
        made = where(rng.choice(gates), x, y) if rng.random() < 0.1 else rng.choice(BUILD)(x, y, d)
        pool.append(made)
        g, h = rng.choice(gates), rng.choice(gates)
        gates.append(rng.choice([lt(x, y), le(made, y), eq(x, made), ne(x, y), and_(g, h), or_(g, h), not_(g)]))
    for root in (*pool[-3:], gates[-1], gates[-2]):
        agree(root, simplify_index(root), ranges)


SHAPES = [(2, 3, 4), (6, 4), (24,), (2, 12), (3, 8), (4, 6), (2, 2, 6)]


def flatten(index: list[Node], shape: tuple[int, ...]) -> Node:
    total = number(0)
    for i, n in zip(index, shape, strict=True):
        total = add(mul(total, number(n)), i)
    return total


def unflatten(place: Node, shape: tuple[int, ...]) -> list[Node]:
    found: list[Node] = []
    step = 1
    for n in reversed(shape):
        found.append(mod(floor_div(place, number(step)), number(n)))
        step *= n
    return found[::-1]


@pytest.mark.parametrize(("outer", "inner"), list(itertools.product(SHAPES, SHAPES)))
def test_a_reshape_there_and_back_leaves_no_division(outer: tuple[int, ...], inner: tuple[int, ...]) -> None:
    index = [counter(n, axis) for axis, n in enumerate(outer)]
    place = flatten(unflatten(flatten(unflatten(flatten(index, outer), inner), inner), outer), outer)
    after = simplify_index(place)
    assert divisions(after) == 0
    agree(place, after, list(zip(index, outer, strict=True)))


@pytest.mark.parametrize(
    ("shape", "to"), [((6, 4), (2, 3, 4)), ((4, 6), (4, 2, 3)), ((2, 3, 4), (6, 4)), ((2, 3, 4), (24,))]
)
def test_splitting_or_merging_axes_of_a_flipped_shrunk_permuted_view_needs_none(
    shape: tuple[int, ...], to: tuple[int, ...]
) -> None:
    # x has twice the rows; the view takes every row from the end back. Loops run over the split axes.
    finest = to if len(to) > len(shape) else shape
    index = [counter(n, axis) for axis, n in enumerate(finest)]
    old = unflatten(flatten(index, finest), shape)
    flipped = [sub(number(2 * shape[0] - 1), old[0]), *old[1:]]
    strides = [1]
    for n in (2 * shape[0], *shape[1:])[:0:-1]:
        strides.insert(0, strides[0] * n)
    place = number(0)
    for i, s in zip(flipped, strides, strict=True):
        place = add(place, mul(i, number(s)))
    after = simplify_index(place)
    assert divisions(after) == 0
    agree(place, after, list(zip(index, finest, strict=True)))


def test_the_remainder_of_a_flipped_axis_is_decided_by_its_bounds() -> None:
    i = counter(8)
    assert simplify_index(mod(sub(number(7), i), number(8))) is simplify_index(sub(number(7), i))
    assert simplify_index(floor_div(sub(number(7), i), number(8))) is number(0)


@pytest.mark.parametrize(
    ("make_it", "want"),
    [
        (lambda x: floor_div(floor_div(x, number(3)), number(4)), lambda x: floor_div(x, number(12))),
        (lambda x: mod(mod(x, number(12)), number(4)), lambda x: mod(x, number(4))),
        (lambda x: add(mul(floor_div(x, number(5)), number(5)), mod(x, number(5))), lambda x: x),
        (lambda x: floor_div(mul(x, number(6)), number(3)), lambda x: mul(x, number(2))),
        (lambda x: floor_div(mul(x, number(4)), number(6)), lambda x: floor_div(mul(x, number(2)), number(3))),
        (lambda x: mod(mul(x, number(4)), number(6)), lambda x: mul(mod(mul(x, number(2)), number(3)), number(2))),
        (
            lambda x: add(mul(mod(floor_div(x, number(4)), number(3)), number(4)), mod(x, number(4))),
            lambda x: mod(x, number(12)),
        ),
        (lambda x: add(x, sub(number(3), x)), lambda x: number(3)),
        (lambda x: mod(x, number(1)), lambda x: number(0)),
    ],
)
def test_known_forms_of_an_unbounded_index(make_it, want) -> None:
    x = make(Arg(0, dtypes.int64))
    assert simplify_index(make_it(x)) is simplify_index(want(x))
    assert simplify_index(want(x)) is want(x)


def test_bounds_that_are_given_are_used() -> None:
    x = make(Arg(0, dtypes.int64))
    assert bounds(x)[0] < -(1 << 60)
    assert bounds(add(x, number(1)), {x: (0, 9)}) == (1, 10)
    assert simplify_index(floor_div(x, number(10)), {x: (0, 9)}) is number(0)
    assert simplify_index(lt(x, number(10)), {x: (0, 9)}) is const(dtypes.bool, True)
    assert divisions(simplify_index(floor_div(x, number(10)))) == 1


def test_affine_collects_terms() -> None:
    i, j = counter(4, 0), counter(5, 1)
    place = sub(add(mul(add(i, number(2)), number(5)), j), mul(j, number(3)))
    assert affine(place) == (10, {i: 5, j: -2})
    assert affine(sub(place, place)) == (0, {})


def test_a_long_sum_is_simplified_without_recursion() -> None:
    i = counter(4)
    total: Node = i
    for _ in range(5000):
        total = add(mod(total, number(7)), i)
    assert bounds(total) == (0, 9)
    assert simplify_index(total).dtype is dtypes.int64
