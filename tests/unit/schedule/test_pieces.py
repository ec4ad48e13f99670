"""Large reductions to few values: in pieces, of any shape, as exact as NumPy's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor
from intaglio.core.dtypes import dtypes
from intaglio.core.size import NOMINAL
from intaglio.ir.view import View
from intaglio.ops.memory import BufferRef, buffer, window
from intaglio.ops.movement import reshape
from intaglio.ops.reduce import reduce
from intaglio.schedule.pieces import LARGE, in_pieces, pieces_of

SHAPES = [(LARGE,), (3, LARGE), (LARGE, 2), (2048, 1024), (64, 32, 1, 1024), (1, LARGE + 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_large_sum_is_two_kernels(shape: tuple[int, ...], seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal(shape, np.float32)
    t = Tensor(x).realize()
    GlobalCounters.reset()
    got = t.sum().item()
    assert GlobalCounters.kernel_count == 2
    exact = math.fsum(x.ravel().tolist())
    assert abs(got - exact) <= 2.0**-24 * math.log2(x.size) * np.abs(x).sum(dtype=np.float64)
    assert t.max().item() == x.max()
    assert t.min(-1).tolist()[:4] == x.min(-1).tolist()[:4] if x.ndim > 1 else True


def test_a_large_sum_is_in_pieces_whatever_sizes_came_before(seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal(LARGE + 64, np.float32)
    t = Tensor(x).realize()
    compiled: list[int] = []
    for n in range(LARGE // 2, LARGE // 2 + 20):
        GlobalCounters.reset()
        assert abs(t[:n].sum().item() - x[:n].sum(dtype=np.float64)) < 0.1
        compiled.append(GlobalCounters.compile_count)
    assert compiled[-5:] == [0] * 5  # by a kernel for any size
    for n, kernels in ((LARGE - 2, 1), (LARGE, 2), (LARGE + 2, 2)):
        GlobalCounters.reset()
        assert abs(t[:n].sum().item() - x[:n].sum(dtype=np.float64)) < 0.1
        assert GlobalCounters.kernel_count == kernels


def test_what_cannot_be_cut_stays() -> None:
    prime = (1 << 22) + 15
    x = np.ones(prime, np.float32)
    t = Tensor(x).realize()
    GlobalCounters.reset()
    assert (t.sum().item(), GlobalCounters.kernel_count) == (prime, 1)


def test_what_many_values_need_is_computed_once() -> None:
    x = np.random.default_rng(0).random((2048, 1024), np.float32)
    t = Tensor(x).realize()
    GlobalCounters.reset()
    got = (t / t.sum()).numpy()
    assert GlobalCounters.kernel_count == 3
    np.testing.assert_allclose(got, x / x.sum(dtype=np.float64), rtol=1e-5)


def test_a_nominal_size_is_not_cut() -> None:
    ref = BufferRef(4 * (NOMINAL + 1), "CPU")
    x = window(View.contiguous(dtypes.float32, (NOMINAL + 1,)), buffer(ref))
    total = reduce("sum", x, (0,))
    assert in_pieces(total, lambda _: False) is total
    total = reduce("sum", reshape(x, (1, NOMINAL + 1)), (0, 1))
    assert pieces_of(in_pieces(total, lambda _: False), lambda _: False) == []


@pytest.mark.parametrize("n", [1000, 4097, 100_000, LARGE + 3, 2 * LARGE])
def test_sums_are_as_exact_as_pairwise_ones(n: int, seed: int) -> None:
    x = np.random.default_rng(seed).random(n, np.float32)
    exact = math.fsum(x.tolist())
    ours, pairwise = (abs(float(s) - exact) for s in (Tensor(x).sum().item(), x.sum()))
    assert ours <= max(pairwise, 4 * float(np.spacing(np.float32(exact))))
