"""What is written to the gradient at ties, bounds and zeros, in whole arrays and in loops, and what that costs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor
from intaglio.ir.node import Op, toposort
from intaglio.ops.elementwise import Sloped

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = Callable[..., Tensor]

nan, inf = math.nan, math.inf
# what a function is of: where it is asked for its slope, what that is, and the ops that have it
KNOWN: Final[dict[str, tuple[Function, list[Any], list[Any], set[str]]]] = {
    "relu": (lambda x: x.relu(), [-1.0, -0.0, 0.0, 1.0, nan], [0.0, 0.0, 0.0, 1.0, 1.0], {"above"}),
    "relu6": (lambda x: x.relu6(), [-1.0, 0.0, 1.0, 6.0, 7.0], [0.0, 0.0, 1.0, 0.0, 0.0], {"above", "below"}),
    "hardtanh": (lambda x: x.hardtanh(), [-1.0, 0.0, 1.0], [0.0, 1.0, 0.0], {"above", "below"}),
    "clamp": (
        lambda x: x.clamp(-1, 1),
        [-2.0, -1.0, 0.0, 1.0, 2.0],
        [0.0, 1.0, 1.0, 1.0, 0.0],
        {"at_least", "at_most"},
    ),
    "clip": (lambda x: x.clip(min=0), [-1.0, 0.0, 1.0], [0.0, 1.0, 1.0], {"at_least"}),
    "elu": (lambda x: x.elu(2.0), [0.0, -0.0, 1.0], [2.0, 2.0, 1.0], {"at_most"}),
    "softplus": (lambda x: x.softplus(), [0.0, -0.0], [0.5, 0.5], {"at_least", "right_abs"}),
    "abs": (lambda x: x.abs(), [-2.0, -0.0, 0.0, 2.0], [-1.0, 0.0, 0.0, 1.0], set()),
    "sign": (lambda x: x.sign(), [-2.0, -0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0], {"flat"}),
    "maximum": (lambda x: x.maximum(Tensor([0.0, 0.0, 2.0])), [-1.0, 0.0, 3.0], [0.0, 0.5, 1.0], set()),
    "minimum": (lambda x: x.minimum(Tensor([0.0, 0.0, 2.0])), [-1.0, 0.0, 3.0], [1.0, 0.5, 0.0], set()),
    "max": (lambda x: x.max(0), [1.0, 2.0, 2.0, 0.0], [0.0, 1.0, 0.0, 0.0], {"chosen"}),
    "min": (lambda x: x.min(0), [1.0, 2.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0], {"chosen"}),
    "max of NaN": (lambda x: x.max(0), [1.0, nan, nan], [0.0, 1.0, 0.0], {"chosen"}),
    "max of all": (lambda x: x.max(), [1.0, 2.0, 2.0, 0.0], [0.0, 0.5, 0.5, 0.0], set()),
    "amax": (lambda x: x.amax(0), [1.0, 2.0, 2.0, 0.0], [0.0, 0.5, 0.5, 0.0], set()),
    "max_pool2d": (lambda x: x.max_pool2d(2), [[[[1.0, 1.0], [1.0, 1.0]]]], [[[[1.0, 0.0], [0.0, 0.0]]]], {"chosen"}),
    "norm": (lambda x: x.norm(), [0.0, 0.0], [0.0, 0.0], {"length"}),
    "norm of an order of 3": (lambda x: x.norm(3), [0.0, 0.0], [0.0, 0.0], {"length_power"}),
    "norm of an order of 1/2": (lambda x: x.norm(0.5), [0.0, 1.0], [0.0, 1.0], {"length_power"}),
    "normalize": (lambda x: x.normalize(eps=0.5), [0.0, 0.0], [2.0, 2.0], {"length", "at_least"}),
    "std": (lambda x: x.std(), [3.0, 3.0], [0.0, 0.0], {"length"}),
    "binary_cross_entropy": (
        lambda x: x.binary_cross_entropy(Tensor([0.0, 1.0, 1.0]), reduction="sum"),
        [0.0, 1.0, 0.5],
        [0.0, 0.0, -2.0],
        {"log_chance"},
    ),
    "powers": (lambda y: Tensor([0.0, 0.0, 2.0]) ** y, [0.0, -1.0, 0.0], [0.0, -inf, math.log(2)], set()),
    "atan2": (lambda x: x.atan2(Tensor([0.0, 2.0])), [0.0, 0.0], [0.0, 0.5], set()),
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_slope_at_an_edge_is_known(name: str) -> None:
    function, at, slope, _ = KNOWN[name]
    x = Tensor(at, requires_grad=True)
    function(x).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.array(slope), rtol=1e-6)


@pytest.mark.parametrize("name", KNOWN)
def test_what_has_a_slope_of_its_own_has_it_from_an_op_that_is_named_here(name: str) -> None:
    function, at, _, named = KNOWN[name]
    assert {n.op.name for n in toposort((function(Tensor(at))._value(),)) if isinstance(n.op, Sloped)} == named


def test_every_op_with_a_slope_of_its_own_is_named_here() -> None:
    ops = {name for name, op in Op.registry.items() if issubclass(op, Sloped)}
    assert ops == set().union(*(named for _, _, _, named in KNOWN.values()))


@pytest.mark.parametrize("name", KNOWN)
def test_a_loop_of_elements_or_rows_has_the_same_slope(name: str) -> None:
    function, at, slope, _ = KNOWN[name]
    x = Tensor([at] * 5, requires_grad=True)
    out = Tensor.zeros(5, *function(x[0]).shape)
    for k in range(5):
        out[k] = function(x[k])
    out.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.array([slope] * 5), rtol=1e-6)


@pytest.mark.parametrize(
    "name", ["relu", "relu6", "hardtanh", "clamp", "clip", "elu", "softplus", "abs", "norm", "max"]
)
def test_a_recurrence_has_the_same_slope(name: str) -> None:
    function, at, slope, _ = KNOWN[name]
    x = Tensor([at] * 5, requires_grad=True)
    out = Tensor.zeros(6, *function(x[0]).shape)
    for k in range(5):
        out[k + 1] = out[k] + function(x[k])
    out[5].sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.array([slope] * 5), rtol=1e-6)


def test_scalars_in_a_loop_have_the_same_slope() -> None:
    x = Tensor([-1.0, 0.0, 1.0, 6.0], requires_grad=True)
    out = Tensor.zeros(3, 4)
    for k in range(4):
        out[0, k] = x[k].relu()
        out[1, k] = x[k].clamp(0, 6) * 10
        out[2, k] = x[k].relu6() * 100
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 10.0, 111.0, 11.0]


def test_bounds_that_are_tensors_have_what_is_left() -> None:
    x, low = Tensor([-1.0, 0.0, 1.0], requires_grad=True), Tensor([0.0], requires_grad=True)
    x.clamp(min=low).sum().backward()
    assert x.grad is not None
    assert low.grad is not None
    assert (x.grad.tolist(), low.grad.tolist()) == ([0.0, 1.0, 1.0], [1.0])


@pytest.mark.parametrize(
    ("function", "at", "second"),
    [
        (lambda x: x.softplus(), 0.0, 0.25),
        (lambda x: x.binary_cross_entropy_with_logits(Tensor([0.5])), 0.0, 0.25),
        (lambda x: x.abs(), 0.0, 0.0),
        (lambda x: x.relu() * x, 0.0, 0.0),
        (lambda x: x.clamp(0, 1) * x, 1.0, 2.0),
        (lambda x: x.norm(), 0.0, 0.0),
        (lambda x: x.norm(3), 0.0, 0.0),
        (lambda x: x.max(0) * x[0], 3.0, 2.0),
    ],
)
def test_slopes_of_slopes_at_an_edge_are_known(function: Function, at: float, second: float) -> None:
    x = Tensor([at], requires_grad=True)
    (first,) = function(x).sum().gradient(x, create_graph=True)
    (found,) = (first * (x * 0 + 1)).sum().gradient(x)
    assert found.tolist() == [second]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_relu_keeps_nan_and_the_sign_of_zero_as_a_maximum_does(dtype: str) -> None:
    x = Tensor([nan, -0.0, 0.0, -inf, inf, -1.0]).cast(dtype)
    got, want = x.relu().cast("float64").numpy(), x.maximum(0).cast("float64").numpy()
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("name", ["relu", "relu6", "clamp", "softplus", "max", "norm", "std", "amax"])
def test_a_value_and_its_gradient_are_one_kernel_each(name: str) -> None:
    function = KNOWN[name][0]
    x = Tensor(np.random.default_rng(0).standard_normal((512, 64), np.float32), requires_grad=True).realize()
    GlobalCounters.reset()
    out = function(x).realize()
    assert GlobalCounters.kernel_count == 1
    out.sum().backward()
    assert x.grad is not None
    x.grad.realize()
    assert GlobalCounters.kernel_count == 2
