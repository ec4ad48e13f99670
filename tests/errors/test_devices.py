"""Devices that hold bytes and compute nothing say so."""

from __future__ import annotations

import re

import pytest

from intaglio import Tensor
from intaglio.core.errors import DeviceError


def test_host_arrays_are_not_computed_on() -> None:
    t = Tensor([1, 2, 3], device="NPY")
    assert t.tolist() == [1, 2, 3]
    text = 'npy: values cannot be computed on host arrays; move the tensor first, with .to("CPU").'
    with pytest.raises(DeviceError, match=re.escape(text)):
        (t + 1).tolist()
    assert (t.to("CPU") + 1).tolist() == [2, 3, 4]


def test_floats_of_eight_bits_are_not_summed() -> None:
    from intaglio import dtypes
    from intaglio.core.errors import DTypeError

    t = Tensor([1.0, 0.0], dtype=dtypes.float8_e4m3)
    for name in ("sum", "max", "argmax", "cumsum"):
        with pytest.raises(DTypeError, match="is for storage only"):
            getattr(t, name)()


def test_cat_takes_tensors_only() -> None:
    with pytest.raises(TypeError, match=r"cat: a list of tensors is wanted; operand 1 is ndarray\. Make one with"):
        Tensor.cat([Tensor([1]), Tensor([2]).numpy()])


def test_one_meaning_is_not_said_twice() -> None:
    with pytest.raises(TypeError, match=r"sum: axis and dim mean the same; got both\. Drop one\?"):
        Tensor([1]).sum(axis=0, dim=0)  # pyright: ignore[reportCallIssue] -- the other library's word
