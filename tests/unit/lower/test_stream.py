"""Reductions down the columns of large matrices: every column once, in the order of the rows, whatever the blocks."""

from __future__ import annotations

from array import array
from dataclasses import replace

import numpy as np
import pytest

from intaglio.core.target import Target
from intaglio.lower import stream
from intaglio.lower.kernel import lower
from intaglio.ops.elementwise import add, mul
from intaglio.ops.loop import sink
from intaglio.ops.memory import Local
from intaglio.ops.movement import expand, permute, reshape
from intaglio.ops.reduce import reduce
from intaglio.render import llvm
from intaglio.runtime.compiler import host_target
from tests.unit.lower.running import SIGNATURE, Operands, compiler, numbers

SMALL = 1 << 10  # a second cache for which all matrices here are large


def run(k: Operands, *statements: object, level2: int, threads: int) -> bool:
    """Run statements, the last chunk first; gives whether the results were kept in scratch."""
    target = replace(host_target(threads), level2=level2)
    lowered = lower(sink(*statements), target)  # pyright: ignore[reportArgumentType]
    address, _ = compiler().load(llvm.render(lowered.linear, target), lowered.name)
    slots = array("Q", (x.ctypes.data for x in k.arrays))
    for chunk in reversed(range(lowered.chunks)):
        SIGNATURE(address)(slots.buffer_info()[0], chunk, chunk + 1)
    return any(isinstance(s.op, Local) for n in lowered.linear.src for s in n.src)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("shape", [(1, 1024), (7, 1025), (8, 3000), (33, 1031), (17, 20000)])
def test_every_column_is_reduced(shape: tuple[int, int], kind: str) -> None:
    a = numbers(shape)
    out = np.full(shape[1], 99, np.float32)
    k = Operands()
    streamed = run(k, k.write(out, reduce(kind, k.read(a), (0,))), level2=SMALL, threads=2)
    assert streamed == (shape[0] > 1)
    assert np.array_equal(out, getattr(np, kind)(a, axis=0))


@pytest.mark.parametrize("shape", [(40, 1100), (333, 2049)])
def test_blocks_and_threads_change_no_bit(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    depth, columns = shape
    a, x, b = (rng.standard_normal(s, np.float32) for s in (shape, (depth,), (columns,)))
    results: list[bytes] = []
    for level2, threads in ((1 << 30, 1), (SMALL, 1), (SMALL, 2)):
        out = np.full(columns, 99, np.float32)
        k = Operands()
        weights = expand(reshape(k.read(x), (1, depth)), (columns, depth))
        total = add(reduce("sum", mul(weights, permute(k.read(a), (1, 0))), (1,)), k.read(b))
        assert run(k, k.write(out, total), level2=level2, threads=threads) == (level2 == SMALL)
        np.testing.assert_allclose(out, x.astype(np.float64) @ a + b, atol=1e-4)
        results.append(out.tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize(("columns", "chunks"), [(512, 2), (768, 2), (3072, 2), (4096, 4)])
def test_each_thread_has_as_many_chunks(columns: int, chunks: int) -> None:
    k = Operands()
    target = Target(vector_bytes=64, level2=SMALL, threads=2)
    statement = k.write(np.zeros(columns, np.float32), reduce("sum", k.read(np.zeros((64, columns), np.float32)), (0,)))
    assert lower(sink(statement), target).chunks == chunks


def test_batches_and_more_than_one_axis_of_rows_are_streamed() -> None:
    a = numbers((3, 10, 2048))
    for axes in ((1,), (0, 1), (0,)):
        out = np.full(np.add.reduce(a, axes).shape, 99, np.float32)
        k = Operands()
        assert run(k, k.write(out, reduce("sum", k.read(a), axes)), level2=SMALL, threads=2)
        assert np.array_equal(out, a.sum(axes))


def test_results_stay_in_the_first_cache() -> None:
    assert host_target(1).level1 >= stream.COLUMNS
