"""Exact peaks of memory: the work of the table of comparisons takes its inputs, its outputs and little scratch."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from benchmarks.works import MILLION, WORKS, indices, normal
from intaglio import Context, GlobalCounters, Tensor
from intaglio.engine.devices import device_of
from intaglio.engine.heirs import LEAST
from intaglio.ir.node import walk
from intaglio.ops.memory import Local

if TYPE_CHECKING:
    from collections.abc import Callable

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


def used(work: Callable[[], object]) -> int:
    """The bytes that some work has in use at most, beside those before it."""
    gc.collect()
    device_of("CPU").allocator.collect()
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    work()
    return GlobalCounters.peak - before


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [LEAST, LEAST + 1, LEAST + 77])
def test_an_array_that_is_computed_from_itself_is_one_array(count: int, threads: int, dtype: type[np.generic]) -> None:
    numbers = (np.arange(count) % 101).astype(dtype)
    held = [Tensor(numbers).realize()]

    def step() -> None:
        x = held.pop()
        x = (100 - x) * 1
        held.append(x)
        del x
        held[0].realize()

    with Context(threads=threads):
        assert used(step) == used(step) == used(step) == 0
        assert np.array_equal(held[0].numpy(), 100 - numbers)


KINDS: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "beside a turned one": lambda x, other: x * 2 + other.T,
    "beside taken rows": lambda x, other: x - other[Tensor(np.arange(1024)[::-1].copy())],
    "beside every second": lambda x, other: x.reshape(-1)[:] + other.tile((1, 2))[:, ::2].reshape(-1),
    "large angles": lambda x, other: (x * 1e6).sin() + other,
    "long": lambda x, other: (x.exp().tanh() * other).erf().atan2(x),
    "of words": lambda x, other: (x.bitcast("int32") >> 3) ^ 7,
    "chosen": lambda x, other: (x > other).where(x.abs(), other[0]),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_over_has_the_same_bits(kind: str, threads: int) -> None:
    arrays = np.random.default_rng(0).standard_normal((2, 1024, 1024), dtype=np.float32)
    x, other = (Tensor(array).realize() for array in arrays)
    with Context(threads=threads):
        expected = KINDS[kind](x, other).numpy()
        held, found = [x], list[Tensor]()
        del x
        assert used(lambda: found.append(KINDS[kind](held.pop(), other).realize())) < 1 << 16
        assert np.array_equal(found[0].numpy(), expected, equal_nan=True)


def test_parameters_that_are_stepped_are_written_over() -> None:
    draw = np.random.default_rng(0)
    shapes = [(1024, 1024), (2048, 512), (512, 2049)]
    before, slopes = ([draw.standard_normal(shape, dtype=np.float32) for shape in shapes] for _ in range(2))
    parameters, grads = ([Tensor(array).realize() for array in arrays] for arrays in (before, slopes))

    def step() -> None:
        for k, grad in enumerate(grads):
            parameters[k] = parameters[k] - 0.1 * grad
        parameters[0].realize(*parameters[1:])

    assert used(step) == used(step) == 0
    for parameter, array, slope in zip(parameters, before, slopes, strict=True):
        assert np.allclose(parameter.numpy(), array - 0.2 * slope, rtol=1e-5, atol=1e-5)


def test_sizes_of_one_kernel_are_written_over() -> None:
    held: list[Tensor] = []

    def step() -> None:
        y = held.pop() * 3 + 0.25
        held.append(y.realize())

    for count in range(LEAST // 4, LEAST // 4 + 12 * 1001, 1001):  # the last ones by a kernel for any size
        numbers = np.random.default_rng(0).random(count, dtype=np.float32)
        held[:] = [Tensor(numbers).realize()]
        assert used(step) == 0
        assert np.allclose(held[0].numpy(), numbers * 3 + 0.25)


def test_an_array_that_is_still_asked_for_is_not_written_over() -> None:
    numbers = np.random.default_rng(0).random(LEAST, dtype=np.float32)
    x = Tensor(numbers).realize()
    assert used(lambda: (x * 2).realize()) == numbers.nbytes
    assert np.array_equal(x.numpy(), numbers)
