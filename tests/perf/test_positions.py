"""Exact counts of reads and writes at positions, and of sorting: kernels, launches, bytes moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.trace import GlobalCounters

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, WIDTH, COUNT = 1000, 64, 5000
RNG = np.random.default_rng(0)
PLACES = RNG.integers(0, ROWS, COUNT)
TABLE = RNG.standard_normal((ROWS, WIDTH)).astype(np.float32)
VALUES = RNG.standard_normal((COUNT, WIDTH)).astype(np.float32)
ROW = 4 * WIDTH  # bytes


def counted(program: Callable[[], Tensor]) -> tuple[np.ndarray, int, int, int]:
    """(values, kernels, launches, bytes)."""
    GlobalCounters.reset()
    made = program().realize()
    seen = GlobalCounters.kernel_count, GlobalCounters.launch_count, GlobalCounters.global_mem
    return made.numpy(), *seen


@pytest.fixture
def table() -> Tensor:
    """A table of rows."""
    return Tensor(TABLE).realize()


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint16"])
def test_rows_are_gathered_by_positions_as_they_are_in_memory(table: Tensor, dtype: str) -> None:
    places = Tensor(PLACES.astype(dtype)).realize()
    before = GlobalCounters.mem_used
    got, *seen = counted(lambda: table[places])
    assert seen == [1, 1, (ROWS + COUNT) * ROW + COUNT * np.dtype(dtype).itemsize]
    assert GlobalCounters.peak - before <= COUNT * ROW
    assert np.array_equal(got, TABLE[PLACES])


def test_what_is_done_with_gathered_rows_is_their_kernel(table: Tensor) -> None:
    places = Tensor(PLACES).realize()
    got, *seen = counted(lambda: (table * 2)[places] + 1)
    assert seen == [1, 1, (ROWS + COUNT) * ROW + COUNT * 8]
    assert np.array_equal(got, TABLE[PLACES] * 2 + 1)


@pytest.mark.parametrize(
    ("change", "kernels"),
    [
        (lambda p: (p * 7) % ROWS, 1),
        (lambda p: p.clip(5, ROWS - 1), 1),
        (lambda p: p.cast("int64"), 1),
        (lambda p: (p < 10).where(p.cast("uint8").cast("int32"), 3), 1),
        (lambda p: p * 7 // 7, 2),
    ],
)
def test_positions_are_checked_by_a_kernel_only_if_there_is_a_doubt(
    table: Tensor, change: Callable[[Tensor], Tensor], kernels: int
) -> None:
    places = Tensor(PLACES.astype(np.int32)).realize()
    want = TABLE[change(Tensor(PLACES.astype(np.int32))).numpy()]
    got, *seen = counted(lambda: table[change(places)])
    assert seen[:2] == [kernels, kernels]
    assert np.array_equal(got, want)


def test_sums_at_positions_are_in_place_and_take_what_is_computed_for_them(table: Tensor) -> None:
    places, values = Tensor(PLACES).realize(), Tensor(VALUES).realize()
    got, *seen = counted(lambda: table.index_add(0, places, values * 2))
    want = TABLE.copy()
    np.add.at(want, PLACES, VALUES * 2)
    assert seen == [2, 1, 2 * ROWS * ROW + COUNT * (2 * ROW + 8)]
    assert np.array_equal(got, want)


def test_the_gradient_of_an_embedding_is_one_pass_over_its_rows() -> None:
    places, values = Tensor(PLACES).realize(), Tensor(VALUES).realize()
    weight = Tensor(TABLE, requires_grad=True).realize()

    def program() -> Tensor:
        weight.grad = None
        (weight[places] * values).sum().backward()
        assert weight.grad is not None
        return weight.grad

    got, *seen = counted(program)
    want = np.zeros_like(TABLE)
    np.add.at(want, PLACES, VALUES)
    assert seen == [2, 1, ROWS * ROW + COUNT * (2 * ROW + 8)]
    assert np.array_equal(got, want)


def test_moved_sums_are_not_copied_and_sums_of_several_uses_are_made_once() -> None:
    places, values = Tensor(PLACES).realize(), Tensor(VALUES).realize()
    want = np.zeros_like(TABLE)
    np.add.at(want, PLACES, VALUES)
    turned = values.T.clone().realize()
    got, *seen = counted(lambda: Tensor.zeros(WIDTH, ROWS).index_add(1, places, turned))
    assert seen == [2, 1, ROWS * ROW + COUNT * (2 * ROW + 8)]
    assert np.array_equal(got, want.T)
    GlobalCounters.reset()
    total = Tensor.zeros(ROWS, WIDTH).index_add(0, places, values)
    double = total * 2
    total.realize(double)
    assert GlobalCounters.kernel_count == 3
    assert np.array_equal(total.numpy(), want)
    assert np.array_equal(double.numpy(), want * 2)


def test_sorting_moves_its_elements_once_and_makes_words_only_for_places() -> None:
    array = VALUES[:, 0].copy()
    x = Tensor(array).realize()
    got, *seen = counted(lambda: x.sort()[0])
    assert seen == [1, 1, 8 * COUNT]
    assert np.array_equal(got, np.sort(array))
    order, *seen = counted(lambda: x.argsort())
    assert seen == [1, 1, 12 * COUNT]
    assert np.array_equal(order, np.argsort(array, kind="stable"))
    GlobalCounters.reset()
    values, places = x.sort(descending=True)
    assert (values.numpy()[0], GlobalCounters.kernel_count) == (array.max(), 2)
    assert places.tolist() == np.argsort(-array, kind="stable").tolist()


def test_the_few_largest_of_many_take_no_kernel_but_that_which_reads_them() -> None:
    array = RNG.standard_normal(1 << 17).astype(np.float32)
    x = Tensor(array).realize()
    got, kernels, *_ = counted(lambda: x.topk(9).values)
    assert kernels == 1
    assert np.array_equal(got, np.sort(array)[::-1][:9])


def test_positions_that_were_looked_at_are_known_until_they_are_written() -> None:
    places = Tensor([1, 2, 3]).realize()
    x = Tensor([0.0, 10.0, 20.0, 30.0]).realize()
    assert x[places].tolist() == [10, 20, 30]
    assert x.gather(0, places).tolist() == [10, 20, 30]
    places[1] = 0
    assert x[places].tolist() == [10, 0, 30]
    places[1:] += 3
    with pytest.raises(IndexError, match="6 is out of range"):
        x[places].tolist()
    with pytest.raises(IndexError, match="6 is out of range"):
        x[places.realize()]
    assert x[places - 3].tolist() == [20, 0, 30]
