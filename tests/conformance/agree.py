"""How conformance tests compare a tensor with NumPy or torch."""

from __future__ import annotations

from typing import Any

import numpy as np

TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 3e-6, "float64": 1e-12}


def agree(got: Any, want: Any, *, tolerance: float | None = None, dtype: bool = True) -> None:
    """Assert the same shape, dtype and values: exact unless a tolerance is given (relative, and absolute near 0).

    NULL runs nothing: there it shows shape and dtype, and that there is a schedule.
    """
    want = np.asarray(want)
    found = np.asarray(got)
    assert found.shape == want.shape
    if dtype:
        assert found.dtype == want.dtype
    if getattr(got, "device", "") == "NULL":
        return
    if tolerance is None:
        np.testing.assert_array_equal(found, want)
    else:
        np.testing.assert_allclose(found.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance)
