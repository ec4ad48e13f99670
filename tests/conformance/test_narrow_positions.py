"""Positions of every integer dtype reach every element, and those out of range are found where nothing else is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import IndexRangeError, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
AS_GIVEN: tuple[Callable[[Tensor], Tensor], ...] = (lambda index: index, lambda index: index * 1)  # known, and computed


@pytest.mark.parametrize("make", AS_GIVEN, ids=["known", "computed"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_positions_of_narrow_dtypes_reach_long_axes(dtype: str, make: Callable[[Tensor], Tensor]) -> None:
    n = 100_000
    data = np.arange(n)
    highest = min(n - 1, int(np.iinfo(dtype).max))
    places = np.array([0, 5, highest] if dtype[0] == "u" else [0, -1, highest, -min(n, 1 + highest)], dtype)
    index = make(Tensor(places))
    np.testing.assert_array_equal(Tensor(data)[index].numpy(), data[places])
    np.testing.assert_array_equal(Tensor(data).gather(0, index).numpy(), data[places])
    np.testing.assert_array_equal(Tensor(data).take(index).numpy(), data[places])
    x, y = Tensor(data), data.copy()
    x[index] = -7
    y[places] = -7
    np.testing.assert_array_equal(x.numpy(), y)


@pytest.mark.parametrize("make", AS_GIVEN, ids=["known", "computed"])
@pytest.mark.parametrize("place", [3, 2**63 - 1, 2**63, 2**64 - 3, 2**64 - 1])
def test_no_unsigned_position_wraps_into_range(place: int, make: Callable[[Tensor], Tensor]) -> None:
    x = Tensor.arange(3)
    index = make(Tensor(np.array([place], np.uint64)))
    for read in (lambda: x[index], lambda: x.gather(0, index), lambda: x.take(index)):
        with pytest.raises(IndexRangeError, match="out of range"):
            read().numpy()

    def write() -> None:
        x[index] = 1
        x.realize()

    with pytest.raises(IndexRangeError, match="out of range"):
        write()
    assert x.tolist() == [0, 1, 2]


@pytest.mark.parametrize("make", AS_GIVEN, ids=["known", "computed"])
@pytest.mark.parametrize(
    ("shape", "places"),
    [((0,), ([0],)), ((0, 3), ([0, 1],)), ((2, 0), ([5],)), ((2, 0), ([0], [0])), ((2, 0), ([-3],))],
)
def test_positions_in_empty_tensors_are_checked(
    shape: tuple[int, ...], places: tuple[list[int], ...], make: Callable[[Tensor], Tensor]
) -> None:
    data: Any = np.zeros(shape)
    for act in (lambda: data[places], lambda: data.__setitem__(places, 1)):
        with pytest.raises(IndexError):
            act()
    x = Tensor(data)
    index = tuple(make(Tensor(p)) for p in places)
    for act in (lambda: x[index], lambda: x.__setitem__(index, 1)):
        with pytest.raises(IndexRangeError):
            act()
    assert x[tuple(make(Tensor(np.array([], np.int64))) for _ in places)].numel() == 0
