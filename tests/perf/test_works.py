"""Exact kernels and bytes moved by the work of the table of comparisons: memory is read once, and written once.

Bytes are those of the kernels' views, each counted once for a kernel. They are known from the plan, which no machine
and no number of threads changes. What NumPy does for sorting is not among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from benchmarks.works import MILLION, SMALL, WORKS
from intaglio import GlobalCounters, Tensor
from tests.perf.test_memory import SMALLER, realized

if TYPE_CHECKING:
    from benchmarks.works import Work

KERNELS: Final = {  # of what is not one kernel
    "sum of all 4096²": 2,  # the sums of pieces, and the sum of those
    "matmul 64³": SMALL,  # products of their own
    "matmul 128³": SMALL,
    "matmul bfloat16 1024³": 3,  # one rounds each factor
    "scatter-add 1M into 64k": 2,  # one fills the result with zeros
}
BESIDE: Final = {  # bytes beside those of inputs and outputs
    "sum of all 4096²": 2 * 4 * 512,  # the sum of each of 512 pieces, written and read
    "matmul bfloat16 1024³": 2 * (2 + 2) * 1024**2,  # two factors of bfloat16, written and read
    "scatter-add 1M into 64k": 4 * MILLION,  # each number is written to its place
    "topk 100 of 1M": 100 * (4 + 8) - 4 * MILLION,  # the largest at their places: NumPy looks through the input
}


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_memory_is_read_once_and_written_once(work: Work) -> None:
    draw = SMALLER.get(work.name, work.draw)
    arrays = [draw(np.random.default_rng(0)) for _ in range(work.count)]
    inputs = [tuple(Tensor(a).realize() for a in own) for own in arrays]
    for again in (False, True):
        GlobalCounters.reset()
        results = realized(work, inputs)
        assert (GlobalCounters.kernel_count, GlobalCounters.launch_count) == (KERNELS.get(work.name, 1), 1)
        moved = sum(a.nbytes for own in arrays for a in own) + sum(result.nbytes for result in results)
        assert GlobalCounters.global_mem == moved + BESIDE.get(work.name, 0)
        if again:
            assert (GlobalCounters.plan_count, GlobalCounters.compile_count) == (0, 0)


def test_the_table_of_exceptions_names_work_that_is_there() -> None:
    assert {*KERNELS, *BESIDE} <= {work.name for work in WORKS}
