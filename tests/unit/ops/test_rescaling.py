"""Exponentials below the top of their row are found where some columns at a time may be summed, and only there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import make
from intaglio.ir.view import View
from intaglio.ops.elementwise import add, div, exp, mul, sub
from intaglio.ops.memory import Param, window
from intaglio.ops.movement import expand, flip, permute, reshape, shrink
from intaglio.ops.reduce import reduce
from intaglio.ops.rescaling import exponentials

if TYPE_CHECKING:
    from intaglio.ir.node import Node

ROWS, COLUMNS, WIDTH = 5, 7, 3
SCORES, WEIGHTS, OTHER = (
    window(View.contiguous(dtypes.float32, (ROWS, COLUMNS)), make(Param(k, dtypes.float32, k))) for k in range(3)
)
VALUES = window(View.contiguous(dtypes.float32, (COLUMNS, WIDTH)), make(Param(3, dtypes.float32, 3)))


def spread(row: Node, columns: int = COLUMNS) -> Node:
    """A number for each row, along columns."""
    return expand(reshape(row, (ROWS, 1)), (ROWS, columns))


def below(x: Node, top: Node) -> Node:
    """The exponentials of x below what is the top of its rows."""
    return exp(sub(x, spread(reduce("max", top, (1,)))))


def averaged(weights: Node) -> Node:
    """The sum of values by weights."""
    wide = (ROWS, WIDTH, COLUMNS)
    left = expand(reshape(weights, (ROWS, 1, COLUMNS)), wide)
    right = expand(reshape(permute(VALUES, (1, 0)), (1, WIDTH, COLUMNS)), wide)
    return reduce("sum", mul(left, right), (2,))


def total(weights: Node) -> Node:
    """The sum of weights."""
    return spread(reduce("sum", weights, (1,)), WIDTH)


SCALED = mul(SCORES, expand(reshape(window(View.contiguous(dtypes.float32, (1,)), OTHER.src[0]), (1, 1)), SCORES.shape))


@pytest.mark.parametrize("exponent", [SCORES, SCALED, add(SCALED, OTHER)])
def test_softmax_by_values_is_found(exponent: Node) -> None:
    last = div(averaged(WEIGHTS), total(WEIGHTS))
    found = exponentials([SCORES, WEIGHTS], [OTHER, below(exponent, exponent), last], 1)
    assert found is not None
    assert found.exponent is exponent
    assert {n.shape for n in found.sums} == {(ROWS, WIDTH), (ROWS,)}


def test_exponentials_divided_by_their_sum_are_divided_in_the_end() -> None:
    powers = below(SCALED, SCALED)
    weights = div(powers, spread(reduce("sum", powers, (1,))))
    found = exponentials([SCORES, WEIGHTS], [OTHER, weights, averaged(WEIGHTS)], 1)
    assert found is not None
    total = reduce("sum", WEIGHTS, (1,))
    assert found.sums == (averaged(WEIGHTS), total)
    assert found.last is div(averaged(WEIGHTS), spread(total, WIDTH))


LAST = div(averaged(WEIGHTS), total(WEIGHTS))
REFUSED = {
    "another row's top": (below(SCALED, SCORES), LAST),
    "no top": (exp(SCORES), LAST),
    "the sum as the top": (exp(sub(SCORES, spread(reduce("sum", SCORES, (1,))))), LAST),
    "columns reversed": (below(flip(SCORES, (1,)), flip(SCORES, (1,))), LAST),
    "weights reversed": (below(SCORES, SCORES), div(averaged(flip(WEIGHTS, (1,))), total(WEIGHTS))),
    "some weights": (below(SCORES, SCORES), total(shrink(WEIGHTS, ((0, ROWS), (0, 3))))),
    "weights themselves": (below(SCORES, SCORES), mul(LAST, shrink(WEIGHTS, ((0, ROWS), (0, WIDTH))))),
    "weights squared": (below(SCORES, SCORES), spread(reduce("sum", mul(WEIGHTS, WEIGHTS), (1,)), WIDTH)),
    "scores again": (below(SCORES, SCORES), spread(reduce("sum", mul(WEIGHTS, SCORES), (1,)), WIDTH)),
    "divided by another sum": (div(below(SCORES, SCORES), spread(reduce("sum", SCORES, (1,)))), averaged(WEIGHTS)),
    "the largest weight": (below(SCORES, SCORES), spread(reduce("max", WEIGHTS, (1,)), WIDTH)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_linear_or_moved_is_refused(name: str) -> None:
    weights, last = REFUSED[name]
    assert exponentials([SCORES, WEIGHTS], [OTHER, weights, last], 1) is None


def test_other_shapes_are_refused() -> None:
    assert exponentials([WEIGHTS], [below(SCORES, SCORES), LAST], 1) is None
    assert exponentials([SCORES, WEIGHTS], [VALUES, below(SCORES, SCORES), LAST], 1) is None
