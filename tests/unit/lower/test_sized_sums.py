"""A sum has the same bits by a kernel for one size and by a kernel for any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor
from intaglio.storage.flush import plans

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = [*range(8, 16), *range(16, 140, 3), 255, 256, 257, 4096, 4097, 6001, 20_000]


def rows(n: int) -> bytes:
    """The sums of three rows of n numbers."""
    return (Tensor(np.random.default_rng(n).standard_normal((3, n)).astype(np.float32)) * 1.5).sum(1).numpy().tobytes()


def whole(n: int) -> bytes:
    """The sum of n numbers."""
    return (Tensor(np.random.default_rng(n).standard_normal(n).astype(np.float32)) * 1.5).sum().numpy().tobytes()


def columns(n: int) -> bytes:
    """The sums of n numbers down each of 20 columns."""
    return Tensor(np.random.default_rng(n).standard_normal((n, 20)).astype(np.float32)).sum(0).numpy().tobytes()


def apart(n: int) -> bytes:
    """The sums over two axes that do not lie together, one of n."""
    x = np.random.default_rng(n).standard_normal((n, 3, 20)).astype(np.float32)
    return Tensor(x).sum((0, 2)).numpy().tobytes()


@pytest.mark.parametrize("program", [rows, whole, columns, apart])
def test_a_sum_by_a_kernel_for_any_size_has_the_bits_of_one_for_its_own(program: Callable[[int], bytes]) -> None:
    alone: list[bytes] = []
    for n in SIZES:
        plans.clear()
        alone.append(program(n))
    plans.clear()
    GlobalCounters.reset()
    assert [program(n) for n in SIZES] == alone
    assert GlobalCounters.plan_count < len(SIZES) / 2
