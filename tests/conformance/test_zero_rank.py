"""Tensors without axes meet others as PyTorch's do, and NumPy's numbers as Python's."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import pytest
import torch

from intaglio import Tensor, ValueRangeError, dtypes

NAMES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def pair(name: str, shape: tuple[int, ...]) -> tuple[Tensor, Any]:
    """A tensor of ones, and PyTorch's."""
    return Tensor.ones(shape, dtype=getattr(dtypes, name)), torch.ones(shape, dtype=getattr(torch, name))


@pytest.mark.parametrize("shapes", [((), (1,)), ((1,), ()), ((), ()), ((2,), (2,)), ((), (0,))], ids=str)
@pytest.mark.parametrize("first", NAMES)
def test_two_tensors_meet_in_the_dtype_of_pytorch(first: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    for second in NAMES:
        (a, x), (b, y) = pair(first, shapes[0]), pair(second, shapes[1])
        want = str(torch.result_type(x, y)).removeprefix("torch.")
        for op in (operator.mul, operator.add, Tensor.maximum, Tensor.minimum):
            assert op(a, b).dtype.name == want, (second, op)
        assert Tensor([True]).where(a, b).dtype.name == want, second
        assert (a == b).dtype is (a < b).dtype is dtypes.bool
        if first != "bool":
            assert (a - b).dtype.name == want, second


@pytest.mark.parametrize("names", list(itertools.product(("int8", "bool", "int64"), repeat=2)), ids=str)
def test_powers_of_integers_have_the_dtype_of_pytorch(names: tuple[str, str]) -> None:
    for shapes in (((2,), ()), ((), (2,)), ((), ()), ((2,), (2,))):
        (a, x), (b, y) = (pair(name, shape) for name, shape in zip(names, shapes, strict=True))
        if names != ("bool", "bool"):  # PyTorch has none
            assert (a**b).dtype.name == str((x**y).dtype).removeprefix("torch.")


def test_a_write_in_place_keeps_its_dtype_beside_a_wider_scalar() -> None:
    x = Tensor([1, 2], dtype=dtypes.int8)
    x += Tensor(3)
    x *= Tensor(2, dtype=dtypes.int32)
    assert (x.dtype, x.tolist()) == (dtypes.int8, [8, 10])
    assert (Tensor([1, 2], dtype=dtypes.int8) < Tensor(2)).tolist() == [True, False]


@pytest.mark.parametrize("number", [np.int64(3), np.float64(1.5), np.float32(1.5), np.float16(2)], ids=repr)
def test_a_number_of_numpy_is_a_number(number: Any) -> None:
    for dtype in (dtypes.int8, dtypes.float32, dtypes.bool, dtypes.float64):
        x = Tensor([1, 0], dtype=dtype)
        assert (x + number).dtype is (x + number.item()).dtype
        assert (x + number).tolist() == (x + number.item()).tolist()
        assert (x**number).dtype is (x ** number.item()).dtype


@pytest.mark.parametrize("value", [np.int64(300), np.float64("nan"), np.float32("inf"), np.uint16(300)], ids=repr)
def test_a_number_of_numpy_that_does_not_fit_is_an_error_at_the_write(value: Any) -> None:
    x = Tensor([1, 2], dtype=dtypes.int8)
    for write in (
        lambda: x.__setitem__(0, value),
        lambda: x.__setitem__(slice(None), value),
        lambda: x.__setitem__([0, 1], value),
        lambda: x.__setitem__(x == 1, value),
        lambda: x.fill_(value),
        lambda: x.assign(value),
    ):
        with pytest.raises(ValueRangeError, match="must fit the dtype"):
            write()
    assert x.tolist() == [1, 2]


@pytest.mark.parametrize("exponent", [True, False, 0, 1, 2, 3, 64, 65, 100, 2.0])
def test_powers_of_bool_are_those_of_pytorch(exponent: Any) -> None:
    for values in ([True, False], [[False], [True]]):
        got, want = Tensor(values) ** exponent, torch.tensor(values) ** exponent
        assert (got.dtype.name, got.tolist()) == (str(want.dtype).removeprefix("torch."), want.tolist())
        got, want = exponent ** Tensor(values), torch.tensor(exponent) ** torch.tensor(values, dtype=torch.int64)
        assert got.tolist() == want.tolist()


@pytest.mark.parametrize("exponent", [63, 64, 65, 100, 1 << 40])
@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8", "int32"])
def test_large_powers_of_integers_wrap(dtype: str, exponent: int) -> None:
    base = np.array([3, 2, -1 if dtype[0] == "i" else 7, 1, 0], dtype)
    want = [pow(int(b), exponent, 1 << 64) for b in base]
    wrapped = np.array(want, np.uint64).astype(dtype)
    np.testing.assert_array_equal((Tensor(base) ** exponent).numpy(), wrapped)
    if exponent <= np.iinfo(dtype).max:
        powers = Tensor(base) ** Tensor(np.full(5, exponent, dtype))
        np.testing.assert_array_equal(powers.numpy(), wrapped)


def test_negative_powers_of_integers_are_truncated() -> None:
    for exponent in (-1, -2, -64):  # 3 ** 64 is 1 in 8 bits
        x = Tensor([3, -1, 1, 0, 127], dtype=dtypes.int8) ** exponent
        assert x.tolist() == [0, (-1) ** exponent, 1, 0, 0]
    assert (Tensor([3, 1, 0], dtype=dtypes.uint8) ** -3).tolist() == [0, 1, 0]


@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne])
def test_elements_compare_to_bool(compare: Any) -> None:
    x, array = Tensor([1, 2], dtype=dtypes.int8), np.array([1, 2], np.int8)
    for got, want in (
        (compare(x[0], x[1]), compare(array[0], array[1])),
        (compare(x[0], 1), compare(array[0], 1)),
        (compare(x[0], 300), compare(int(array[0]), 300)),
        (compare(x[0] + 1, x[1]), compare(array[0] + 1, array[1])),
        (compare(Tensor(1.0), Tensor(2.0)) & compare(x[0], 1.0), compare(1.0, 2.0) & compare(array[0], 1.0)),
    ):
        assert (got.dtype, got.item()) == (dtypes.bool, want)
