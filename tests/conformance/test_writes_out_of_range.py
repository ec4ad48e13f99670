"""What int8 cannot hold: a number written is an error, as NumPy's, and the elements of an array wrap, as there."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.errors import ValueRangeError

NUMBERS: Final = [300, -129, 2**70, 300.7, 1e30, float("nan"), np.int64(300), np.int16(-200), np.float64(300.7)]
ARRAYS: Final = [np.array(300), np.array(-129), np.array(2**40), np.array([300]), np.array([300, 301, -129])]


def write(target: Any, index: Any, value: Any) -> list[int]:
    """What the target holds after a write."""
    target[index] = value
    return target.tolist()


@pytest.mark.parametrize("index", [0, slice(None), slice(0, 1)], ids=["element", "all", "slice"])
@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_a_number_is_an_error_as_numpys(number: Any, index: Any) -> None:
    with pytest.raises((OverflowError, ValueError)):
        write(np.array([1, 2, 3], np.int8), index, number)
    t = Tensor([1, 2, 3], dtype="int8")
    with pytest.raises(ValueRangeError, match="does not fit int8"):
        write(t, index, number)
    assert t.tolist() == [1, 2, 3]


@pytest.mark.parametrize("index", [[0], np.array([True, False, False])], ids=["list", "mask"])
@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_so_it_is_at_chosen_places_where_numpy_wraps_its_own_numbers(number: Any, index: Any) -> None:
    t = Tensor([1, 2, 3], dtype="int8")
    with pytest.raises(ValueRangeError, match="does not fit int8"):
        write(t, index, number)
    assert t.tolist() == [1, 2, 3]


@pytest.mark.parametrize("index", [0, slice(None), slice(0, 1), [0], np.array([True, False, False])], ids=repr)
@pytest.mark.parametrize("array", ARRAYS, ids=repr)
def test_elements_of_an_array_wrap_as_numpys(array: Any, index: Any) -> None:
    mine = [1, 2, 3][index] if isinstance(index, (int, slice)) else [1]
    if array.size > np.size(mine) or (isinstance(index, int) and array.ndim):
        return  # it does not fit
    assert write(Tensor([1, 2, 3], dtype="int8"), index, array) == write(np.array([1, 2, 3], np.int8), index, array)
