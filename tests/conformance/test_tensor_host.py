"""From tensors to the host: values, text, pickles, conversions."""

from __future__ import annotations

import copy
import pickle
import weakref

import numpy as np
import pytest

from intaglio import Tensor, dtypes
from tests.conformance.agree import agree


def test_one_element_is_a_number() -> None:
    assert int(Tensor(7.9)) == 7
    assert float(Tensor(2)) == 2.0
    assert bool(Tensor([0.0])) is False
    assert f"{Tensor(3.14159):.2f}" == "3.14"
    assert f"{Tensor(42):>5d}" == "   42"
    assert list(range(Tensor(3))) == [0, 1, 2]
    assert type(Tensor(True).item()) is bool
    assert type(Tensor(2**62).item()) is int


def test_containers_protocols() -> None:
    t = Tensor([[1, 2], [3, 4], [5, 6]])
    assert len(t) == 3
    assert [row.tolist() for row in t] == [[1, 2], [3, 4], [5, 6]]
    assert 4 in t
    assert 7 not in t
    assert {t: "by identity"}[t] == "by identity"
    assert weakref.ref(t)() is t


def test_arrays_of_tensors_have_their_dtype() -> None:
    for dtype in dtypes.all:
        array = Tensor([0, 1, 2]).cast(dtype).numpy()
        assert array.dtype == dtype.numpy
    assert np.asarray(Tensor([1, 2]), dtype=np.float64).dtype == np.float64
    agree(np.asarray(Tensor.zeros(0, 3)), np.zeros((0, 3), np.float32))


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (Tensor([1.0, 2.5]), "Tensor([1. , 2.5], dtype=float32)"),
        (Tensor([[1, 2], [3, 4]]), "Tensor([[1, 2],\n        [3, 4]], dtype=int64)"),
        (Tensor(True), "Tensor(True, dtype=bool)"),
        (Tensor.zeros(0, 3), "Tensor([], dtype=float32, shape=(0, 3))"),
        (Tensor([1.5]).cast(dtypes.bfloat16), "Tensor([1.5], dtype=bfloat16)"),
        (Tensor.arange(2000), "Tensor([   0,    1,    2, ..., 1997, 1998, 1999], dtype=int64)"),
    ],
)
def test_text_shows_values(tensor: Tensor, text: str) -> None:
    assert repr(tensor) == text


def test_text_names_other_devices() -> None:
    assert repr(Tensor([1], device="PYTHON")) == "Tensor([1], dtype=int64, device='PYTHON')"


def test_pickles_and_deep_copies_keep_aliases() -> None:
    base = Tensor([1, 2, 3, 4])
    view = base[::2]
    view[0] = 9
    for first, second in (pickle.loads(pickle.dumps((base, view))), copy.deepcopy((base, view))):
        assert first.tolist() == [9, 2, 3, 4]
        second[1] = 7
        assert first.tolist() == [9, 2, 7, 4]
    assert base.tolist() == [9, 2, 3, 4]


def test_pickles_of_computed_and_transposed_tensors() -> None:
    t = Tensor([[1.0, 2.0], [3.0, 4.0]])
    for value in (t + 1, t.T, t[0, 0], Tensor.zeros(0), t.cast(dtypes.bfloat16)):
        again = pickle.loads(pickle.dumps(value))
        assert (again.tolist(), again.dtype, again.shape) == (value.tolist(), value.dtype, value.shape)


def test_a_shallow_copy_shares() -> None:
    t = Tensor([1, 2])
    other = copy.copy(t)
    other[0] = 5
    assert t.tolist() == [5, 2]


def test_leaves_stay_leaves_in_copies() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    for again in (pickle.loads(pickle.dumps(w)), copy.deepcopy(w)):
        assert again.requires_grad
        (again * again).sum().backward()
        assert again.grad is not None
        assert again.grad.tolist() == [2.0, 4.0]


def test_moving_between_devices(backend: str) -> None:
    t = Tensor([[1, 2], [3, 4]])
    there = t.T.to(backend)
    assert there.device == backend
    agree(there.to("CPU"), np.array([[1, 3], [2, 4]]))
    assert t.to("CPU") is t


def test_casts_by_name() -> None:
    t = Tensor([1.7])
    made = [t.float(), t.double(), t.half(), t.int(), t.long(), t.bool()]
    assert [m.dtype.name for m in made] == ["float32", "float64", "float16", "int32", "int64", "bool"]
