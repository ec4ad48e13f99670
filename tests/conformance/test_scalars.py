"""Elements and scalars in every operator, read and written back, equal NumPy's: both operands, in both orders."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from intaglio import Tensor

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
BITS = [operator.and_, operator.or_, operator.xor]


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float32", "float64"])
@pytest.mark.parametrize("op", [*ARITHMETIC, *COMPARISONS, *BITS])
def test_operators_of_scalars_are_those_of_numpy(op: Any, dtype: str) -> None:
    if op in BITS and dtype.startswith("float"):
        return
    array = np.array([1, 2, 3, 5, 7], dtype)
    tensor, one, two = Tensor(array), array.dtype.type(1), array.dtype.type(2)
    for i, j in ((0, 1), (1, 0), (2, 2), (4, 3)):
        a, b, x, y = array[i], array[j], tensor[i], tensor[j]
        for got, want in (
            (op(x, y), op(a, b)),
            (op(x, 2), op(a, two)),
            (op(2, y), op(two, b)),
            (op(x + 1, y * 1), op(a + one, b)),
            (op(Tensor(a), y + 0), op(a, b)),
        ):
            written = Tensor.zeros(1, dtype=got.dtype)
            written[0] = got
            assert got.dtype.name == np.asarray(want).dtype.name or op in (operator.truediv, operator.pow)
            for value in (got.item(), written[0].item()):
                assert value == pytest.approx(float(want), rel=1e-6)
