"""Products and folds that are seen with others around them, often, or from two places: computed once, by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

RNG = np.random.default_rng(0)
X = RNG.integers(-2, 3, (2, 8, 20, 20)).astype(np.float32)
W = RNG.integers(-1, 2, (8, 8, 3, 3)).astype(np.float32)
A, B = (RNG.integers(-2, 3, shape).astype(np.float32) for shape in ((48, 40), (40, 64)))
OF_IMAGE = 2 * X.size * 8 * 9  # operations of a convolution
OF_MATRIX = 2 * 48 * 40 * 64


def convolved(x: Any) -> Any:
    """A convolution whose result is as large as the image."""
    return x.conv2d(Tensor(W), padding=1)


def exact(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same in NumPy."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("nchwij,ocij->nohw", seen, W)


def pooled(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The largest of three by three, one apart, in NumPy."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3)).max((-2, -1))


@pytest.mark.parametrize(
    ("program", "same", "kernels", "products"),
    [
        (lambda x: convolved(convolved(x)), lambda x: exact(exact(x)), 2, 2),
        (lambda x: convolved(convolved(x).relu()), lambda x: exact(np.maximum(exact(x), 0)), 2, 2),
        (lambda x: convolved(x).max_pool2d(3, stride=1, padding=1), lambda x: pooled(exact(x)), 2, 1),
        (lambda x: convolved(x).max_pool2d(2), lambda x: exact(x).reshape(2, 8, 10, 2, 10, 2).max((3, 5)), 2, 1),
        (lambda x: convolved(x).relu().mean((2, 3)), lambda x: np.maximum(exact(x), 0).mean((2, 3)), 2, 1),
        (lambda x: convolved(x).repeat_interleave(2, 2), lambda x: exact(x).repeat(2, 2), 2, 1),
        (lambda x: convolved(x).pad((1, 2)), lambda x: np.pad(exact(x), ((0, 0), (0, 0), (0, 0), (1, 2))), 2, 1),
    ],
    ids=["convolved", "relu", "pooled", "in twos", "mean", "repeated", "padded"],
)
def test_a_convolution_that_others_show_is_computed_once(
    program: Callable[[Any], Any], same: Callable[[Any], Any], kernels: int, products: int
) -> None:
    x = Tensor(X).realize()
    GlobalCounters.reset()
    found = program(x).realize()
    assert GlobalCounters.kernel_count == kernels
    assert GlobalCounters.global_ops < 1.2 * products * OF_IMAGE
    np.testing.assert_allclose(found.numpy(), same(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("program", "kernels"),
    [
        (lambda p, _: p[1:] - p[:-1], 2),
        (lambda p, _: p * p[::-1], 2),
        (lambda p, _: p.cumsum(0), 2),
        (lambda p, _: (p * 2)[2:] + (p * 2)[:-2], 2),
        (lambda p, _: p.sum(0), 2),
        (lambda p, _: p.max(1), 2),
        (lambda p, _: (p * 2).sum(), 2),
        (lambda p, _: p[:, :32] * p[:, 32:], 1),  # no number is seen twice
        (lambda p, _: p * p + p, 1),
    ],
    ids=["differences", "reversed", "running sums", "of what ends it", "columns", "rows", "all", "halves", "one place"],
)
def test_a_product_that_is_folded_or_seen_from_two_places_is_computed_once(
    program: Callable[[Any, Any], Any], kernels: int
) -> None:
    a, b = Tensor(A).realize(), Tensor(B).realize()
    GlobalCounters.reset()
    found = program(a @ b, Tensor).realize()
    assert GlobalCounters.kernel_count == kernels
    assert GlobalCounters.global_ops < 1.2 * OF_MATRIX
    np.testing.assert_array_equal(found.numpy(), program(A @ B, np))


def test_rows_that_are_folded_and_padded_are_folded_once() -> None:
    array = RNG.standard_normal((8, 32, 20, 20)).astype(np.float32)
    x = Tensor(array).realize()
    GlobalCounters.reset()
    found = x.softmax(1).pad((1, 1, 1, 1)).realize()
    assert GlobalCounters.kernel_count == 2
    assert GlobalCounters.global_ops < 40 * array.size
    raised = np.exp(array - array.max(1, keepdims=True))
    want = np.pad(raised / raised.sum(1, keepdims=True), ((0, 0), (0, 0), (1, 1), (1, 1)))
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-5)
