"""How sort, argsort, topk, unique and median grow: no faster than the number of elements, but for NumPy's own sorts.

What kernels do is counted by the interpreter, whose lines of Python are their turns. On the CPU no line runs for an
element, so NumPy is called as often for many elements as for few; each of its sorts takes n log n, as it states.
"""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor
from intaglio.engine.devices import device_of
from tests.perf.test_overheads import lines

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS: Final[dict[str, Callable[[Tensor], object]]] = {
    "sort": lambda x: x.sort()[0].realize(),
    "sort, with places": lambda x: Tensor.realize(*x.sort(descending=True)),
    "argsort": lambda x: x.argsort().realize(),
    "topk": lambda x: x.topk(10)[0].realize(),
    "topk of half": lambda x: x.topk(x.numel() // 2)[0].realize(),
    "unique": lambda x: x.unique(),
    "unique, with all": lambda x: x.unique(return_inverse=True, return_counts=True),
    "median": lambda x: x.median().realize(),
}
NUMBERS: Final[dict[str, Callable[[int], np.ndarray]]] = {
    "random": lambda n: np.random.default_rng(0).standard_normal(n, np.float32),
    "equal": lambda n: np.ones(n, np.float32),
    "long": lambda n: np.random.default_rng(0).integers(-(1 << 40), 1 << 40, n),
}
each_program = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)


@pytest.mark.parametrize("kind", ["random", "long"])
@each_program
def test_kernels_take_turns_in_proportion(program: Callable[[Tensor], object], kind: str) -> None:
    inputs = [Tensor(NUMBERS[kind](n), device="PYTHON").realize() for n in (64, 128, 256)]
    few, some, many = (lines(lambda x=x: program(x)) for x in inputs)
    assert some - few > 64  # the interpreter's lines are among them
    assert abs((many - some) - 2 * (some - few)) <= 0.02 * many  # 128 elements more take twice what 64 more do


@pytest.mark.parametrize("numbers", NUMBERS.values(), ids=NUMBERS)
@each_program
def test_bytes_are_in_proportion_and_lines_are_as_many(
    program: Callable[[Tensor], object], numbers: Callable[[int], np.ndarray]
) -> None:
    kernels: set[tuple[int, int]] = set()
    moved: list[int] = []
    peaks: list[int] = []
    ran: list[int] = []
    for n in (1 << 14, 1 << 15, 1 << 16):
        x = Tensor(numbers(n)).realize()
        ran.append(lines(lambda x=x: program(x)))
        device_of("CPU").allocator.collect()
        GlobalCounters.reset()
        before = GlobalCounters.mem_used
        tracemalloc.start()
        program(x)
        arrays = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        kernels.add((GlobalCounters.kernel_count, GlobalCounters.plan_count))
        moved.append(GlobalCounters.global_mem)
        peaks.append(GlobalCounters.peak - before + arrays)
    assert len(kernels) == 1
    assert moved[2] - moved[1] == 2 * (moved[1] - moved[0])
    assert peaks[2] <= 2.1 * peaks[1] <= 2.1 * 2.1 * peaks[0]
    assert max(ran) <= 1.1 * min(ran)  # a look at bounds, a larger sample of more elements
