"""Floored quotients and remainders of floats are NumPy's, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.core.dtypes import dtypes
from intaglio.ops.elementwise import FLOOR_DIV, MOD
from tests.property.test_ops import compute

EDGES = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 3e38, 1e-45, 2.0**28, 3], np.float32)


@pytest.mark.parametrize("spread", [0.5, 3, 9, 40])
def test_quotients_and_remainders_are_those_of_numpy(spread: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 40_000
    signs = rng.choice([-1, 1], (2, n))
    with np.errstate(all="ignore"):
        x, y = (10.0 ** rng.uniform(-spread, spread, (2, n)) * signs).astype(np.float32)
        x[: n // 4] = y[: n // 4] * rng.integers(-50, 50, n // 4).astype(np.float32)
        x[n // 2 :], y[n // 2 :] = np.round(x[n // 2 :]), np.round(y[n // 2 :])
        x[: len(EDGES) ** 2], y[: len(EDGES) ** 2] = np.repeat(EDGES, len(EDGES)), np.tile(EDGES, len(EDGES))
        for op, f in ((MOD, np.remainder), (FLOOR_DIV, np.floor_divide)):
            got, want = compute(op, dtypes.float32, x, y), f(x, y)
            assert np.array_equal(got, want, equal_nan=True)
            numbers = ~np.isnan(want)
            assert np.array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))
