"""Powers and logarithms to base 2: within their stated error everywhere, and C's values at the edges."""

from __future__ import annotations

import math

import numpy as np
import pytest

from intaglio import Tensor

SIZES = [0, 0.5, 1, 2, 3, np.inf, 1e-45, 1e-38, 3e38, 16777216, 16777217, 33554431, 1.0000001, 0.99999994, 0.3333]
EDGES = np.array([*SIZES, *[-size for size in SIZES], np.nan], np.float32)


def c_pow(x: float, y: float) -> float:
    """C's pow, with infinities and NaN for Python's errors."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return math.copysign(math.inf, x) if y % 2 == 1 else math.inf
    except ValueError:
        if x == 0:
            return math.copysign(math.inf, x) if y % 2 == 1 else math.inf
        return math.nan


def errors(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Errors in units of the last place of float32."""
    return np.abs(got.astype(np.float64) - exact) / np.spacing(np.abs(exact.astype(np.float32))).astype(np.float64)


def test_powers_at_the_edges_are_those_of_c() -> None:
    x, y = (grid.ravel().copy() for grid in np.meshgrid(EDGES, EDGES))
    with np.errstate(all="ignore"):
        expected = np.array([c_pow(float(a), float(b)) for a, b in zip(x, y, strict=True)]).astype(np.float32)
    got = (Tensor(x) ** Tensor(y)).numpy()
    same = (got == expected) & (np.signbit(got) == np.signbit(expected))
    assert (same | (np.isnan(got) & np.isnan(expected))).all()


@pytest.mark.parametrize("spread", [0.7, 60.0])
def test_powers_are_rounded_nearly_always_right(seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    x = np.exp(rng.uniform(-spread, spread, 100_000)).astype(np.float32)
    y = rng.uniform(-80 / spread, 80 / spread, 100_000).astype(np.float32)
    exact = x.astype(np.float64) ** y.astype(np.float64)
    normal = (exact > 2.0**-126) & (exact < 2.0**127)
    assert errors((Tensor(x) ** Tensor(y)).numpy()[normal], exact[normal]).max() < 0.501


def test_small_powers_are_rounded_to_denormals() -> None:
    y = np.linspace(-155, -120, 2000).astype(np.float32)
    expected = (2.0 ** y.astype(np.float64)).astype(np.float32)
    assert np.array_equal((Tensor(np.full(2000, 2, np.float32)) ** Tensor(y)).numpy(), expected)


def test_logarithms_to_base_2_over_all_positive_numbers() -> None:
    x = np.arange(1, 0x7F800000, 9973, dtype=np.int32).view(np.float32)
    exact = np.log2(x.astype(np.float64))
    assert errors(Tensor(x).log2().numpy(), exact).max() < 0.501
    edges = Tensor(np.array([-1, -0.0, 0, np.inf, -np.inf, np.nan], np.float32)).log2().numpy()
    assert np.array_equal(edges, np.array([np.nan, -np.inf, -np.inf, np.inf, np.nan, np.nan]), equal_nan=True)
