"""Reductions and scans agree with NumPy: all shapes, axes and dtypes, empty ones too."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from intaglio import Tensor, dtypes
from tests.conformance.agree import agree

SHAPES: list[tuple[int, ...]] = [(7,), (3, 4), (2, 3, 5), (4, 1, 3), (0,), (3, 0), (0, 2), ()]
DTYPES = ["float32", "float64", "int32", "int64", "uint8", "bool", "float16"]
LOOSE = {"float16": 5e-3, "float32": 2e-5, "float64": 1e-10}


def values_of(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers of a dtype."""
    rng = np.random.default_rng(len(shape) + len(dtype))
    if dtype == "bool":
        return np.asarray(rng.random(shape) > 0.5)
    return np.asarray(rng.integers(0, 9, shape) if dtype == "uint8" else rng.standard_normal(shape) * 3).astype(dtype)


def axes_of(shape: tuple[int, ...]) -> list[Any]:
    """Axes to reduce."""
    return [None, *range(-1 if shape else 0, len(shape)), *([(0, 1), (-1, 0)] if len(shape) > 1 else [])]


def floats(values: np.ndarray) -> np.ndarray:
    """Integers as the default float."""
    return values if values.dtype.kind == "f" else values.astype(np.float32)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_products_moments(shape: tuple[int, ...], dtype: str, backend: str) -> None:
    values = values_of(shape, dtype)
    whole = values.dtype.kind != "f"
    t = Tensor(values, device=backend)
    wide = values.astype(np.int64 if whole else np.float64)
    loose = LOOSE.get(dtype)
    for axis in axes_of(shape):
        for keepdims in (False, True):
            how: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
            kind = np.int64 if whole else values.dtype
            agree(t.sum(**how), wide.sum(**how).astype(kind), tolerance=loose)
            agree(t.prod(**how), wide.prod(**how).astype(kind), tolerance=None if whole else 4 * (loose or 0))
            agree(t.any(**how), values.any(**how))
            agree(t.all(**how), values.all(**how))
            kind = floats(values).dtype
            small = loose or 1e-5
            agree(t.mean(**how), wide.mean(**how).astype(kind), tolerance=small)
            agree(t.var(**how), wide.var(**how, ddof=1).astype(kind), tolerance=10 * small)
            agree(t.std(**how, correction=0), wide.std(**how).astype(kind), tolerance=10 * small)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [s for s in SHAPES if 0 not in s])
def test_extremes_and_their_places(shape: tuple[int, ...], dtype: str, backend: str) -> None:
    values = values_of(shape, dtype)
    t = Tensor(values, device=backend)
    for axis in axes_of(shape):
        for keepdims in (False, True):
            how: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
            agree(t.max(**how), values.max(**how))
            agree(t.min(**how), values.min(**how))
            if not isinstance(axis, tuple):
                agree(t.argmax(**how), np.argmax(values, **how))
                agree(t.argmin(**how), np.argmin(values, **how))


def test_extremes_see_nan_and_the_first_of_equals(backend: str) -> None:
    values = np.array([[1, math.nan, 3], [4, 5, 4], [math.inf, -math.inf, math.inf]], np.float32)
    t = Tensor(values, device=backend)
    for axis in (None, 0, 1):
        agree(t.max(axis), values.max(axis))
        agree(t.min(axis), values.min(axis))
        agree(t.argmax(axis), values.argmax(axis))
        agree(t.argmin(axis), values.argmin(axis))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", [s for s in SHAPES if s])
def test_running_reductions(shape: tuple[int, ...], dtype: str, backend: str) -> None:
    values = values_of(shape, dtype)
    whole = values.dtype.kind != "f"
    kind = np.int64 if whole else values.dtype
    t = Tensor(values, device=backend)
    for axis in range(len(shape)):
        agree(t.cumsum(axis), values.astype(kind).cumsum(axis), tolerance=LOOSE.get(dtype))
        agree(t.cumprod(axis), values.astype(kind).cumprod(axis), tolerance=LOOSE.get(dtype))
        if 0 not in shape and dtype != "bool":
            agree(t.cummax(axis), np.maximum.accumulate(values, axis))


def softmax(values: np.ndarray, axis: int) -> np.ndarray:
    """The reference, in float64."""
    wide = values.astype(np.float64)
    e = np.exp(wide - wide.max(axis, keepdims=True, initial=-math.inf))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("shape", [s for s in SHAPES if s])
def test_softmax_and_its_logarithm(shape: tuple[int, ...], dtype: str, backend: str) -> None:
    values = values_of(shape, dtype)
    kind = floats(values).dtype
    t = Tensor(values, device=backend)
    for axis in range(-1, len(shape)):
        want = softmax(values, axis)
        agree(t.softmax(axis), want.astype(kind), tolerance=LOOSE.get(dtype, 1e-5))
        agree(t.log_softmax(axis), np.log(want).astype(kind), tolerance=LOOSE.get(dtype, 1e-5))


@pytest.mark.values
def test_logsumexp_of_infinities_and_nothing(backend: str) -> None:
    def of(*values: float) -> float:
        return Tensor(list(values), dtype=dtypes.float32, device=backend).logsumexp().item()

    assert of(-math.inf, -math.inf) == -math.inf
    assert of(math.inf, 1.0) == math.inf
    assert math.isnan(of(math.nan, 1.0))
    assert of() == -math.inf
    assert of(1000.0, 1000.0) == pytest.approx(1000 + math.log(2))
    assert Tensor([[0.0, 0.0]], device=backend).logsumexp(1, keepdims=True).shape == (1, 1)


@pytest.mark.values
def test_sums_of_narrow_types_are_wide(backend: str) -> None:
    assert Tensor(np.full(1000, 200, np.uint8), device=backend).sum().item() == 200_000
    assert Tensor(np.full(300, True), device=backend).sum().item() == 300
    half = Tensor(np.full(4096, 1.0, np.float16), device=backend).sum()
    assert (half.dtype, half.item()) == (dtypes.float16, 4096.0)
    assert Tensor(np.array([2**63, 5], np.uint64), device=backend).sum().item() == 2**63 + 5


def test_a_long_sum_is_near_the_exact_one() -> None:
    values = np.random.default_rng(0).standard_normal(100_003).astype(np.float32)
    assert Tensor(values).sum().item() == pytest.approx(float(values.astype(np.float64).sum()), abs=2e-3)


def test_norm(backend: str) -> None:
    values = values_of((3, 4), "float32")
    agree(Tensor(values, device=backend).norm(dim=1), np.linalg.norm(values, axis=1), tolerance=1e-6)
