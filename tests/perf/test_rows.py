"""Exact counts of what works by rows, forwards and backwards: kernels, and bytes beside those that must move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.errors import IndexRangeError
from intaglio.core.trace import GlobalCounters
from intaglio.tensor import convert

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, COLUMNS = 64, 1000


def floats(*shape: int) -> Tensor:
    """Random numbers in memory."""
    return Tensor(np.random.default_rng(len(shape)).random(shape, np.float32)).realize()


def classes(rows: int, columns: int) -> Tensor:
    """Random class numbers in memory."""
    return Tensor(np.random.default_rng(0).integers(0, columns, rows)).realize()


def counted(program: Callable[[], Tensor]) -> tuple[int, int]:
    """(kernels, bytes moved) of what a program gives, once it has run before."""
    program().realize()
    GlobalCounters.reset()
    program().realize()
    return GlobalCounters.kernel_count, GlobalCounters.global_mem


def chain(x: Tensor) -> Tensor:
    """Ten elementwise ops."""
    for k in range(10):
        x = x * 0.75 if k % 2 else x + 1.5
    return x


PROGRAMS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "softmax": lambda x, w, b: x.softmax(-1),
    "log_softmax": lambda x, w, b: x.log_softmax(-1),
    "logsumexp": lambda x, w, b: x.logsumexp(1),
    "rms_norm": lambda x, w, b: x.rms_norm(),
    "rms_norm with a weight": lambda x, w, b: x.rms_norm(w),
    "layer_norm": lambda x, w, b: x.layer_norm(COLUMNS),
    "layer_norm with weight and bias": lambda x, w, b: x.layer_norm(COLUMNS, w, b),
    "variance": lambda x, w, b: x.var(1),
    "softmax of columns": lambda x, w, b: x.softmax(0),
    "log_softmax of columns": lambda x, w, b: x.log_softmax(0),
    "columns normalized": lambda x, w, b: (x - x.mean(0)) / (x.var(0) + 1e-5).sqrt(),
    "mean of columns": lambda x, w, b: x.mean(0),
    "cumsum of rows": lambda x, w, b: x.cumsum(1),
    "cumsum of columns": lambda x, w, b: x.cumsum(0),
    "argmax of rows": lambda x, w, b: x.argmax(1),
    "argmax of columns": lambda x, w, b: x.argmax(0),
    "chain of ten": lambda x, w, b: chain(x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_works_by_rows_is_one_kernel_that_reads_and_writes_once(name: str) -> None:
    x, w, b = floats(ROWS, COLUMNS), floats(COLUMNS), floats(COLUMNS)
    kernels, moved = counted(lambda: PROGRAMS[name](x, w, b))
    read = {"rms_norm with a weight": [w], "layer_norm with weight and bias": [w, b]}.get(name, [])
    result = PROGRAMS[name](x, w, b)
    assert (kernels, moved) == (1, x.nbytes + sum(t.nbytes for t in read) + result.nbytes)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_softmax_along_any_axis_of_images_is_one_kernel(axis: int) -> None:
    x = floats(6, 21, 40, 40)
    assert counted(lambda: x.softmax(axis)) == (1, 2 * x.nbytes)


def test_a_normalization_of_channels_is_one_kernel() -> None:
    x = floats(6, 21, 40, 40)
    apart = x - x.mean((0, 2, 3), keepdims=True)
    assert counted(lambda: apart / (apart.square().mean((0, 2, 3), keepdims=True) + 1e-5).sqrt())[0] == 1


def test_softmax_along_two_axes_at_once_is_a_kernel_each() -> None:
    x = floats(200, 300)
    assert counted(lambda: x.softmax(0) + x.softmax(1))[0] == 3


def test_batch_norm_is_one_kernel() -> None:
    x, parts = floats(4, 16, 20, 20), [floats(16) for _ in range(4)]
    assert counted(lambda: x.batch_norm(*parts)) == (1, 2 * x.nbytes + sum(p.nbytes for p in parts))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_cross_entropy_is_one_kernel(reduction: str) -> None:
    x, y = floats(ROWS, COLUMNS), classes(ROWS, COLUMNS)
    kernels, moved = counted(lambda: x.cross_entropy(y, reduction=reduction))
    assert kernels == 1
    assert moved <= 1.01 * x.nbytes  # the scores once; the rest is an element or two of each row


@pytest.mark.parametrize("ignored", [-100, 3])
def test_classes_that_count_for_nothing_need_no_kernel_and_are_looked_at_once(
    ignored: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    look = convert.extremes
    monkeypatch.setattr(convert, "extremes", lambda array: looks.append(array.size) or look(array))
    x = floats(ROWS, COLUMNS)
    labels = np.arange(ROWS) % COLUMNS
    labels[::5] = ignored
    y = Tensor(labels).realize()
    for turn in range(3):
        kernels, moved = counted(lambda: x.cross_entropy(y, ignore_index=ignored))
        assert kernels == 1
        assert moved <= 1.01 * x.nbytes
        assert turn == 0 or not looks
        looks.clear()
    y[2] = COLUMNS
    y.realize()
    with pytest.raises(IndexRangeError, match=f"cross_entropy: {COLUMNS} is out of range"):
        x.cross_entropy(y, ignore_index=ignored)
    y[2] = ignored
    y.realize()
    looks.clear()
    assert counted(lambda: x.cross_entropy(y, ignore_index=ignored))[0] == 1
    assert looks


def test_the_mean_of_many_large_losses_is_a_kernel_of_its_own() -> None:
    x, y = floats(2100, COLUMNS), classes(2100, COLUMNS)
    for reduction in ("mean", "sum"):
        kernels, moved = counted(lambda reduction=reduction: x.cross_entropy(y, reduction=reduction))
        assert kernels == 2
        assert moved <= 1.01 * x.nbytes


def test_an_embedding_is_one_kernel() -> None:
    table, places = floats(500, 64), classes(70, 500)
    kernels, moved = counted(lambda: table[places])
    assert (kernels, moved) == (1, 4 * 70 * 64 + places.nbytes + 4 * 70 * 64)


def test_a_masked_select_finds_its_places_and_takes_them() -> None:
    x, mask = floats(ROWS, COLUMNS), (floats(ROWS, COLUMNS) < 0.3).realize()
    assert counted(lambda: x.masked_select(mask))[0] <= 2


GRADIENTS: dict[str, tuple[Callable[..., Tensor], int, int, float]] = {
    "softmax": (lambda x: x.softmax(-1), 1, 1, 1.5),
    "log_softmax": (lambda x: x.log_softmax(-1), 1, 1, 1.5),
    "rms_norm": (lambda x: x.rms_norm(), 1, 1, 1.5),
    "rms_norm with a weight": (lambda x, w: x.rms_norm(w), 2, 2, 2.0),
    "layer_norm": (lambda x: x.layer_norm(COLUMNS), 1, 1, 1.5),
    "layer_norm with weight and bias": (lambda x, w, b: x.layer_norm(COLUMNS, w, b), 3, 3, 2.5),
    "cross_entropy": (lambda x: x.cross_entropy(classes(ROWS, COLUMNS)), 1, 2, 2.01),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_rows(name: str) -> None:
    """Kernels, and bytes in multiples of the inputs and their gradients."""
    program, inputs, kernels, times = GRADIENTS[name]
    given = [floats(*shape).requires_grad_() for shape in ((ROWS, COLUMNS), (COLUMNS,), (COLUMNS,))[:inputs]]
    for _ in range(2):
        out = program(*given).realize()
        ct = (floats(*out.shape) if out.shape else Tensor(1.0)).realize()
        for x in given:
            x.grad = None
        GlobalCounters.reset()
        out.backward(ct)
        Tensor.realize(*[x.grad for x in given if x.grad is not None])
    assert GlobalCounters.kernel_count == kernels
    assert GlobalCounters.global_mem <= times * sum(2 * x.nbytes for x in given)


@pytest.mark.parametrize(("name", "inputs"), [("rms_norm with a weight", 2), ("layer_norm with weight and bias", 3)])
def test_gradients_of_a_large_norm_with_weights_read_rows_three_times(name: str, inputs: int) -> None:
    """The sums of rows, the gradient of the rows, those of the weights: two arrays are read for each but the first."""
    program = GRADIENTS[name][0]
    shapes = ((4 * ROWS, COLUMNS), (COLUMNS,), (COLUMNS,))[:inputs]
    given = [floats(*shape).requires_grad_() for shape in shapes]
    out = program(*given).realize()
    ct = floats(*out.shape)
    GlobalCounters.reset()
    out.backward(ct)
    Tensor.realize(*[x.grad for x in given if x.grad is not None])
    assert GlobalCounters.kernel_count == 3
    assert GlobalCounters.global_mem <= 6.05 * given[0].nbytes
