"""The order of a kernel's loops: those first that all its reductions depend on, where memory is then read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from intaglio.core.dtypes import dtypes
from intaglio.ir.view import View
from intaglio.ops.elementwise import add, exp, mul, sub
from intaglio.ops.memory import BufferRef, buffer, window
from intaglio.ops.movement import broadcast, reshape
from intaglio.ops.reduce import reduce
from intaglio.schedule.contexts import loops_of

if TYPE_CHECKING:
    from intaglio.ir.node import Node


def value(*shape: int) -> Node:
    """Floats in memory."""
    view = View.contiguous(dtypes.float32, shape)
    return window(view, buffer(BufferRef(view.nbytes, "CPU")))


def kept(kind: str, x: Node, *axes: int) -> Node:
    """A reduction, repeated along its axes."""
    narrow = reduce(kind, x, axes)
    return broadcast(reshape(narrow, tuple(1 if a in axes else n for a, n in enumerate(x.shape))), x.shape)


def normalized(x: Node, *axes: int) -> Node:
    """x without its mean, times the sum of what that leaves squared."""
    apart = sub(x, kept("sum", x, *axes))
    return mul(apart, kept("sum", mul(apart, apart), *axes))


@pytest.mark.parametrize(
    ("shape", "axes", "loops"),
    [
        ((100, 200), (1,), (0, 1)),
        ((100, 200), (0,), (1, 0)),
        ((20, 30, 40), (1,), (0, 2, 1)),
        ((20, 30, 40), (0,), (1, 2, 0)),
        ((20, 30, 40), (0, 2), (1, 0, 2)),
        ((20, 1, 40), (0,), (2, 0)),
        ((20, 30, 40), (1, 2), (0, 1, 2)),
        ((20, 30, 40), (0, 1, 2), (0, 1, 2)),
        ((5000, 2000), (0,), (0, 1)),  # a few columns are more than a cache holds
        ((2000, 5000), (0,), (1, 0)),
        ((2000, 500), (0,), (0, 1)),  # and too few for threads
        ((20, 2000, 50), (1,), (0, 2, 1)),
        ((100, 8), (0,), (0, 1)),  # of which there is no vector
        ((8, 20, 100, 100), (0, 2, 3), (1, 0, 2, 3)),
        ((8, 5, 300, 300), (0, 2, 3), (0, 1, 2, 3)),
    ],
)
def test_loops_that_reductions_share_come_first(
    shape: tuple[int, ...], axes: tuple[int, ...], loops: tuple[int, ...]
) -> None:
    assert loops_of(normalized(value(*shape), *axes)) == loops


def test_reductions_along_several_axes_leave_the_order() -> None:
    x = value(100, 200)
    assert loops_of(add(normalized(x, 0), normalized(x, 1))) == (0, 1)
    assert loops_of(add(normalized(x, 0), kept("sum", x, 0, 1))) == (1, 0)  # one number has no loop


def test_one_reduction_is_worth_it_for_short_columns() -> None:
    short, long = value(200, 3000), value(300, 3000)
    assert loops_of(sub(short, kept("sum", short, 0))) == (1, 0)
    assert loops_of(sub(long, kept("sum", long, 0))) == (0, 1)


def test_what_is_not_read_again_is_reduced_first() -> None:
    x, y = value(100, 200), value(100, 200)
    assert loops_of(sub(y, kept("sum", exp(x), 0))) == (0, 1)
    assert loops_of(sub(exp(x), kept("sum", exp(x), 0))) == (1, 0)


def test_a_value_in_a_buffer_is_no_reduction() -> None:
    x = value(100, 200)
    total = kept("sum", x, 0)
    assert loops_of(sub(x, total), stored={total.src[0].src[0]}) == (0, 1)
