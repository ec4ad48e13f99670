"""Nodes: equal ones are one object, however they are made."""

from __future__ import annotations

import pytest

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import InternalError
from intaglio.ir.node import living, make, make_known
from intaglio.ops.composite import MATMUL
from intaglio.ops.elementwise import ADD
from intaglio.ops.memory import BufferRef, const
from intaglio.ops.movement import expand


def test_a_node_whose_result_is_known_is_the_one_that_make_gives() -> None:
    x, y = (expand(const(dtypes.float32, n), shape) for n, shape in ((1.0, (2, 3)), (2.0, (3, 4))))
    first = make(MATMUL, x, y)
    assert make_known(MATMUL, (x, y), *MATMUL.infer(x, y)) is first
    assert (first.dtype, first.shape, first.src) == (dtypes.float32, (2, 4), (x, y))
    del first
    before = living()
    again = make_known(MATMUL, (x, y), *MATMUL.infer(x, y))
    assert (living() - before, make(MATMUL, x, y) is again) == (1, True)


def test_inputs_that_do_not_fit_are_an_error() -> None:
    x, y = expand(const(dtypes.float32, 1.0), (2, 3)), expand(const(dtypes.int32, 1), (2, 3))
    with pytest.raises(InternalError, match="matmul: float32"):
        make(MATMUL, x, x)
    with pytest.raises(InternalError, match="add: operands are float32 and int32"):
        make(ADD, x, y)


def test_a_buffer_is_printed_under_one_number() -> None:
    refs = [BufferRef(8, "CPU") for _ in range(3)]
    shown = [repr(ref) for ref in refs]
    assert shown == [repr(ref) for ref in refs]
    assert len({*shown}) == 3
    del refs[0]
    assert repr(BufferRef(8, "CPU")) not in shown
