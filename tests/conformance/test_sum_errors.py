"""Sums, of products too, are no further off than twice what NumPy's are (of neighbours, which it adds in pairs)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.dtypes import DType, dtypes

if TYPE_CHECKING:
    from collections.abc import Callable

EPSILON: Final = 2.0**-24
SHAPES: Final[list[tuple[tuple[int, ...], tuple[int, ...] | None]]] = [
    ((5000,), None),
    ((1 << 21,), None),
    ((1 << 19, 8), None),
    ((1 << 16, 33), None),
    ((1 << 16, 33), (0,)),
    ((1 << 18, 3), (0,)),
    ((3000, 1500), (0,)),
    ((700, 3000), (0,)),
    ((3000, 700), (1,)),
    ((3, 1 << 18), (1,)),
    ((1000, 300, 7), (0, 2)),
    ((7, 60000, 3), (1,)),
    ((40, 5, 60, 70), (1, 3)),
    ((40, 50, 6, 70), (0, 2)),
    ((8, 64, 28, 28), (0, 2, 3)),
    ((97, 31, 29, 5), None),
]


def drawn(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Numbers of one sign, float32."""
    return (np.full(shape, 0.1) if kind == "tenths" else rng.random(shape)).astype(np.float32)


def error(found: np.ndarray, exact: np.ndarray) -> float:
    """The greatest relative error."""
    return float(np.max(np.abs(found.astype(np.float64) - exact) / exact))


def pairwise(a: np.ndarray, axes: tuple[int, ...]) -> float:
    """The error of NumPy's sums along axes, of which it adds in pairs where they lie together."""
    apart = np.moveaxis(a, axes, range(-len(axes), 0))
    rows = np.ascontiguousarray(apart).reshape(*apart.shape[: -len(axes)], -1)
    return error(rows.sum(-1), rows.astype(np.float64).sum(-1))


@pytest.mark.parametrize("kind", ["tenths", "random"])
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_sums_along_any_axes(shape: tuple[int, ...], axes: tuple[int, ...] | None, kind: str) -> None:
    a = drawn(kind, shape, np.random.default_rng(0))
    along = tuple(range(a.ndim)) if axes is None else axes
    exact = a.astype(np.float64).sum(along)
    allowed = 2 * max(pairwise(a, along), 2 * EPSILON)
    turned = tuple(a.ndim - 1 - k for k in along)
    assert error(Tensor(a).sum(along).numpy(), exact) <= allowed
    assert error((Tensor(a) * 2.0 + 0.0).sum(along).numpy(), 2 * exact) <= allowed
    assert error(Tensor(np.ascontiguousarray(a.T)).permute(*range(a.ndim)[::-1]).sum(along).numpy(), exact) <= allowed
    assert error(Tensor(a).permute(*range(a.ndim)[::-1]).sum(turned).numpy(), exact.T) <= allowed


@pytest.mark.parametrize("shape", [(1 << 21,), (1 << 18, 8), (1 << 17, 31)])
@pytest.mark.parametrize(
    ("found", "exact"),
    [
        (lambda x: x.mean(), np.mean),
        (lambda x: (x * x).sum(), lambda a: (a * a).sum()),
        (lambda x: x.mse_loss(x * 0.0), lambda a: (a * a).mean()),
        (lambda x: x.var(), lambda a: a.var(ddof=1)),
        (lambda x: x.std(), lambda a: a.std(ddof=1)),
        (lambda x: x.norm(), lambda a: np.sqrt((a * a).sum())),
    ],
)
def test_what_is_made_of_sums(
    shape: tuple[int, ...], found: Callable[[Tensor], Tensor], exact: Callable[[np.ndarray], float]
) -> None:
    a = drawn("random", shape, np.random.default_rng(1))
    assert found(Tensor(a)).item() == pytest.approx(exact(a.astype(np.float64)), rel=8 * EPSILON)


@pytest.mark.parametrize("shape", [(1 << 18, 8), (1 << 16, 33)])
def test_sums_of_doubles(shape: tuple[int, int]) -> None:
    a = np.full(shape, 0.1)
    for axes in ((0, 1), (0,)):
        exact = Fraction(0.1) * math.prod(shape[k] for k in axes)
        found = np.ravel(Tensor(a).sum(axes).numpy())[0]
        assert abs(Fraction(float(found)) - exact) / exact <= Fraction(2) ** -50


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(1 << 16, 8), (10000, 33)])
def test_narrow_numbers_are_added_in_float32(shape: tuple[int, int], dtype: DType) -> None:
    x = Tensor(np.full(shape, 0.1, np.float32)).cast(dtype)
    wide = x.float().numpy().astype(np.float64)
    half = 2.0 ** -(dtype.mantissa + 1)
    for axes in ((0, 1), (0,), (1,)):
        assert error(x.sum(axes).float().numpy(), wide.sum(axes)) <= 1.01 * half
        assert error(x.mean(axes).float().numpy(), wide.mean(axes)) <= 1.01 * half


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16])
def test_gradients_of_what_is_repeated(dtype: DType) -> None:
    rows, columns = 20_000, 24
    weight = Tensor(np.full((rows, columns), 0.1, np.float32)).cast(dtype)
    bias = Tensor.zeros(columns).cast(dtype).requires_grad_()
    ((Tensor.zeros(rows, columns).cast(dtype) + bias) * weight).sum().backward()
    exact = weight.float().numpy().astype(np.float64).sum(0)
    assert bias.grad is not None
    assert error(bias.grad.float().numpy(), exact) <= 1.01 * 2.0 ** -(dtype.mantissa + 1) + 4 * EPSILON


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
@pytest.mark.parametrize("axis", [0, 1])
def test_scans_of_narrow_numbers_carry_float32(dtype: DType, axis: int) -> None:
    ones = np.ones((5, 5000) if axis else (5000, 40), np.float32)
    found = Tensor(ones).cast(dtype).cumsum(axis)
    assert found.dtype is dtype
    assert np.array_equal(found.float().numpy(), Tensor(ones.cumsum(axis)).cast(dtype).float().numpy())
    factors = np.full_like(ones, 1.0009765625)
    wide = Tensor(factors).cast(dtype)
    exact = np.cumprod(wide.float().numpy().astype(np.float64), axis)
    assert error(wide.cumprod(axis).float().numpy(), exact) <= 1.01 * 2.0 ** -(dtype.mantissa + 1) + 5000 * EPSILON


PRODUCTS: Final = [
    ((64, 512), (512, 96)),  # by tiles
    ((300, 1000), (1000, 200)),
    ((64, 4096), (4096, 96)),
    ((200, 600), (600, 900)),
    ((32, 4096), (4096, 300)),  # by slabs
    ((130, 9000), (9000, 300)),
    ((1, 5000), (5000, 700)),  # by rows
    ((6, 66_000), (66_000, 300)),
    ((66_000,), (66_000, 3)),
    ((5, 3000), (3000,)),
    ((2, 3, 700), (2, 700, 40)),
]


def product_error(found: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """The greatest error of a product of numbers that are not negative."""
    return error(found, a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("left", "right"), PRODUCTS)
def test_products(left: tuple[int, ...], right: tuple[int, ...], turned: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = drawn("random", left, rng), drawn("random", right, rng)
    y = Tensor(np.ascontiguousarray(b.T)).permute(*range(b.ndim)[::-1]) if turned else Tensor(b)
    allowed = 2 * max(product_error(a @ b, a, b), 2 * EPSILON)
    assert product_error((Tensor(a) @ y).numpy(), a, b) <= allowed
    assert product_error((Tensor(a) @ (y * 2.0)).numpy(), a, 2 * b) <= allowed  # of a computed factor


@pytest.mark.parametrize("rows", [1, 5, 32, 96])
def test_errors_of_products_do_not_grow_with_depth(rows: int) -> None:
    rng = np.random.default_rng(0)
    errors: list[float] = []
    for depth in (256, 1 << 11, 1 << 14, 1 << 17):
        a, b = drawn("random", (rows, depth), rng), drawn("random", (depth, 264), rng)
        errors.append(product_error((Tensor(a) @ Tensor(b)).numpy(), a, b))
    assert max(errors) <= 1.5 * errors[0]


def test_products_of_bfloat16_are_added_in_float32() -> None:
    rng = np.random.default_rng(0)
    x, y = (Tensor(drawn("random", shape, rng)).bfloat16() for shape in ((64, 8192), (8192, 64)))
    a, b = (t.float().numpy() for t in (x, y))
    assert product_error((x @ y).float().numpy(), a, b) <= 1.01 * 2.0**-8
    assert product_error(x.float().matmul(y.float()).numpy(), a, b) <= 16 * EPSILON


@pytest.mark.parametrize("rows", [1, 20])
def test_products_of_doubles(rows: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((rows, 9000)), rng.random((9000, 300))
    exact = sum(Fraction(x) * Fraction(y) for x, y in zip(a[0].tolist(), b[:, 0].tolist(), strict=True))
    found = Fraction((Tensor(a) @ Tensor(b)).numpy()[0, 0].item())
    assert abs(found - exact) / exact <= 16 * Fraction(2) ** -53


def test_convolutions() -> None:
    rng = np.random.default_rng(0)
    a, b = drawn("random", (1, 256, 9, 9), rng), drawn("random", (20, 256, 3, 3), rng)
    windows = np.lib.stride_tricks.sliding_window_view(a[0], (3, 3), (1, 2))
    columns = windows.transpose(1, 2, 0, 3, 4).reshape(49, -1)
    rows = b.reshape(20, -1)
    allowed = 2 * max(product_error(columns @ rows.T, columns, rows.T), 2 * EPSILON)
    found = Tensor(a).conv2d(Tensor(b)).numpy().reshape(20, 49).T
    assert product_error(found, columns, rows.T) <= allowed


def test_gradients_of_weights_over_many_rows() -> None:
    rng = np.random.default_rng(0)
    a, ct = drawn("random", (30_000, 24), rng), drawn("random", (30_000, 40), rng)
    weight = Tensor(drawn("random", (24, 40), rng)).requires_grad_()
    ((Tensor(a) @ weight) * Tensor(ct)).sum().backward()
    assert weight.grad is not None
    assert product_error(weight.grad.numpy(), a.T, ct) <= 2 * max(product_error(a.T @ ct, a.T, ct), 2 * EPSILON)
