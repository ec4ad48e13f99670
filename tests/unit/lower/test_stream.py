"""Reductions down the columns of large matrices: every column once, in the order of the rows, whatever the blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio.core.dtypes import dtypes
from intaglio.core.target import Target
from intaglio.ir.interpret import run_linear
from intaglio.lower import stream
from intaglio.lower.kernel import lower
from intaglio.lower.stream import COMPUTED_FEW, FEW, PRODUCT_ROWS, UNROLL
from intaglio.lower.words import ROWS
from intaglio.ops.elementwise import add, cast, mul
from intaglio.ops.loop import Prefetch, sink
from intaglio.ops.memory import Local, const
from intaglio.ops.movement import expand, permute, reshape
from intaglio.ops.reduce import Dot, reduce
from intaglio.runtime.compiler import host_target
from tests.unit.lower.running import Operands, numbers
from tests.unit.lower.running import run as run_alone

if TYPE_CHECKING:
    from intaglio.ir.node import Node

SMALL = 1 << 10  # caches for which all matrices here are large


def run(k: Operands, *statements: Node, level2: int, threads: int) -> bool:
    """Run statements, the last chunk first; gives whether the results were kept in scratch."""
    lowered = run_alone(k, *statements, target=replace(host_target(threads), level1=level2, level2=level2))
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
    target = Target(vector_bytes=64, level1=SMALL, level2=SMALL, threads=2)
    statement = k.write(np.zeros(columns, np.float32), reduce("sum", k.read(np.zeros((64, columns), np.float32)), (0,)))
    assert lower(sink(statement), target).chunks == chunks


def test_batches_and_more_than_one_axis_of_rows_are_streamed() -> None:
    a = numbers((3, 10, 2048))
    for axes in ((1,), (0, 1), (0,)):
        out = np.full(np.add.reduce(a, axes).shape, 99, np.float32)
        k = Operands()
        assert run(k, k.write(out, reduce("sum", k.read(a), axes)), level2=SMALL, threads=2)
        assert np.array_equal(out, a.sum(axes))


@pytest.mark.parametrize("height", [1, 2, FEW, COMPUTED_FEW])
@pytest.mark.parametrize("shape", [(40, 1100), (333, 257), (9, 128)])
def test_products_of_few_rows_are_those_of_one_row(height: int, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    depth, columns = shape
    x, a, b = (rng.standard_normal(s, np.float32) for s in ((height, depth), shape, (columns,)))
    a[depth // 2, ::7], x[-1, 0] = np.nan, np.inf
    results: list[bytes] = []
    for level2, threads in ((1 << 30, 1), (SMALL, 1), (SMALL, 2)):
        out = np.full((height, columns), 99, np.float32)
        k = Operands()
        left = expand(reshape(k.read(x), (height, 1, depth)), (height, columns, depth))
        matrix = mul(k.read(a), expand(const(dtypes.float32, 2.0), shape)) if height > FEW else k.read(a)
        right = expand(reshape(permute(matrix, (1, 0)), (1, columns, depth)), (height, columns, depth))
        bias = expand(reshape(k.read(b), (1, columns)), out.shape)
        value = add(reduce("sum", mul(left, right), (2,)), bias)
        assert run(k, k.write(out, value), level2=level2, threads=threads) == (level2 == SMALL)
        results.append(out.tobytes())
    assert len(set(results)) == 1
    for m in range(height):
        alone = np.full(columns, 99, np.float32)
        k = Operands()
        matrix = mul(k.read(a), expand(const(dtypes.float32, 2.0), shape)) if height > FEW else k.read(a)
        weights = expand(reshape(k.read(x[m].copy()), (1, depth)), (columns, depth))
        total = add(reduce("sum", mul(weights, permute(matrix, (1, 0))), (1,)), k.read(b))
        run(k, k.write(alone, total), level2=SMALL, threads=1)
        assert np.array_equal(alone, out[m], equal_nan=True)


@pytest.mark.parametrize("height", [1, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_products_by_matrices_of_their_own_run_one_after_the_other(height: int, threads: int) -> None:
    depth, columns = 90, 1000
    x, matrices = numbers((height, depth)), [numbers((depth, columns), seed=k) for k in range(1, 8)]

    def outcome(k: Operands, right: list[np.ndarray], level2: int = SMALL) -> tuple[int, int]:
        """The numbers of scratch arrays and chunks, where all is right."""
        target = replace(host_target(threads), level1=SMALL, level2=level2)
        results = [np.full((height, columns), 99, np.float32) for _ in right]
        shape = height, columns, depth
        left = expand(reshape(k.read(x), (height, 1, depth)), shape)
        read = {id(m): k.read(m) for m in right}
        products = [mul(left, expand(reshape(permute(read[id(m)], (1, 0)), (1, columns, depth)), shape)) for m in right]
        stores = [
            k.write(out, add(reduce("sum", p, (2,)), expand(const(dtypes.float32, n), (height, columns))))
            for n, (out, p) in enumerate(zip(results, products, strict=True))
        ]
        lowered = run_alone(k, *stores, target=target)
        for n, (out, m) in enumerate(zip(results, right, strict=True)):
            assert np.array_equal(out, x @ m + n)
        return len({s for n in lowered.linear.src for s in n.src if isinstance(s.op, Local)}), lowered.chunks

    assert outcome(Operands(), matrices) == (1, threads)  # all in the same scratch
    half = matrices[0].nbytes // 2
    assert outcome(Operands(), [matrices[0], matrices[0]], half)[0] == 0  # one matrix, of which a cache holds a part
    assert outcome(Operands(), [matrices[0], matrices[0]], half - 1)[0] == 1


def test_memory_is_asked_for_ahead() -> None:
    def lines(matrix: np.ndarray, height: int, level2: int = SMALL) -> int:
        """How many lines each turn asks for."""
        depth, columns = matrix.shape
        k = Operands()
        value = cast(permute(k.read(matrix), (1, 0)), dtypes.float32)
        left = expand(reshape(k.read(numbers((height, depth))), (height, 1, depth)), (height, columns, depth))
        right = expand(reshape(value, (1, columns, depth)), (height, columns, depth))
        store = k.write(np.zeros((height, columns), np.float32), reduce("sum", mul(left, right), (2,)))
        lowered = lower(sink(store), Target(vector_bytes=64, level1=SMALL, level2=level2))
        return sum(isinstance(n.op, Prefetch) for n in lowered.linear.src)

    wide, narrow = np.zeros((64, 1024), np.float32), np.zeros((64, 1024), np.uint8)
    machine = Target()
    assert lines(wide, 1) == UNROLL * machine.streams
    assert lines(wide, 1, level2=wide.nbytes) == 0  # it may be there already
    assert lines(np.zeros((16, machine.followed // 4), np.float32), 1) == 0
    assert lines(wide, 2) == UNROLL * PRODUCT_ROWS
    assert (
        lines(narrow, 1, level2=1 << 30) == lines(narrow, 1) == machine.streams
    )  # one of each row, whose numbers make four vectors
    assert lines(narrow, 2) == PRODUCT_ROWS


def test_the_interpreter_asks_for_nothing() -> None:
    x, a, out = numbers((2, 12)), numbers((12, 128)), np.zeros((2, 128), np.float32)
    k = Operands()
    left = expand(reshape(k.read(x), (2, 1, 12)), (2, 128, 12))
    right = expand(reshape(permute(k.read(a), (1, 0)), (1, 128, 12)), (2, 128, 12))
    store = k.write(out, reduce("sum", mul(left, right), (2,)))
    lowered = lower(sink(store), Target(vector_bytes=64, level1=SMALL, level2=SMALL))
    assert any(isinstance(n.op, Prefetch) for n in lowered.linear.src)
    run_linear(lowered.linear, [array.ctypes.data for array in k.arrays], lowered.chunks)
    assert np.array_equal(out, x @ a)


def test_bytes_by_bytes_are_multiplied_by_words() -> None:
    x, a = numbers((ROWS, 256)).astype(np.uint8), numbers((256, 1024)).astype(np.uint8)
    out = np.zeros((ROWS, 1024), np.int32)
    k = Operands()
    left = expand(reshape(cast(k.read(x), dtypes.int32), (ROWS, 1, 256)), (ROWS, 1024, 256))
    right = expand(reshape(cast(permute(k.read(a), (1, 0)), dtypes.int32), (1, 1024, 256)), (ROWS, 1024, 256))
    target = Target(vector_bytes=64, level1=SMALL, level2=SMALL, features=frozenset({"avx512vnni"}))
    lowered = lower(sink(k.write(out, reduce("sum", mul(left, right), (2,)))), target)
    assert any(isinstance(n.op, Dot) for n in lowered.linear.src)


def test_results_stay_in_the_first_cache() -> None:
    assert host_target(1).level1 >= stream.COLUMNS
