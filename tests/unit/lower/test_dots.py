"""Products of few rows by transposed matrices, by one row too: sums along memory, the same whoever computes them."""

from __future__ import annotations

from array import array

import numpy as np
import pytest

from intaglio.core.dtypes import dtypes
from intaglio.core.target import Target
from intaglio.lower.dots import COLUMNS
from intaglio.lower.kernel import lower
from intaglio.ops.elementwise import add, cast, mul
from intaglio.ops.loop import Prefetch, sink
from intaglio.ops.memory import Load
from intaglio.ops.movement import expand, reshape
from intaglio.ops.reduce import reduce
from intaglio.render import llvm
from intaglio.runtime.compiler import host_target
from tests.unit.lower.running import Operands, compiler, function, numbers, run


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 9, 15])
@pytest.mark.parametrize(("columns", "depth"), [(1, 70), (6, 1), (37, 33), (64, 500)])
def test_every_number_is_the_sum_of_its_row_and_column(rows: int, columns: int, depth: int) -> None:
    a, b, c = numbers((rows, depth)), numbers((columns, depth), seed=1), numbers((rows, columns), seed=2)
    out = np.full((rows, columns), 99, np.float32)
    k = Operands()
    shape = (rows, columns, depth)
    left, right = reshape(k.read(a), (rows, 1, depth)), reshape(k.read(b), (1, columns, depth))
    total = add(reduce("sum", mul(expand(left, shape), expand(right, shape)), (2,)), k.read(c))
    lowered = run(k, k.write(out, total))
    assert np.array_equal(out, a @ b.T + c)
    assert not [n for n in lowered.linear.src if isinstance(n.op, Load) and n.src[1].shape]  # nothing is gathered


@pytest.mark.parametrize("rows", [1, 6])
def test_threads_change_no_bit(rows: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((rows, 800), np.float32), rng.standard_normal((2001, 800), np.float32)
    results: list[bytes] = []
    for threads in (1, 2):
        out = np.full((rows, 2001), 99, np.float32)
        k = Operands()
        shape = (rows, 2001, 800)
        left, right = reshape(k.read(a), (rows, 1, 800)), reshape(k.read(b), (1, 2001, 800))
        kernel = sink(k.write(out, reduce("sum", mul(expand(left, shape), expand(right, shape)), (2,))))
        lowered = lower(kernel, host_target(threads))
        assert (lowered.chunks > 1) == (threads > 1)
        address, _ = compiler().load(llvm.render(lowered.linear, host_target(threads)), lowered.name)
        slots = array("Q", (x.ctypes.data for x in k.arrays))
        for chunk in reversed(range(lowered.chunks)):
            function(address, lowered.linear)(slots.buffer_info()[0], chunk, chunk + 1)
        np.testing.assert_allclose(out, a.astype(np.float64) @ b.T, atol=1e-4)
        results.append(out.tobytes())
    assert len(set(results)) == 1


def test_the_next_columns_are_asked_for_ahead() -> None:
    def lines(matrix: np.ndarray, rows: int, level2: int) -> int:
        """How many lines the innermost loop asks for, before there is a rest of columns."""
        columns, depth = matrix.shape
        k = Operands()
        shape = (rows, columns, depth)
        left = expand(reshape(k.read(numbers((rows, depth))), (rows, 1, depth)), shape)
        right = expand(reshape(cast(k.read(matrix), dtypes.float32), (1, columns, depth)), shape)
        store = k.write(np.zeros((rows, columns), np.float32), reduce("sum", mul(left, right), (2,)))
        lowered = lower(sink(store), Target(vector_bytes=64, level2=level2))
        return sum(isinstance(n.op, Prefetch) for n in lowered.linear.src)

    wide, narrow = np.zeros((64, 512), np.float32), np.zeros((64, 512), np.uint8)
    assert lines(wide, 4, level2=1 << 16) == COLUMNS
    assert lines(wide, 4, level2=wide.nbytes) == COLUMNS  # more is done with each line than to take it
    assert lines(narrow, 4, level2=wide.nbytes) == COLUMNS
