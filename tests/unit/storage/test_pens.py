"""Numbers written to single elements of views of any rank: which places they go to, what they become, what is refused.

NumPy run beside them is the oracle.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Context, Tensor, dtypes
from intaglio.core.errors import GradError, IndexRangeError, OverlapError, ValueRangeError
from intaglio.storage.held import NUMBER

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = (3, 4, 5)
VIEWS: list[Callable[[Any], Any]] = [
    lambda x: x,
    lambda x: x[1],
    lambda x: x[-1],
    lambda x: x[2][1],
    lambda x: x[np.int64(1)],
    lambda x: x[:, 2],
    lambda x: x[..., 3],
    lambda x: x[::-1, 1:, ::2],
    lambda x: x[0, ::-1],
    lambda x: x[1, 1:3, -1],
    lambda x: x.reshape(12, 5),
    lambda x: x.reshape(60),
    lambda x: x.reshape(60)[7::3],
    lambda x: x[2, 3, 1:2],
]
VALUES: list[Any] = [
    0,
    1,
    7,
    100,
    True,
    False,
    0.5,
    2.75,
    np.int8(3),
    np.float32(1.5),
    np.float64(0.25),
    np.bool_(True),
]


def position(rng: random.Random, n: int) -> Any:
    """A position of an axis, from either end, as one of the integers that there are."""
    return rng.choice((int, int, int, np.int64, np.int8))(rng.randrange(-n, n))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint8, dtypes.bool])
@pytest.mark.parametrize("seed", range(8))
def test_views_of_one_storage_are_written_in_turn_as_in_numpy(dtype: Any, seed: int) -> None:
    rng = random.Random(seed)
    t, array = Tensor.zeros(SHAPE, dtype=dtype).contiguous(), np.zeros(SHAPE, dtype.numpy)
    handles = [(view(t), view(array)) for view in VIEWS]
    for _ in range(300):
        own, other = rng.choice(handles)
        index = tuple(position(rng, n) for n in other.shape)
        if rng.random() < 0.05:
            assert own[index].item() == other[index]
        elif rng.random() < 0.05:
            own[...] = other[...] = rng.choice(VALUES)
        else:
            value = rng.choice(VALUES)
            own[index if len(index) > 1 or rng.random() < 0.5 else index[0]] = value
            other[index] = value
    assert t.tolist() == array.tolist()


def test_views_in_turn_fill_one_segment() -> None:
    t = Tensor.zeros(6, 5).contiguous()
    column, row = t[:, 1], t[2]
    for i in range(5):
        t[i, i] = 1
        column[i] = 2
        row[i] = 3
    storage, _ = t._place()
    assert len(storage.log) == 1
    assert row.tolist() == [3, 2, 3, 3, 3]
    assert column.tolist() == [2, 2, 2, 2, 2, 0]


def test_more_rows_than_pens_are_written_in_turn() -> None:
    t, array = Tensor.zeros(200, 3).contiguous(), np.zeros((200, 3))
    rows = [t[i] for i in range(200)]
    for j in range(3):
        for i in range(200):
            rows[i][j] = array[i, j] = 3 * i + j
    assert t.journal().entries == 1
    assert t.tolist() == array.tolist()


def test_a_row_reads_and_writes_what_the_whole_has() -> None:
    t = Tensor.zeros(3, 2, 2).contiguous()
    row = t[-1]
    row[0, 1] = 4.0
    t[2, 1, 0] = row[0, 1] * 2
    row[1][1] = t[2, 1, 0] + 1
    assert row.shape == (2, 2)
    assert row.tolist() == [[0, 4], [8, 9]]


@pytest.mark.parametrize("index", [(3, 0), (0, 4), (-4, 0), (0, -5), (np.int64(3), 0), (0, 0, 0)])
def test_positions_out_of_range_are_errors_at_the_statement(index: Any) -> None:
    t = Tensor.zeros(3, 4).contiguous()
    t[0, 0] = 1
    with pytest.raises(IndexRangeError):
        t[index] = 2
    with pytest.raises(IndexRangeError):
        t[index]
    assert t.sum().item() == 1


@pytest.mark.parametrize("i", [3, -4, np.int64(3)])
def test_rows_out_of_range_are_errors_at_the_statement(i: Any) -> None:
    t = Tensor.zeros(3, 4).contiguous()
    assert t[2].shape == (4,)
    with pytest.raises(IndexRangeError):
        t[i]


def test_numbers_that_do_not_fit_are_errors_and_those_of_arrays_wrap() -> None:
    t, array = Tensor.zeros(2, 2, dtype=dtypes.uint8).contiguous(), np.zeros((2, 2), np.uint8)
    t[0, 0] = array[0, 0] = 255
    for value in (256, -1, 1 << 40, float("nan"), float("inf")):
        with pytest.raises(ValueRangeError):
            t[0, 1] = value
    with pytest.raises(ValueRangeError):
        t[1, 0] = np.int64(300)
    t[1, 0] = np.array(300)
    array[1, 0] = np.array(300).astype(np.uint8)
    t[1, 1] = array[1, 1] = 2.75
    assert t.tolist() == array.tolist()


def test_integers_past_what_a_pen_compares_stay_exact() -> None:
    t = Tensor.zeros(2, 2, dtype=dtypes.int64).contiguous()
    for k, value in enumerate((1, 2**60 + 1, -(2**63), 2**63 - 1)):
        t[k // 2, k % 2] = value
    assert t.tolist() == [[1, 2**60 + 1], [-(2**63), 2**63 - 1]]


def test_numbers_of_several_classes_round_once() -> None:
    midway = 2**60 + 2**36 + 1  # rounds up in float32, and down if it is rounded to float64 first
    values: list[Any] = [0.5, midway, True, -midway, 1e39, -0.0, 3]
    t = Tensor.zeros(len(values)).contiguous()
    for i, value in enumerate(values):
        t[i] = value
    with np.errstate(over="ignore"):
        expected = np.array([np.float32(value) for value in values])
    expected[[1, 3]] = np.array([midway, -midway], np.int64).astype(np.float32)
    assert t.numpy().tobytes() == expected.tobytes()


def test_elements_that_share_bytes_are_not_written() -> None:
    t = Tensor.zeros(3, 1).contiguous()
    wide = t.expand(3, 4)
    with pytest.raises(OverlapError):
        wide[0, 0] = 1
    t[0, 0] = 1
    for value in (2, t[0, 0] * 2):
        with pytest.raises(OverlapError):
            wide[0, 0] = value
    assert t.tolist() == [[1], [0], [0]]


def test_a_mask_of_one_truth_is_no_position() -> None:
    t, array = Tensor.zeros(2, 3).contiguous(), np.zeros((2, 3))
    t[0, 0] = array[0, 0] = 1.0
    t[True, 0] = array[True, 0] = 2.0
    assert t.tolist() == array.tolist()


def test_a_pen_does_not_write_what_has_become_a_leaf() -> None:
    t = Tensor.zeros(2, 2).contiguous()
    t[0, 0] = 1.0
    t.requires_grad_()
    with pytest.raises(GradError):
        t[0, 1] = 2.0
    assert t.detach().tolist() == [[1, 0], [0, 0]]


@pytest.mark.parametrize("limit", [1, 5])
def test_numbers_up_to_the_bound_on_bytes_stay_in_the_order_of_the_program(limit: int) -> None:
    with Context(journal_bytes=limit * NUMBER):
        t, array = Tensor.zeros(4, 3).contiguous(), np.zeros((4, 3))
        row, other, kept = t[1], array[1], []
        for k in range(12):
            t[k % 4, k % 3] = array[k % 4, k % 3] = k
            kept.append((t[1] + 0, array[1].copy()))
            row[(k + 1) % 3] = other[(k + 1) % 3] = -k
            row[k % 3] = other[k % 3] = 100 + k
        assert t.tolist() == array.tolist()
        assert all(own.tolist() == then.tolist() for own, then in kept)
