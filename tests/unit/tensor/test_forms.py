"""How an operation is made is looked up by dtypes and shapes: its node is the one that its op would infer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.dtypes import dtypes
from intaglio.core.errors import DTypeError, ShapeError
from intaglio.ir.node import make, toposort
from intaglio.ops.composite import Broadcast
from intaglio.ops.elementwise import ADD, Cast
from intaglio.ops.layers import Attention, LayerNorm, Softmax
from intaglio.ops.reduce import Reduce
from intaglio.tensor import elementwise

SHAPES = [(), (3,), (2, 3), (2, 1), (1, 3), (0, 3)]
BINARY = ["add", "mul", "sub", "div", "floor_divide", "maximum", "lt", "eq", "bitwise_and", "lshift", "atan2", "pow"]
UNARY = ["neg", "abs", "exp", "sqrt", "floor", "bitwise_not"]
DTYPES = ["bool", "int8", "uint8", "int64", "bfloat16", "float32", "float64"]


def agrees(made: Tensor) -> None:
    """Check that each node of a value is what its op infers, and the one that is found."""
    for node in toposort((made._value(),)):
        assert node.op.infer(*node.src) == (node.dtype, node.shape)
        if node.src:
            assert make(node.op, *node.src) is node


@pytest.mark.parametrize("name", BINARY)
def test_binary_ops_of_all_dtypes_and_shapes(name: str) -> None:
    method = getattr(Tensor, name)
    for (left, right), (own, other) in zip(
        itertools.product(DTYPES, repeat=2), itertools.cycle(itertools.product(SHAPES, repeat=2)), strict=False
    ):
        x, y = Tensor(np.ones(own)).cast(left), Tensor(np.ones(other)).cast(right)
        for operand in (y, 1, 1.5, True):
            try:
                made = method(x, operand)
            except (DTypeError, ShapeError, ValueError):
                continue
            agrees(made)


@pytest.mark.parametrize("name", UNARY)
def test_unary_ops_of_all_dtypes(name: str) -> None:
    for dtype, shape in itertools.product(DTYPES, SHAPES):
        try:
            made = getattr(Tensor(np.ones(shape)).cast(dtype), name)()
        except DTypeError:
            continue
        agrees(made)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64"])
def test_products_norms_and_attention(dtype: str) -> None:
    x, batch = Tensor(np.ones((3, 4))).cast(dtype), Tensor(np.ones((2, 1, 3, 4))).cast(dtype)
    weight = Tensor(np.ones(4)).cast(dtype)
    agrees(x @ x.T)
    agrees(batch @ x.T)
    for scales in ((), (weight,), (weight, weight), (weight, weight[:1]), (None, weight)):
        agrees(batch.layer_norm(4, *scales))
    agrees(x.rms_norm(weight))
    agrees(x.gelu("tanh"))
    for mask in (None, Tensor(np.ones((3, 3), np.bool_)), Tensor(np.ones((2, 1, 1, 3)))):
        agrees(x.scaled_dot_product_attention(batch, batch, mask, is_causal=True))


def test_an_error_is_raised_each_time() -> None:
    x, y = Tensor.zeros(2, 3), Tensor.zeros(4)
    for _ in range(2):
        with pytest.raises(ShapeError, match="must broadcast"):
            x + y
        with pytest.raises(ShapeError, match="a value for each key"):
            x.scaled_dot_product_attention(x, Tensor.zeros(5, 3))


def test_ops_of_few_fields_are_one_object_each() -> None:
    assert Cast(dtypes.int8) is Cast(to=dtypes.int8)
    assert Reduce("sum", (0,)) is Reduce(kind="sum", axes=(0,))
    assert Broadcast(ADD) is Broadcast(ADD)
    assert Softmax(1) is not Softmax(0)
    assert LayerNorm(1) != Softmax(1)
    assert Attention(True).causal
    assert not Attention(False).causal


def test_rows_read_elements_by_what_they_are_rows_of() -> None:
    t = Tensor.zeros(4, 3, 2).realize()
    first, again = t[0], t[1]
    assert first._elements()[0] is t._elements()[0]
    assert again._elements()[0] is first[0]._elements()[0]
    for i in range(4):
        for j in range(3):
            t[i][j, 1] = i + t[i][j][0] + 0.5
    assert t.tolist() == [[[0.0, i + 0.5]] * 3 for i in range(4)]


def test_a_detached_handle_asks_each_time_whether_gradients_flow() -> None:
    t = Tensor([1.0, 2.0])
    apart = t.detach()
    for _ in range(3):
        apart * 2
    t.requires_grad_()
    assert not (apart * 2).requires_grad
    out = (apart * t).sum()
    out.backward()
    assert t.grad is not None
    assert t.grad.tolist() == [1.0, 2.0]


def test_equal_forms_are_looked_up() -> None:
    x, y = Tensor.zeros(7, 5).realize(), Tensor.zeros(5).realize()
    x + y
    before = elementwise._form.cache_info()
    x + y
    after = elementwise._form.cache_info()
    assert (after.hits - before.hits, after.misses - before.misses) == (1, 0)
