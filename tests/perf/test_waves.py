"""Exact counts of waves: independent kernels that threads share, and what memory that takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Context, GlobalCounters, Tensor
from intaglio.engine import devices
from intaglio.engine.devices import device_of
from intaglio.engine.waves import ROOM
from intaglio.runtime.launch import Row, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.runtime.compiler import Compiler
    from intaglio.runtime.launch import Wave

DRAW = np.random.default_rng(0)


def matrices(count: int, *shape: int) -> list[Tensor]:
    """Matrices in memory."""
    return [Tensor(DRAW.standard_normal(shape, dtype=np.float32)).realize() for _ in range(count)]


def together(values: list[Tensor]) -> list[Tensor]:
    """Values realized by one call."""
    return [values[0].realize(*values[1:]), *values[1:]]


def counts(work: Callable[[], object], threads: int = 2) -> tuple[int, int, int]:
    """(kernels, native calls as the program sees them, waves) of work that has been planned."""
    with Context(threads=threads):
        work()
        GlobalCounters.reset()
        work()
    return GlobalCounters.kernel_count, GlobalCounters.launch_count, GlobalCounters.wave_count


@pytest.mark.parametrize("n", [64, 128, 256])
def test_products_realized_together_are_one_wave(n: int) -> None:
    xs = matrices(20, n, n)
    assert counts(lambda: together([x @ xs[0] for x in xs])) == (20, 1, 1)
    assert counts(lambda: together([x @ xs[0] for x in xs]), threads=1) == (20, 1, 0)


def test_small_products_in_a_row_are_launches_of_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Row] = []

    class Noted(Table):
        def __init__(self, compiler: Compiler, given: Sequence[Row], waves: Sequence[Wave] = ()) -> None:
            rows.extend(given)
            super().__init__(compiler, given, waves)

    monkeypatch.setattr(devices, "Table", Noted)
    xs, w = matrices(20, 48, 48), matrices(1, 48, 48)[0]
    results = together([x @ w for x in xs])
    assert [row.series for row in rows] == ([3] * 20 if device_of("CPU").target.vector_bytes else [0] * 20)
    assert len({row.address for row in rows}) == 1
    assert all(np.allclose(y.numpy(), x.numpy() @ w.numpy(), atol=1e-4) for x, y in zip(xs, results, strict=True))


def test_products_that_follow_from_one_another_are_no_wave() -> None:
    x, w = matrices(2, 128, 128)

    def chain() -> Tensor:
        y = x
        for _ in range(20):
            y = y @ w * 0.1
        return y.realize()

    assert counts(chain)[1:] == (1, 0)


def test_values_with_one_between_are_chains() -> None:
    x, w = matrices(1, 128, 64)[0], matrices(1, 64, 128)[0]
    assert counts(lambda: together([(x * k) @ w for k in range(3, 23)])) == (40, 1, 1)


def test_what_attention_needs_runs_beside() -> None:
    x, *weights = matrices(4, 160, 160)

    def attended() -> Tensor:
        query, key, value = (x.layer_norm(160) @ w for w in weights)
        return (query.tanh() @ key.T).softmax(-1) @ value

    # the norm and the queries; the keys, and beside them the values; attention
    assert counts(lambda: attended().realize()) == (4, 1, 1)


def test_few_small_kernels_are_no_wave() -> None:
    xs = matrices(20, 16, 16)
    assert counts(lambda: together([x @ xs[0] for x in xs])) == (20, 1, 0)


def test_waves_take_little_more_memory() -> None:
    x, w = matrices(1, 256, 64)[0], matrices(1, 64, 256)[0]
    count = 60
    results, between = count * w.numel() * 16, x.numel() * 4
    assert count * between > 3 * ROOM

    def peak(threads: int) -> int:
        with Context(threads=threads):
            together([(x * k) @ w for k in range(3, 3 + count)])
            device_of("CPU").allocator.collect()
            GlobalCounters.reset()
            before = GlobalCounters.mem_used
            together([(x * k) @ w for k in range(3, 3 + count)])
            return GlobalCounters.peak - before

    assert peak(1) - results <= ROOM + 2 * between
    assert peak(2) == peak(1)
