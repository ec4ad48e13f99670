"""Layers are one node each where programs are built, and mean their formulas wherever they are written out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 -- its usual name

from intaglio import GlobalCounters, Tensor
from intaglio.ir.node import living, toposort
from intaglio.ops.composite import Composite, write_out

if TYPE_CHECKING:
    from collections.abc import Callable

DRAW = np.random.default_rng(0)
X, W, B = (DRAW.standard_normal(shape, dtype=np.float32) for shape in ((2, 3, 5, 8), (8,), (8,)))
K, V, MASK = (DRAW.standard_normal(shape, dtype=np.float32) for shape in ((2, 3, 6, 8), (2, 3, 6, 4), (5, 6)))
SCALE, SHIFT, CENTER = (DRAW.standard_normal(3, dtype=np.float32) for _ in range(3))
SPREAD = DRAW.random(3, dtype=np.float32)

LAYERS = [
    (lambda x: x.sigmoid(), torch.sigmoid, (X,)),
    (lambda x: x.gelu(), F.gelu, (X,)),
    (lambda x: x.gelu("tanh"), lambda x: F.gelu(x, approximate="tanh"), (X,)),
    (lambda x: x.layer_norm(8), lambda x: F.layer_norm(x, (8,)), (X,)),
    (lambda x, w: x.layer_norm(8, w), lambda x, w: F.layer_norm(x, (8,), w), (X, W)),
    (lambda x, w, b: x.layer_norm(8, w, b), lambda x, w, b: F.layer_norm(x, (8,), w, b), (X, W, B)),
    (lambda x: x.layer_norm((5, 8)), lambda x: F.layer_norm(x, (5, 8)), (X,)),
    (lambda x, w: x.rms_norm(w), lambda x, w: F.rms_norm(x, (8,), w, 1e-6), (X, W)),
    (lambda x: x.softmax(), lambda x: x.softmax(-1), (X,)),
    (lambda x: x.softmax(1), lambda x: x.softmax(1), (X,)),
    (lambda x: x.log_softmax(0), lambda x: x.log_softmax(0), (X,)),
    (lambda x, k, v: x.scaled_dot_product_attention(k, v), F.scaled_dot_product_attention, (X, K, V)),
    (lambda x, k, v: x.scaled_dot_product_attention(k, v, is_causal=True),
     lambda x, k, v: F.scaled_dot_product_attention(x, k, v, is_causal=True), (X, X[..., ::-1].copy(), X)),
    (lambda x, k, v, m: x.scaled_dot_product_attention(k, v, m), F.scaled_dot_product_attention, (X, K, V, MASK)),
    (lambda x, k, v, m: x.scaled_dot_product_attention(k, v, m > -1.0),
     lambda x, k, v, m: F.scaled_dot_product_attention(x, k, v, m > -1.0), (X, K, V, MASK)),
    (lambda x, m, v, w, b: x.batch_norm(w, b, m, v), F.batch_norm, (X, CENTER, SPREAD, SCALE, SHIFT)),
    (lambda x, w: x + w, torch.add, (X, W)),
    (lambda x, w: w / x, lambda x, w: w / x, (X, W)),
]  # fmt: skip


@pytest.mark.parametrize(("own", "other", "arrays"), LAYERS)
def test_a_layer_is_one_node_of_the_values_of_its_formula(
    own: Callable[..., Tensor], other: Callable[..., torch.Tensor], arrays: tuple[np.ndarray, ...]
) -> None:
    tensors = [Tensor(array).realize() for array in arrays]
    held = [tensor._value() for tensor in tensors]
    own(*tensors)
    before = living()
    made = own(*tensors)
    node = made._value()
    fresh = [n for n in toposort([node]) if n.src and n not in held]
    assert isinstance(node.op, Composite)
    assert len(fresh) - sum(n.op.name == "lt" for n in fresh) == 1  # a mask of bool is computed
    (value,) = write_out([node])
    assert (value.shape, value.dtype) == (node.shape, node.dtype)
    assert not any(isinstance(n.op, Composite) for n in toposort([value]))
    del value, fresh
    assert living() >= before
    expected = other(*map(torch.from_numpy, arrays))
    assert np.allclose(made.numpy(), expected.numpy(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("own", "other", "arrays"), [layer for layer in LAYERS if len(layer[2]) < 4])
def test_gradients_flow_through_the_formula(
    own: Callable[..., Tensor], other: Callable[..., torch.Tensor], arrays: tuple[np.ndarray, ...]
) -> None:
    tensors = [Tensor(array, requires_grad=True) for array in arrays]
    others = [torch.from_numpy(array.copy()).requires_grad_() for array in arrays]
    made, expected = own(*tensors), other(*others)
    weight = DRAW.standard_normal(made.shape, dtype=np.float32)
    (made * Tensor(weight)).sum().backward()
    (expected * torch.from_numpy(weight)).sum().backward()
    for tensor, wanted in zip(tensors, others, strict=True):
        assert tensor.grad is not None
        assert wanted.grad is not None
        assert np.allclose(tensor.grad.numpy(), wanted.grad.numpy(), rtol=1e-4, atol=3e-5)


def test_another_eps_is_an_argument() -> None:
    x = Tensor(X).realize()
    first = x.layer_norm(8, eps=1e-5).numpy()
    GlobalCounters.reset()
    assert not np.array_equal(x.layer_norm(8, eps=1e-1).numpy(), first)
    assert (GlobalCounters.plan_count, GlobalCounters.compile_count) == (0, 0)


def test_halves_are_added_in_single_precision_and_integers_are_floats() -> None:
    half = Tensor(X).cast("float16")
    for made in (half.layer_norm(8), half.softmax(), half.gelu(), half.scaled_dot_product_attention(half, half)):
        assert made.dtype.name == "float16"
    error = half.layer_norm(8).cast("float32").numpy() - F.layer_norm(torch.from_numpy(X), (8,)).numpy()
    assert np.abs(error).max() < 5e-3
    whole = Tensor([[1, 2, 4]])
    for made in (whole.layer_norm(3), whole.softmax(), whole.gelu(), whole.sigmoid(), whole.rms_norm()):
        assert made.dtype.name == "float32"


def test_operands_of_two_dtypes_meet() -> None:
    x, w = Tensor(X), Tensor(W.astype(np.float64))
    assert x.layer_norm(8, w).dtype.name == "float64"
    assert np.allclose(x.layer_norm(8, w).numpy(), F.layer_norm(torch.from_numpy(X), (8,)).numpy() * W, atol=1e-5)
    assert np.allclose(x.layer_norm(8, None, w).numpy(), F.layer_norm(torch.from_numpy(X), (8,)).numpy() + W, atol=1e-5)


def test_rows_of_layers_in_a_loop_are_one_loop() -> None:
    x, t = Tensor(X[0, 0]).realize(), Tensor.zeros(5, 8).realize()
    GlobalCounters.reset()
    for i in range(5):
        t[i] = x[i].softmax()
    t.realize()
    assert GlobalCounters.kernel_count == 1
    assert np.allclose(t.numpy(), torch.from_numpy(X[0, 0]).softmax(-1).numpy(), atol=1e-6)
