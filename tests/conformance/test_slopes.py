"""Gradients where a function has two slopes, or none, are PyTorch's: at ties, at bounds, and at zeros."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from intaglio import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = Callable[..., Any]
    Case = tuple[Function, Function, tuple[Any, ...]]

torch = pytest.importorskip("torch")
F = torch.nn.functional
nan, inf = math.nan, math.inf
EDGES: Final = [-7.0, -6.0, -3.0, -1.0, -0.0, 0.0, 1.0, 3.0, 6.0, 7.0]
ENDS: Final = [*EDGES, inf, -inf, nan]
FIRST: Final = [-1.0, 0.0, 1.0, 2.0, 3.0, 0.0, -0.0, 1.0]
SECOND: Final = [0.0, 0.0, 0.0, 2.0, 0.0, 1.0, 0.0, 1.0]
THIRD: Final = [1.0, 1.0, 1.0, 2.0, 3.0, -1.0, 1.0, 1.0]
ROWS: Final = [[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [0.0, -0.0, 0.0]]
GAPS: Final = [*ROWS, [nan, 1.0, nan], [1.0, nan, 2.0]]
LINES: Final = [[0.0, 0.0], [3.0, 4.0], [0.0, 1.0], [1.0, -1.0], [-0.0, 0.0]]
IMAGE: Final = [[[[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0], [0.0, 3.0, 4.0, 4.0], [3.0, 3.0, 4.0, 1.0]]]]
SPREADS: Final = [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 2.0, 3.0]]
SCORES: Final = [0.0, 0.0, 1.0, 2.0, -1.0]
CHANCES: Final = [0.0, 0.0, 1.0, 1.0, 0.5]
TARGETS: Final = [0.0, 1.0, 0.0, 1.0, 0.25]
ORDERS: Final = (0, 0.5, 1, 1.5, 2, 3, 4, inf, -inf, -1, -2)


def both(function: Function, *operands: Any) -> Case:
    """A function that is written alike for both libraries."""
    return function, function, operands


def norm(order: float, axis: int | None, lines: Any) -> Case:
    """A norm of vectors."""
    return lambda x: x.norm(order, axis), lambda x: torch.linalg.vector_norm(x, order, dim=axis), (lines,)


CASES: Final[dict[str, Case]] = {
    "relu": both(lambda x: x.relu(), ENDS),
    "leaky_relu": (lambda x: x.leaky_relu(0.1), lambda x: F.leaky_relu(x, 0.1), (ENDS,)),
    "elu": (lambda x: x.elu(1.5), lambda x: F.elu(x, 1.5), (EDGES,)),
    "relu6": (lambda x: x.relu6(), F.relu6, (ENDS,)),
    "hardtanh": (lambda x: x.hardtanh(), F.hardtanh, (ENDS,)),
    "hardtanh with bounds": (lambda x: x.hardtanh(-3.0, 6.0), lambda x: F.hardtanh(x, -3.0, 6.0), (ENDS,)),
    "hardsigmoid": (lambda x: x.hardsigmoid(), F.hardsigmoid, (EDGES,)),
    "hardswish": (lambda x: x.hardswish(), F.hardswish, (EDGES,)),
    "softplus": (lambda x: x.softplus(), F.softplus, (EDGES,)),
    "mish": (lambda x: x.mish(), F.mish, (EDGES,)),
    "logsigmoid": (lambda x: x.logsigmoid(), F.logsigmoid, (EDGES,)),
    "softsign": (lambda x: x.softsign(), F.softsign, (EDGES,)),
    "clamp": both(lambda x: x.clamp(-1, 1), ENDS),
    "clip": both(lambda x: x.clip(-1.0, 1.0), ENDS),
    "clamp to nothing": both(lambda x: x.clamp(1, -1), ENDS),
    "clamp to one number": both(lambda x: x.clamp(1, 1), ENDS),
    "clamp from below": both(lambda x: x.clamp(min=-1), ENDS),
    "clamp from above": both(lambda x: x.clamp(max=1), ENDS),
    "clamp by tensors": both(lambda x, low, high: x.clamp(low, high), FIRST, SECOND, THIRD),
    "clamp from below by a tensor": both(lambda x, low: x.clamp(min=low), [*FIRST, nan, 1.0], [*SECOND, 0.0, nan]),
    "clamp from above by a tensor": both(lambda x, high: x.clamp(max=high), [*FIRST, nan, 1.0], [*SECOND, 0.0, nan]),
    "clamp by a tensor that broadcasts": both(lambda x, low: x.clamp(min=low), ROWS, [1.0, 2.0, 3.0]),
    "abs": both(lambda x: x.abs(), EDGES),
    "sign": both(lambda x: x.sign(), ENDS),
    "maximum": both(lambda x, y: x.maximum(y), [*FIRST, nan, 5.0], [*SECOND, 0.0, nan]),
    "minimum": both(lambda x, y: x.minimum(y), [*FIRST, nan, 5.0], [*SECOND, 0.0, nan]),
    "max of all": both(lambda x: x.max(), ROWS),
    "min of all": both(lambda x: x.min(), ROWS),
    "max": (lambda x: x.max(1), lambda x: x.max(1).values, (GAPS,)),
    "max down": (lambda x: x.max(0), lambda x: x.max(0).values, (ROWS,)),
    "max with its axis kept": (lambda x: x.max(-1, True), lambda x: x.max(-1, True).values, (GAPS,)),
    "min": (lambda x: x.min(-1), lambda x: x.min(-1).values, (GAPS,)),
    "min of an axis of NumPy's": (lambda x: x.min(np.int64(1)), lambda x: x.min(1).values, (ROWS,)),
    "amax": both(lambda x: x.amax(1), ROWS),
    "amax of both axes": both(lambda x: x.amax((0, 1)), ROWS),
    "amin": both(lambda x: x.amin(1), ROWS),
    "cummax": (lambda x: x.cummax(1), lambda x: x.cummax(1).values, (ROWS,)),
    "max_pool2d": (lambda x: x.max_pool2d(2), lambda x: F.max_pool2d(x, 2), (IMAGE,)),
    "max_pool2d that overlaps": (lambda x: x.max_pool2d(2, 1), lambda x: F.max_pool2d(x, 2, 1), (IMAGE,)),
    "max_pool2d in a margin": (
        lambda x: x.max_pool2d(3, 2, padding=1), lambda x: F.max_pool2d(x, 3, 2, padding=1), (IMAGE,)
    ),
    "normalize": (lambda x: x.normalize(-1), lambda x: F.normalize(x, dim=-1), (LINES,)),
    "std": both(lambda x: x.std(1), SPREADS),
    "std of all": both(lambda x: x.std(), SPREADS[:1]),
    "std without a correction": both(lambda x: x.std(1, correction=0), SPREADS),
    "var": both(lambda x: x.var(1), SPREADS),
    "sqrt": both(lambda x: x.sqrt(), [0.0, 1.0]),
    "root": both(lambda x: x**0.5, [0.0, 1.0, 2.0]),
    "square": both(lambda x: x**2, EDGES),
    "inverse": both(lambda x: x**-1, [0.0, -0.0, 1.0]),
    "power": both(lambda x, y: x**y, [0.0, 0.0, 0.0, 0.0, -1.0, -1.0, 2.0], [0.0, 1.0, 2.0, -1.0, 0.0, 2.0, 0.5]),
    "power of 0": both(lambda y: 0.0**y, [0.0, 1.0, 2.0, -1.0]),
    "atan2": both(lambda y, x: y.atan2(x), [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]),
    "logaddexp": both(lambda x, y: x.logaddexp(y), [0.0, 1.0, -2.0], [0.0, 2.0, -2.0]),
    "l1_loss": (
        lambda x, t: x.l1_loss(t, reduction="none"), lambda x, t: F.l1_loss(x, t, reduction="none"), (SCORES, TARGETS)
    ),
    "binary_cross_entropy": (
        lambda x: x.binary_cross_entropy(Tensor(TARGETS), reduction="none"),
        lambda x: F.binary_cross_entropy(x, torch.tensor(TARGETS), reduction="none"),
        (CHANCES,),
    ),
    "binary_cross_entropy_with_logits": (
        lambda x, t: x.binary_cross_entropy_with_logits(t, reduction="none"),
        lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="none"),
        (SCORES, TARGETS),
    ),
    **{f"norm {order}": norm(order, 1, LINES) for order in ORDERS},
    **{f"norm {order} of zeros": norm(order, None, [0.0, 0.0, 0.0]) for order in ORDERS},
}  # fmt: skip
# what has another second slope there: one of two sides, where PyTorch's is 0, or 0, where it is that of both
FIRST_ONLY: Final = {"elu", "hardsigmoid", "binary_cross_entropy", "power", "power of 0", "atan2", "logaddexp"}


def ours(array: Any) -> Tensor:
    """An array as a leaf here."""
    return Tensor(array, requires_grad=True)


def theirs(array: Any) -> Any:
    """An array as PyTorch's leaf."""
    return torch.tensor(array, requires_grad=True)


def weighed(out: Any, library: Function) -> Any:
    """A sum in which each element has a weight of its own."""
    return (out * library(np.arange(1, math.prod(out.shape) + 1, dtype=np.float32).reshape(out.shape))).sum()


def array_of(gradient: Any, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A gradient as an array; none is as good as zeros."""
    return np.zeros_like(like) if gradient is None else np.array(gradient.tolist(), np.float32)


@pytest.mark.parametrize("name", CASES)
def test_the_slope_at_an_edge_is_pytorchs(name: str) -> None:
    mine, other, given = CASES[name]
    operands = [np.asarray(x, np.float32) for x in given]
    leaves, tensors = [ours(x) for x in operands], [theirs(x) for x in operands]
    weighed(mine(*leaves), Tensor).backward()
    weighed(other(*tensors), torch.tensor).backward()
    for x, leaf, tensor in zip(operands, leaves, tensors, strict=True):
        np.testing.assert_allclose(array_of(leaf.grad, x), array_of(tensor.grad, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in CASES if name not in FIRST_ONLY])
def test_the_second_slope_at_an_edge_is_pytorchs_where_it_has_one(name: str) -> None:
    mine, other, given = CASES[name]
    operands = [np.nan_to_num(np.asarray(x, np.float32), nan=0.5, posinf=9, neginf=-9) for x in given]
    leaves, tensors = [ours(x) for x in operands], [theirs(x) for x in operands]
    first = weighed(mine(*leaves), Tensor).gradient(*leaves, create_graph=True)
    sums = weighed(other(*tensors), torch.tensor)
    expected = torch.autograd.grad(sums, tensors, create_graph=True, allow_unused=True)
    for x, leaf, tensor, g, e in zip(operands, leaves, tensors, first, expected, strict=True):
        (second,) = weighed(g * (leaf * 0 + 2), Tensor).gradient(leaf)
        want = np.zeros_like(x)
        if e is not None:
            again = weighed(e * (tensor * 0 + 2), torch.tensor)
            want = array_of(*torch.autograd.grad(again, tensor, retain_graph=True), x)
        known = ~np.isnan(want)
        np.testing.assert_allclose(array_of(second, x)[known], want[known], rtol=1e-3, atol=1e-5)
