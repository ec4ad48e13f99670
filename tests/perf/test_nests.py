"""Exact counts of nests whose writes depend on one another: in order along one axis, at once along the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.trace import GlobalCounters
from intaglio.engine.explain import sources
from intaglio.storage.flush import plans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHAPES = ((49, 65), (97, 193))
Turn = tuple[int, int]


def row_major(n: int, m: int) -> Iterator[Turn]:
    return ((i, j) for i in range(1, n) for j in range(1, m))


def column_major(n: int, m: int) -> Iterator[Turn]:
    return ((i, j) for j in range(1, m) for i in range(1, n))


def down(t: Any, x: Any, i: int, j: int) -> None:
    """Each element from the one above."""
    t[i, j] = t[i - 1, j] * 0.5 + x[i, j]


def across(t: Any, x: Any, i: int, j: int) -> None:
    """Each element from the one before."""
    t[i, j] = t[i, j - 1] * 0.5 + x[i, j]


def aslant(t: Any, x: Any, i: int, j: int) -> None:
    """Each element from two of the row above, and the first of that."""
    t[i, j] = (t[i - 1, j - 1] - t[i - 1, j]) * 0.5 + t[i - 1, 0] * x[i, j] + j


def in_two(t: Any, x: Any, i: int, j: int) -> None:
    """Two statements, the second of which reads what the first wrote."""
    t[i, j] = t[i - 1, j] * 0.5 + i
    x[i, j] = t[i, j] - x[i - 1, j]


def add_up(t: Any, x: Any, i: int, j: int) -> None:
    """Sums of columns, in one row."""
    t[0, j] += x[i, j]


def in_both(t: Any, x: Any, i: int, j: int) -> None:
    """Two statements, that depend on what is above, and on what is before."""
    t[i, j] = t[i - 1, j] * 0.5 + i
    x[i, j] = t[i, j] - x[i, j - 1]


def cost(t: Any, x: Any, i: int, j: int) -> None:
    """Each element from three neighbours: no axis is free of the others."""
    t[i, j] = (t[i - 1, j] + t[i, j - 1] - t[i - 1, j - 1]) * 0.25 + x[i, j]


def run(turn: Callable[[Any, Any, int, int], None], turns: Iterator[Turn], shape: Turn) -> tuple[str, list[str]]:
    """(what the journal says, the kernels' sources) of a nest that equals NumPy's."""
    n, m = shape
    x = np.arange(n * m, dtype=np.float32).reshape(n, m) % 7
    t = np.ones((n, m), np.float32)
    b, a = Tensor(x.copy()).realize(), Tensor.ones(n, m).realize()
    for i, j in turns:
        turn(a, b, i, j)
        turn(t, x, i, j)
    told = repr(a.journal())
    plans.clear()
    GlobalCounters.reset()
    with sources() as seen:
        assert np.array_equal(a.numpy(), t)
    assert np.array_equal(b.numpy(), x)
    assert (GlobalCounters.kernel_count, GlobalCounters.table_bytes) == (1, 0)
    return told, list(seen)


@pytest.mark.parametrize("order", [row_major, column_major])
@pytest.mark.parametrize(
    ("turn", "told"),
    [
        (down, lambda n, m: f"{n - 1} turns of {m - 1} at once"),
        (across, lambda n, m: f"{m - 1} turns of {n - 1} at once"),
        (aslant, lambda n, m: f"{n - 1} turns of {m - 1} at once"),
        (in_two, lambda n, m: f"{n - 1} turns of {m - 1} at once"),
        (add_up, lambda n, m: f"{n - 1} turns of {m - 1} at once"),
        (in_both, lambda n, m: f"one loop of {(n - 1) * (m - 1)} turns with"),
        (cost, lambda n, m: f"one loop of {(n - 1) * (m - 1)} turns with"),
    ],
)
def test_a_nest_is_one_kernel_in_order_along_the_axis_that_carries_its_dependences(
    turn: Callable[[Any, Any, int, int], None],
    told: Callable[[int, int], str],
    order: Callable[[int, int], Iterator[Turn]],
) -> None:
    lengths: set[int] = set()
    for n, m in SHAPES:
        found, texts = run(turn, order(n, m), (n, m))
        assert told(n, m) in found
        lengths.add(len(texts[0].splitlines()))
    assert len(lengths) == 1


def test_rows_that_are_as_wide_as_the_tensor_are_seen_in_one_plain_progression() -> None:
    for n, m in SHAPES:
        found, _ = run(down, ((i, j) for i in range(1, n) for j in range(m)), (n, m))
        assert f"{n - 1} turns of {m} at once" in found


def test_what_comes_before_a_nest_and_after_it_is_in_its_kernel() -> None:
    for n, m in SHAPES:
        x, t = np.arange(n * m, dtype=np.float32).reshape(n, m) % 7, np.ones((n, m), np.float32)
        b, a = Tensor(x).realize(), Tensor.ones(n, m).realize()
        for u, v in ((a, b), (t, x)):
            u[0, 0] = v[0, 0] * 3
            for i, j in row_major(n, m):
                down(u, v, i, j)
            u[n - 1, m - 1] = u[0, 0] + u[1, 1]
        assert f"{n - 1} turns of {m - 1} at once" in repr(a.journal())
        GlobalCounters.reset()
        assert np.array_equal(a.numpy(), t)
        assert GlobalCounters.kernel_count == 1


@pytest.mark.parametrize("shape", [lambda n: (n, 33), lambda n: (20, n)])
@pytest.mark.parametrize("turn", [down, across, aslant])
def test_a_nest_is_compiled_for_a_few_sizes_only(
    turn: Callable[[Any, Any, int, int], None], shape: Callable[[int], Turn]
) -> None:
    plans.clear()
    for k, size in enumerate((21, 23, 29, 36, 41, 58, 77)):
        n, m = shape(size)
        before = GlobalCounters.compile_count
        x, t = np.arange(n * m, dtype=np.float32).reshape(n, m) % 7, np.ones((n, m), np.float32)
        b, a = Tensor(x).realize(), Tensor(t).realize()
        for i, j in row_major(n, m):
            turn(a, b, i, j)
            turn(t, x, i, j)
        assert np.array_equal(a.numpy(), t)
        assert k < 4 or GlobalCounters.compile_count == before
