"""Composite ops mean what they are written out as, where they are planned, pulled back or made a loop's body."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor
from intaglio.core.dtypes import dtypes
from intaglio.core.errors import InternalError
from intaglio.ir.node import make, toposort
from intaglio.ir.view import View
from intaglio.ops.bounds import bounds
from intaglio.ops.composite import MATMUL, Composite, broadcasting, write_out
from intaglio.ops.elementwise import ADD, LT, SUB, mul, neg
from intaglio.ops.memory import Param, const, iota, window
from intaglio.ops.movement import reshape

if TYPE_CHECKING:
    from intaglio.ir.node import Node

SHAPES = [
    ((2, 3), (3, 4)),
    ((1, 1), (1, 1)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (7, 3, 4)),
    ((1, 2, 3), (5, 3, 4)),
    ((0, 3), (3, 4)),
    ((2, 0), (0, 4)),
]


def leaf(slot: int, shape: tuple[int, ...], dtype: object = dtypes.float32) -> Node:
    """An input of a shape."""
    assert dtype in dtypes.all
    return window(View.contiguous(dtype, shape), make(Param(slot, dtype, slot)))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.int32])
def test_a_product_written_out_has_its_type_and_no_composite_op(
    left: tuple[int, ...], right: tuple[int, ...], dtype: object
) -> None:
    product = make(MATMUL, leaf(0, left, dtype), leaf(1, right, dtype))
    (value,) = write_out((product,))
    assert (value.shape, value.dtype) == (product.shape, product.dtype)
    assert value.shape == (np.zeros(left) @ np.zeros(right)).shape
    assert not any(isinstance(node.op, Composite) for node in toposort((value,)))


def test_what_has_no_composite_op_stays_as_it_is() -> None:
    values = [neg(leaf(0, (3,))), leaf(1, (2, 2))]
    assert write_out(values) == values


@pytest.mark.parametrize("right", [(4, 3), (3,)])
def test_operands_that_do_not_fit_make_no_node(right: tuple[int, ...]) -> None:
    with pytest.raises(InternalError, match="matmul"):
        make(MATMUL, leaf(0, (2, 3)), leaf(1, right))


@pytest.mark.parametrize(("left", "right"), [shapes for shapes in SHAPES if 0 not in shapes[0]])
def test_gradients_flow_to_both_factors(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    draw = np.random.default_rng(0)
    a, b = draw.standard_normal(left, dtype=np.float32), draw.standard_normal(right, dtype=np.float32)
    x, y = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
    weight = draw.standard_normal((a @ b).shape, dtype=np.float32)
    ((x @ y) * Tensor(weight)).sum().backward()
    full = np.einsum("...mk,...kn->...mkn", np.broadcast_to(a, (*weight.shape[:-2], *left[-2:])),
                     np.broadcast_to(b, (*weight.shape[:-2], *right[-2:])))  # fmt: skip
    assert full.shape[:-3] == weight.shape[:-2]
    for tensor, array, slope in ((x, a, weight @ np.swapaxes(b, -1, -2)), (y, b, np.swapaxes(a, -1, -2) @ weight)):
        extra = slope.ndim - array.ndim
        summed = slope.sum(tuple(range(extra)))
        axes = tuple(k for k, n in enumerate(array.shape) if n == 1 and summed.shape[k] != 1)
        assert tensor.grad is not None
        assert np.allclose(tensor.grad.numpy(), summed.sum(axes, keepdims=True) if axes else summed, atol=1e-4)


def test_a_matrix_by_itself_gets_both_cotangents() -> None:
    a = np.random.default_rng(0).standard_normal((4, 4), dtype=np.float32)
    x = Tensor(a, requires_grad=True)
    (x @ x).sum().backward()
    ones = np.ones((4, 4), np.float32)
    assert x.grad is not None
    assert np.allclose(x.grad.numpy(), ones @ a.T + a.T @ ones, atol=1e-5)


def test_products_of_rows_in_a_loop_are_one_kernel() -> None:
    draw = np.random.default_rng(0)
    a, b = draw.standard_normal((20, 3, 4), dtype=np.float32), draw.standard_normal((20, 4, 5), dtype=np.float32)
    x, y, out = Tensor(a).realize(), Tensor(b).realize(), Tensor.zeros(20, 3, 5).realize()
    GlobalCounters.reset()
    for k in range(20):
        out[k] = x[k] @ y[k]
    assert np.allclose(out.numpy(), a @ b, atol=1e-5)
    assert GlobalCounters.kernel_count == 1


@pytest.mark.parametrize(("left", "right"), [((3,), (2, 3)), ((2, 1), (3,)), ((4, 1, 3), (2, 1)), ((0, 3), (1, 3))])
def test_operands_of_two_shapes_make_one_node(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y = leaf(0, left), leaf(1, right)
    node = make(broadcasting(SUB), x, y)
    assert (node.shape, node.dtype) == (np.broadcast_shapes(left, right), dtypes.float32)
    assert make(broadcasting(LT), x, y).dtype is dtypes.bool
    (value,) = write_out((node,))
    assert (value.op, value.shape) == (SUB, node.shape)
    with pytest.raises(InternalError, match="sub"):
        make(broadcasting(SUB), x, leaf(2, right, dtypes.int32))


def test_what_is_known_of_an_index_is_known_of_operands_of_two_shapes() -> None:
    rows = mul(reshape(iota(3), (3, 1)), const(dtypes.int64, 4))
    assert bounds(make(broadcasting(ADD), rows, iota(4))) == (0, 11)
