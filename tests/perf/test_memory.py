"""Exact peaks of memory: the work of the table of comparisons takes its inputs, its outputs and little scratch."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from benchmarks.works import MILLION, WORKS, indices, normal
from intaglio import GlobalCounters, Tensor
from intaglio.engine.devices import device_of
from intaglio.ir.node import walk
from intaglio.ops.memory import Local

if TYPE_CHECKING:
    from benchmarks.works import Draw, Work

# What is smaller here than in the table: still some megabytes, so that a buffer or an array too many would be seen.
SMALLER: Final[dict[str, Draw]] = {
    "chain of 10, 16M": normal((MILLION,), (MILLION,)),
    "sin, exp, gelu, tanh in a chain, 16M": normal((MILLION,)),
    "exp 16M": normal((MILLION,)),
    "tanh 16M": normal((MILLION,)),
    "sin 16M": normal((MILLION,)),
    **{
        f"{work} 4096²": normal((512, 4096))
        for work in (
            "sum of all", "sum of rows", "sum of columns", "argmax of rows", "softmax of rows", "layer norm of rows",
            "cumsum of rows",
        )
    },
    "matmul 2048³": normal((1024, 1024), (1024, 1024)),
    "attention 8x12x512x64, causal": normal(*[(4, 6, 512, 64)] * 3),
    "gather 1M rows of 64": indices(10_000, 10_000, (10_000, 64)),
}  # fmt: skip
BESIDE: Final = {  # bytes of buffers between kernels at most, where there are several kernels
    "sum of all 4096²": 1 << 12,  # the sums of its pieces
    "topk 100 of 1M": 1 << 10,
    "matmul bfloat16 1024³": 1 << 22,  # its factors, rounded
}
SCRATCH: Final = 2 << 20  # bytes of scratch of one thread at most
PYTHON: Final = 3 << 20  # bytes of Python's objects, and of NumPy's arrays


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_peak_is_inputs_outputs_and_scratch(work: Work) -> None:
    draw = SMALLER.get(work.name, work.draw)
    arrays = [draw(np.random.default_rng(0)) for _ in range(work.count)]
    inputs = [tuple(Tensor(a).realize() for a in own) for own in arrays]
    device = device_of("CPU")
    device._kernels.clear()
    realized(work, inputs)  # planned and compiled: that takes memory of its own
    for kernel in device._kernels.values():
        scratch = [n.op for n in walk((kernel.lowered.linear,)) if isinstance(n.op, Local)]
        assert sum(each.size * each.of.itemsize for each in scratch) <= SCRATCH
    device.allocator.collect()
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    tracemalloc.start()
    results = realized(work, inputs)
    traced = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    outputs = sum(result.numel() * result.dtype.itemsize for result in results)
    assert GlobalCounters.peak - before - outputs <= BESIDE.get(work.name, 0)
    assert traced <= PYTHON


def realized(work: Work, inputs: list[tuple[Tensor, ...]]) -> list[Tensor]:
    """The results, computed together."""
    results = [work.tensors(*own) for own in inputs]
    results[0].realize(*results[1:])
    return results


def test_values_between_kernels_lie_where_dead_ones_lay() -> None:
    widths = [*range(1000, 800, -20)]
    rng = np.random.default_rng(0)
    x = Tensor(rng.standard_normal((256, 1000), dtype=np.float32)).realize()
    weights = [Tensor(rng.standard_normal(pair, dtype=np.float32)).realize() for pair in pairwise(widths)]

    def chain() -> Tensor:
        y = x
        for w in weights:
            y = y @ w
        return y.realize()

    chain()
    device_of("CPU").allocator.collect()
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    chain()
    assert GlobalCounters.kernel_count == len(weights)
    assert GlobalCounters.peak - before <= 4 * 256 * (980 + 960 + 820)


@pytest.mark.parametrize("causal", [False, True])
def test_scores_of_many_keys_are_never_all_there(causal: bool) -> None:
    draw = np.random.default_rng(0)
    query, key, value = (
        Tensor(draw.standard_normal((n, 8), dtype=np.float32)).realize() for n in (32, 100_000, 100_000)
    )
    device = device_of("CPU")
    device._kernels.clear()
    gc.collect()  # what other tests left in cycles is not let go of in between
    device.allocator.collect()
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    out = query.scaled_dot_product_attention(key, value, is_causal=causal).realize()
    assert (GlobalCounters.kernel_count, GlobalCounters.peak - before) == (1, out.numel() * 4)
    for kernel in device._kernels.values():
        scratch = [n.op for n in walk((kernel.lowered.linear,)) if isinstance(n.op, Local)]
        assert sum(each.size * each.of.itemsize for each in scratch) <= SCRATCH
