"""Exact counts of products by a matrix that is computed: what takes a few ops is computed as the product reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor, dtypes
from intaglio.engine.devices import device_of
from intaglio.ir.node import walk

if TYPE_CHECKING:
    from collections.abc import Callable

DEPTH, WIDTH, GROUP = 256, 384, 32
ROWS = [2, 4, 8, 9, 24, 100, 300]


def drawn(*shape: int) -> Tensor:
    """Numbers in memory."""
    return Tensor(np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)).realize()


def whole(*shape: int) -> Tensor:
    """Bytes in memory."""
    return Tensor(np.random.default_rng(sum(shape)).integers(-128, 128, shape, np.int8)).realize()


def dequantised(w: Tensor, scale: Tensor) -> Tensor:
    """A matrix of bytes, by columns."""
    return w.cast(dtypes.float32) * scale


def from_zero(w: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """A matrix of bytes, each column with a number that stands for 0."""
    return (w.cast(dtypes.float32) - zero) * scale


def by_rows(w: Tensor, scale: Tensor) -> Tensor:
    """A transposed matrix of bytes."""
    return (w.cast(dtypes.float32) * scale.reshape(WIDTH, 1)).T


def by_groups(w: Tensor, scale: Tensor) -> Tensor:
    """A matrix of bytes with a scale for some rows of each column."""
    grouped = w.cast(dtypes.float32).reshape(DEPTH // GROUP, GROUP, WIDTH)
    return (grouped * scale.reshape(-1, 1, WIDTH)).reshape(DEPTH, WIDTH)


FORMS = pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (dequantised, lambda: (whole(DEPTH, WIDTH), drawn(WIDTH))),
        (from_zero, lambda: (whole(DEPTH, WIDTH), drawn(WIDTH), drawn(WIDTH))),
        (by_rows, lambda: (whole(WIDTH, DEPTH), drawn(WIDTH))),
        (by_groups, lambda: (whole(DEPTH, WIDTH), drawn(DEPTH // GROUP, WIDTH))),
        (lambda w: (w * 2 + 1).relu(), lambda: (drawn(DEPTH, WIDTH),)),
    ],
    ids=["columns", "zeros", "rows", "groups", "floats"],
)


@FORMS
@pytest.mark.parametrize("rows", ROWS)
def test_a_matrix_of_few_ops_is_not_stored(
    make: Callable[..., Tensor], inputs: Callable[[], tuple[Tensor, ...]], rows: int
) -> None:
    x, own = drawn(rows, DEPTH), inputs()
    GlobalCounters.reset()
    out = (x @ make(*own)).realize()
    read = sum(t.numel() * t.dtype.itemsize for t in (x, *own, out))
    assert (GlobalCounters.kernel_count, GlobalCounters.global_mem) == (1, read)
    matrix = make(*own).contiguous().numpy()
    exact = x.numpy().astype(np.float64) @ matrix
    bound = np.abs(x.numpy()) @ np.abs(matrix)
    assert (np.abs(out.numpy() - exact) <= 4e-7 * bound).all()
    if matrix.flags.c_contiguous and make is not by_rows:
        assert np.array_equal(out.numpy(), (x @ Tensor(matrix).realize()).numpy())


@pytest.mark.parametrize("columns", [16, 17, 24, 40, 64])
@pytest.mark.parametrize("rows", [1, 3, 8, 30, 100])
@pytest.mark.parametrize("depth", [5, 200, 700])
def test_each_matrix_of_a_batch_may_be_computed(rows: int, depth: int, columns: int) -> None:
    rng = np.random.default_rng(rows + depth + columns)
    x, w = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((3, rows, depth), (3, depth, columns)))
    GlobalCounters.reset()
    assert np.array_equal((Tensor(x) @ (Tensor(w) * 2)).numpy(), x @ (w * 2))
    assert GlobalCounters.kernel_count == 1


@pytest.mark.parametrize(
    ("make", "kernels"),
    [
        (lambda w, v: w.exp(), 2),  # many ops
        (lambda w, v: w * v.reshape(DEPTH, WIDTH), 2),  # two arrays
        (lambda w, v: w / w.sum(0), 2),  # a reduction
    ],
    ids=["exp", "arrays", "sums"],
)
def test_a_matrix_of_more_is_stored_once(make: Callable[[Tensor, Tensor], Tensor], kernels: int) -> None:
    x, w, v = drawn(40, DEPTH), drawn(DEPTH, WIDTH), drawn(WIDTH, DEPTH)
    GlobalCounters.reset()
    out = (x @ make(w, v)).realize()
    assert GlobalCounters.kernel_count == kernels
    want = x.numpy().astype(np.float64) @ make(w, v).numpy()
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda w: w.flip(1) * 2, (DEPTH, WIDTH)),
        (lambda w: w[:, ::3] * 2, (DEPTH, 3 * WIDTH)),
        (lambda w: w[:, ::2].T * 2, (WIDTH, 2 * DEPTH)),
        (lambda w: w.reshape(DEPTH, 16, WIDTH // 16).transpose(1, 2).reshape(DEPTH, WIDTH) * 2, (DEPTH, WIDTH)),
        (lambda w: (w * 2).reshape(DEPTH, 16, WIDTH // 16).transpose(1, 2).reshape(DEPTH, WIDTH), (DEPTH, WIDTH)),
        (lambda w: (w.cast(dtypes.bfloat16) * 2).T.cast(dtypes.float32), (WIDTH, DEPTH)),
    ],
    ids=["reversed", "steps", "transposed steps", "moved", "moved after", "transposed halves"],
)
@pytest.mark.parametrize("rows", [2, 9, 100])
def test_a_matrix_whose_numbers_lie_apart_is_stored_first(
    make: Callable[[Tensor], Tensor], shape: tuple[int, int], rows: int
) -> None:
    x, w = drawn(rows, DEPTH), drawn(*shape)
    GlobalCounters.reset()
    out = (x @ make(w)).realize()
    assert GlobalCounters.kernel_count == 2
    np.testing.assert_allclose(out.numpy(), x.numpy() @ make(w).numpy(), rtol=1e-3, atol=1e-3)


def test_a_matrix_that_a_batch_repeats_is_computed_once() -> None:
    x, w = drawn(6, 1, 40, DEPTH), drawn(1, 2, DEPTH, WIDTH)
    GlobalCounters.reset()
    out = (x @ (w * 2)).realize()
    assert GlobalCounters.kernel_count == 2
    np.testing.assert_allclose(out.numpy(), x.numpy() @ (w.numpy() * 2), rtol=1e-3, atol=1e-3)


def test_a_matrix_of_few_ops_over_what_is_stored_is_computed_from_that() -> None:
    x, y, w, scale = drawn(40, DEPTH), drawn(DEPTH, 300), drawn(300, WIDTH), drawn(WIDTH)
    GlobalCounters.reset()
    out = (x @ ((y @ w) * scale)).realize()
    assert GlobalCounters.kernel_count == 2
    np.testing.assert_allclose(out.numpy(), x.numpy() @ (y.numpy() @ w.numpy() * scale.numpy()), rtol=1e-3, atol=1e-2)


def test_a_transposed_matrix_of_groups_is_stored_as_it_lies() -> None:
    x, w, scale = drawn(40, DEPTH), whole(WIDTH, DEPTH // GROUP, GROUP), drawn(WIDTH, DEPTH // GROUP, 1)
    matrix = (w.cast(dtypes.float32) * scale).reshape(WIDTH, DEPTH)
    device = device_of("CPU")
    device._kernels.clear()
    GlobalCounters.reset()
    out = (x @ matrix.T).realize()
    assert GlobalCounters.kernel_count == 2
    lanes = device.target.vector_bytes // 4
    for kernel in device._kernels.values():  # neither goes element by element
        assert max(n.shape[-1] for n in walk((kernel.lowered.linear,)) if n.shape) == lanes
    np.testing.assert_allclose(out.numpy(), x.numpy() @ matrix.numpy().T, rtol=1e-3, atol=1e-3)


def test_a_matrix_that_two_results_need_is_computed_once() -> None:
    x, y, w, scale = drawn(40, DEPTH), drawn(50, DEPTH), whole(DEPTH, WIDTH), drawn(WIDTH)
    matrix = dequantised(w, scale)
    a, b = x @ matrix, y @ matrix
    GlobalCounters.reset()
    a.realize(b)
    assert GlobalCounters.kernel_count == 3
    for out, rows in ((a, x), (b, y)):
        np.testing.assert_allclose(out.numpy(), rows.numpy() @ matrix.numpy(), rtol=1e-3, atol=1e-3)
