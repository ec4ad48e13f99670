"""Programs run at one size after another: right at each, and compiled for the first few only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor
from intaglio.core.dtypes import dtypes

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = [*range(2, 40), 63, 64, 65, 100, 127, 128]
FIRST = 8  # sizes at which a program may still be compiled
WIDTH = 400

Program = Any  # called with (rows, line, n): tensors and then arrays
ROWS = np.random.default_rng(0).integers(-8, 9, (6, WIDTH)).astype(np.float32)
LINE = np.random.default_rng(1).integers(-8, 9, WIDTH).astype(np.float32)


def softmax(x: Any) -> Any:
    """Along the last axis, of either library's arrays."""
    return (
        x.softmax(1)
        if isinstance(x, Tensor)
        else np.exp(x - x.max(1)[:, None]) / np.exp(x - x.max(1)[:, None]).sum(1)[:, None]
    )


def whole(x: Any) -> Any:
    """As whole numbers, of either library's arrays."""
    return x.cast(dtypes.int32) if isinstance(x, Tensor) else x.astype(np.int32)


def join(*parts: Any) -> Any:
    """Concatenation along the last axis, of either library's arrays."""
    return Tensor.cat(list(parts), 1) if isinstance(parts[0], Tensor) else np.concatenate(parts, 1)


READS: dict[str, Callable[[Any, Any, int], Any]] = {
    "a prefix": lambda x, y, n: x[:, :n] * 3 + 1,
    "a window that moves": lambda x, y, n: x[:, n : 2 * n] - y[n : 2 * n],
    "a suffix of a prefix, backwards": lambda x, y, n: x[:, :n][:, ::-1] + y[:n],
    "every second": lambda x, y, n: x[:, : 2 * n : 2] * 2,
    "a sum along": lambda x, y, n: x[:, :n].sum(1),
    "a sum across": lambda x, y, n: x[:, :n].sum(0),
    "a sum of all": lambda x, y, n: x[:, :n].sum(),
    "a largest": lambda x, y, n: x[:, :n].max(1),
    "where the largest is": lambda x, y, n: x[:, :n].argmax(1),
    "a mean": lambda x, y, n: x[:, :n].sum(1) / n,
    "softmax": lambda x, y, n: softmax(x[:, :n] * 0.25),
    "a product with a line": lambda x, y, n: (x[:, :n] * y[:n]).sum(1),
    "all of two lines": lambda x, y, n: x[0, :n].reshape(n, 1) * y[:5].reshape(1, 5),
    "axes merged": lambda x, y, n: x[:, :n].reshape(6 * n) + 1,
    "axes split": lambda x, y, n: x[:, : 3 * n].reshape(6, n, 3).sum(1) if 3 * n <= WIDTH else x.sum(1),
    "a transpose": lambda x, y, n: x[:, :n].T.reshape(n * 6) - 1,
    "running sums": lambda x, y, n: x[:, :n].cumsum(1),
    "joined": lambda x, y, n: join(x[:, :n], x[:, 5 : 5 + n] * 2, x[:, :3]),
    "taken": lambda x, y, n: x[1][whole(y[:n]) + 9],
    "two sizes of one": lambda x, y, n: x[:2, : 2 * n].sum(1) + x[2:4, n : n + 4].sum(1),
    "a comparison": lambda x, y, n: (x[:, :n] > y[:n]) & (x[:, :n] < 4),
    "whole numbers": lambda x, y, n: whole(y[:n] * 2) % 5,
}  # fmt: skip


def add(x: Any, y: Any, n: int) -> None:
    x[:, :n] += y[:n]


def put_column(x: Any, y: Any, n: int) -> None:
    x[:, n] = y[:6] * 2


def shift_left(x: Any, y: Any, n: int) -> None:
    x[:, :n] = x[:, 1 : n + 1]


def shift_right(x: Any, y: Any, n: int) -> None:
    x[:, 1 : n + 1] = x[:, :n]


def turn(x: Any, y: Any, n: int) -> None:
    x[:, :n] = x[:, :n][:, ::-1]


def swap(x: Any, y: Any, n: int) -> None:
    x[0, :n], x[1, :n] = x[1, :n] + 0, x[0, :n] + 0


def write_then_use(x: Any, y: Any, n: int) -> None:
    x[:, n] = y[:6]
    x[:, 250] = x[:, : n + 1].sum(1)


def elements(x: Any, y: Any, n: int) -> None:
    for i in range(n):
        x[2, i] = i


def recurrence(x: Any, y: Any, n: int) -> None:
    for i in range(1, n):
        x[3, i] = x[3, i - 1] * 0.5 + y[i]


def marked(x: Any, y: Any, n: int) -> None:
    x[4, :n][x[4, :n] > 2] = 0


WRITES = [add, put_column, shift_left, shift_right, turn, swap, write_then_use, elements, recurrence, marked]


def agree(got: Any, want: Any, n: int) -> None:
    """Equal, or as near as sums in another order are."""
    assert got.shape == np.shape(want), n
    assert np.allclose(got, want, rtol=1e-5, atol=1e-5), n


@pytest.mark.parametrize("name", READS)
def test_reads_at_many_sizes(name: str) -> None:
    program = READS[name]
    x, y = Tensor(ROWS).realize(), Tensor(LINE).realize()
    for number, n in enumerate(SIZES):
        GlobalCounters.reset()
        got = program(x, y, n).numpy()
        agree(got, program(ROWS, LINE, n), n)
        assert number < FIRST or GlobalCounters.compile_count == 0, n


@pytest.mark.parametrize("program", WRITES, ids=lambda f: f.__name__)
def test_writes_at_many_sizes(program: Callable[[Any, Any, int], None]) -> None:
    x, y = Tensor(ROWS).realize(), Tensor(LINE).realize()
    rows = ROWS.copy()
    for number, n in enumerate(SIZES):
        GlobalCounters.reset()
        program(x, y, n)
        program(rows, LINE, n)
        agree(x.numpy(), rows, n)
        assert number < FIRST or GlobalCounters.compile_count == 0, n


@pytest.mark.parametrize("large", [2**50, 2**41, 3 * 2**40 + 5, -(2**45)])
def test_large_integers_are_themselves_at_every_size(large: int) -> None:
    for n in (5, 6, 7, 8, 9, 50):
        t, u = Tensor.zeros(n, dtype=dtypes.int64).realize(), Tensor.zeros(n, dtype=dtypes.int64).realize()
        t[1:] = large
        for i in range(n):
            u[i] = large + i
        assert t.tolist() == [0, *[large] * (n - 1)]
        assert u.tolist() == [large + i for i in range(n)]
        assert Tensor.full((n,), large).tolist() == [large] * n
        assert (Tensor.arange(n) * large).tolist() == [i * large for i in range(n)]
        assert Tensor(np.arange(n)).realize().pad([(1, 1)], value=large)[0].item() == large


def test_functions_that_calculate_with_large_integers_are_right_at_every_size() -> None:
    for n in (5, 6, 7, 8, 9, 50):
        x = np.linspace(0, 1e30, n).astype(np.float32)
        assert np.allclose(Tensor(x).sin().numpy(), np.sin(x.astype(np.float64)), atol=1e-6)
        y = np.linspace(0.5, 3, n).astype(np.float32)
        assert np.allclose((Tensor(y) ** Tensor(y)).numpy(), y**y)


def test_which_value_is_used_is_no_size() -> None:
    xs = [Tensor(np.full(3, float(k), np.float32)).realize() for k in range(8)]
    for k in range(1, 8):
        found = [*[x.exp() for x in xs], xs[1] * xs[k]]
        found[0].realize(*found[1:])
        assert found[-1].tolist() == [float(k)] * 3


def test_a_number_of_axes_is_no_size() -> None:
    x = np.arange(3.0**6, dtype=np.float32).reshape((3,) * 6) % 7
    t = Tensor(x).realize()
    for count in range(1, 7):
        axes = tuple(range(6 - count, 6))
        apart = x - x.mean(axes, keepdims=True)
        want = apart / np.sqrt((apart * apart).mean(axes, keepdims=True) + 1e-5)
        np.testing.assert_allclose(t.layer_norm((3,) * count).numpy(), want, rtol=1e-4, atol=1e-5)
