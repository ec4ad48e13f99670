"""Errors of sums, means, variances, products and running sums, in root mean square, are no larger than NumPy's.

The truth is what NumPy finds in a wider dtype. The errors of one size vary with the numbers drawn, so those of each are
divided by NumPy's, and the sizes are taken together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from intaglio import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Shape = tuple[int, ...]
WIDER: Final = {"float32": np.float64, "float64": np.longdouble}
KINDS: Final[dict[str, Callable[[np.random.Generator, Shape], np.ndarray]]] = {
    "positive": lambda rng, shape: rng.random(shape),
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "offset": lambda rng, shape: 1000 + rng.random(shape),
}
WHOLE: Final = [(1000,), (1023,), (1 << 12,), (10_007,), (1 << 16,), (100_003,), (7, 11, 13), (99, 1001)]
ROWS: Final = [(64, 513), (40, 1000), (20, 3001), (4, 1 << 15)]
COLUMNS: Final = [(1000, 40), (3001, 20), (1 << 15, 4)]
LARGE: Final = [1_000_003, 1 << 21, 10_000_000]
PRODUCTS: Final = [
    ((64, 300), (300, 96)),
    ((64, 512), (512, 96)),
    ((300, 1000), (1000, 200)),
    ((64, 4096), (4096, 96)),
    ((1, 5000), (5000, 700)),
    ((5, 3000), (3000, 1)),
    ((2, 3, 700), (2, 700, 40)),
    ((1, 10_000), (10_000, 1)),
]
DRAWN: Final = 1 << 20  # elements drawn for each size, in as many arrays as that takes
MOST: Final = 200  # arrays

OPERATIONS: Final[dict[str, Callable[[Any, int | None], Any]]] = {
    "sum": lambda x, axis: x.sum(axis),
    "mean": lambda x, axis: x.mean(axis),
    "var": lambda x, axis: x.var(axis, correction=0) if isinstance(x, Tensor) else x.var(axis),
}


def squares(found: np.ndarray, exact: np.ndarray) -> float:
    """The mean of squared errors."""
    return float(np.mean(np.square(found.astype(exact.dtype) - exact)))


def ratio(f: Callable[[Any], Any], arrays: Iterable[np.ndarray]) -> float:
    """The mean of the squared errors of an operation on some arrays, by that of NumPy's."""
    ours, numpys = 0.0, 0.0
    for a in arrays:
        exact = np.asarray(f(a.astype(WIDER[a.dtype.name])))
        ours += squares(f(Tensor(a)).numpy(), exact)
        numpys += squares(np.asarray(f(a)), exact)
    return ours / numpys


def drawn(kind: str, dtype: str, shape: Shape) -> Iterator[np.ndarray]:
    """Some arrays of a shape."""
    for seed in range(min(MOST, DRAWN // int(np.prod(shape)))):
        yield KINDS[kind](np.random.default_rng(seed), shape).astype(dtype)


@pytest.mark.parametrize(("axis", "shapes"), [(None, WHOLE), (1, ROWS), (0, COLUMNS)], ids=["all", "rows", "columns"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", WIDER)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_summed(operation: str, dtype: str, kind: str, axis: int | None, shapes: list[Shape]) -> None:
    ratios = [ratio(lambda x: OPERATIONS[operation](x, axis), drawn(kind, dtype, shape)) for shape in shapes]
    assert np.mean(ratios) <= 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", WIDER)
def test_large_sums(dtype: str, kind: str) -> None:
    half = float(np.finfo(dtype).eps) / 2
    for n in LARGE:
        a = KINDS[kind](np.random.default_rng(n), (n,)).astype(dtype)
        exact = a.astype(WIDER[dtype]).sum()
        size = 8 * float(np.sqrt(np.square(a, dtype=np.float64).sum())) if kind == "normal" else float(exact)
        assert abs(Tensor(a).sum().numpy().astype(exact.dtype) - exact) <= 1.1 * half * size


@pytest.mark.parametrize("length", range(3, 40))
def test_sums_of_short_rows(length: int) -> None:
    a = (1 + np.random.default_rng(0).random((3000, length))).astype(np.float32)
    assert ratio(lambda x: x.sum(1), [a]) <= 1.05**2  # their last additions round as often as NumPy's


@pytest.mark.parametrize("kind", ["positive", "normal"])
def test_products(kind: str) -> None:
    ratios: list[float] = []
    for left, right in PRODUCTS:
        rng = np.random.default_rng(0)
        a, b = (KINDS[kind](rng, shape).astype(np.float32) for shape in (left, right))
        exact = a.astype(np.float64) @ b.astype(np.float64)
        ratios.append(squares((Tensor(a) @ Tensor(b)).numpy(), exact) / squares(a @ b, exact))
    assert np.mean(ratios) <= 1
    assert max(ratios) <= 1.4**2  # NumPy's blocks are of other depths


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", WIDER)
def test_running_sums_have_numpys_bits(dtype: str, axis: int) -> None:
    for shape in ((3001, 7), (7, 3001)):
        a = np.random.default_rng(0).standard_normal(shape).astype(dtype)
        assert np.array_equal(Tensor(a).cumsum(axis).numpy(), a.cumsum(axis))


@pytest.mark.parametrize("length", [9, 1000])
@pytest.mark.parametrize("dtype", WIDER)
def test_what_is_infinite_stays_so(dtype: str, length: int) -> None:
    a = np.ones(length, dtype)
    a[3] = np.inf
    assert Tensor(a).sum().item() == np.inf
    assert Tensor(np.full(length, np.finfo(dtype).max)).sum().item() == np.inf
    a[5] = -np.inf
    assert np.isnan(Tensor(a).sum().item())
