"""Memory that is shared with NumPy: writes are there when the statement returns, reads are what was there then."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Tensor, dtypes
from intaglio.core.errors import GradError, ReadOnlyError

if TYPE_CHECKING:
    from pathlib import Path


def test_writes_show_in_the_array_at_once() -> None:
    array = np.zeros(6, np.float32)
    t = Tensor.from_numpy(array)
    t[1] = 5
    assert array[1] == 5
    t[2:4] += 1
    t[[4, 5]] = Tensor([8.0, 9.0])
    t[t > 8] = -1
    assert array.tolist() == [0, 5, 1, 1, 8, -1]


def test_reads_take_what_the_array_holds_at_the_statement() -> None:
    array = np.arange(4, dtype=np.int64)
    t = Tensor.from_numpy(array)
    first = t * 2
    array[:] = 10
    second = t * 2
    array[:] = 20
    assert first.tolist() == [0, 2, 4, 6]
    assert second.tolist() == [20] * 4
    assert t.tolist() == [20] * 4


def test_a_copy_is_taken_by_the_constructor() -> None:
    array = np.arange(3)
    t = Tensor(array)
    array[:] = 7
    assert t.tolist() == [0, 1, 2]


def test_read_only_memory_cannot_be_written() -> None:
    array = np.arange(3)
    array.flags.writeable = False
    with pytest.raises(ReadOnlyError):
        Tensor.from_numpy(array)[0] = 1


# -- arrays on a tensor's memory


def test_an_array_shares_when_it_is_asked_to() -> None:
    t = Tensor([1.0, 2.0, 3.0, 4.0])
    t[0] = 5
    array = t.numpy(copy=False)
    array[1] = 6
    t[2] = 7
    t[3:] += 1
    assert array.tolist() == t.tolist() == [5, 6, 7, 5]
    assert np.shares_memory(array, t.numpy(copy=False))
    assert not np.shares_memory(array, t.numpy())
    assert t.numpy(copy=False).__array_interface__["data"][0] == t.data_ptr()


@pytest.mark.parametrize(
    "view",
    [lambda x: x[1:, ::2], lambda x: x.T, lambda x: x[::-1, 1], lambda x: x[2, 3], lambda x: x.reshape(4, 3)[1:3]],
)
def test_views_share_by_strides(view: Any) -> None:
    t, array = Tensor(np.arange(12).reshape(3, 4)), np.arange(12).reshape(3, 4)
    mine, its = view(t).numpy(copy=False), view(array)
    assert np.array_equal(mine, its)
    mine[...] = -1
    if its.ndim:
        its[...] = -1
        assert np.array_equal(t.numpy(), array)
    else:
        assert t[2, 3].item() == -1


def test_a_computed_tensor_is_computed_and_then_shared() -> None:
    for t in (Tensor([1, 2]) * 2, Tensor.full((2,), 7), Tensor([1, 2]).cast(dtypes.bfloat16), Tensor.empty(2, 0)):
        array = t.numpy(copy=False)
        array += 1
        assert t.tolist() == array.tolist()


def test_what_was_read_before_stays() -> None:
    base = Tensor([1.0, 2.0, 3.0])
    t = base * 2
    same = base * 2
    summed, held = t.sum(), t + 1
    t.realize()
    second = t * 3
    element = t[0]
    scalar = t[1] * 10
    other = Tensor.zeros(3).realize()
    other[0] = t[2] * 2
    other[1:2] = t[1:2]
    array = t.numpy(copy=False)
    array[:] = 100
    assert (summed.item(), held.tolist(), second.tolist(), scalar.item()) == (12, [3, 5, 7], [6, 12, 18], 40)
    assert other.tolist() == [12, 4, 0]
    assert same.tolist() == [2, 4, 6]
    assert element.item() == 100


def test_old_handles_and_elements_take_the_value_of_the_statement() -> None:
    t = Tensor([1.0, 2.0, 3.0])
    other = t[:]
    for k in range(3):
        other[k] = other[k] * 2  # the handle knows the fast paths
    element = other[0]
    _ = element + 1
    array = t.numpy(copy=False)
    for k in range(3):
        other[k] = k
        assert array[k] == k
        other[k] = other[k] + 5
        assert array[k] == k + 5
    seen = [element + 1, other[0] * 2, element.sqrt(), t[[0, 1]], t[0:1] + 0]
    elsewhere = Tensor.zeros(2)
    elsewhere[0] = element
    elsewhere[1] = t[0]
    array[:] = 0
    assert [s.tolist() for s in seen[:2]] == [6, 10]
    assert [s.tolist() for s in seen[3:]] == [[5, 6], [5]]
    assert elsewhere.tolist() == [5, 5]
    element += 3
    assert array[0] == 3


def test_the_array_outlives_the_tensor() -> None:
    array = (Tensor.arange(1 << 16) + 1).numpy(copy=False)
    gc.collect()
    others = [Tensor.zeros(1 << 16, dtype=dtypes.int64).realize() for _ in range(4)]
    assert np.array_equal(array, np.arange(1, (1 << 16) + 1))
    assert len(others) == 4


def test_arrays_that_cannot_be_written_are_read_only(tmp_path: Path) -> None:
    assert not Tensor([1, 2]).realize().reshape(2, 1).expand(2, 3).numpy(copy=False).flags.writeable
    path = tmp_path / "t"
    path.write_bytes(b"ab")
    read = Tensor(path).numpy(copy=False)
    assert (read.tolist(), read.flags.writeable) == ([97, 98], False)
    t = Tensor.empty(2, dtype=dtypes.uint8, device=f"DISK:{path}")
    written = t.numpy(copy=False)
    t[0] = 1
    written[1] = 2
    assert path.read_bytes() == b"\x01\x02"


def test_numpy_asks_by_its_own_protocol() -> None:
    t = Tensor([1.0, 2.0])
    shared = np.asarray(t, copy=False)
    shared[0] = 9
    assert t.tolist() == [9, 2]
    assert not np.shares_memory(shared, np.asarray(t))
    assert not np.shares_memory(shared, np.array(t, copy=True))
    assert np.asarray(t, dtype=np.float32, copy=False).base is not None
    with pytest.raises(
        ValueError,
        match=r"^array: another dtype is a copy; the tensor is float32, int64 was asked for\. Allow the copy\?$",
    ):
        np.asarray(t, dtype=np.int64, copy=False)


def test_memory_under_gradients_is_shared_by_detach_alone() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    with pytest.raises(GradError) as caught:
        y.numpy(copy=False)
    assert str(caught.value) == (
        "numpy: memory is shared only of a tensor without gradients, which would not see what an array writes. "
        "Use .detach().numpy(copy=False)?"
    )
    loss = (x * x).sum()
    array = x.detach().numpy(copy=False)
    array[:] = 10
    loss.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 4]
    assert x.tolist() == [10, 10]
