"""Work grows with the length of a program, no faster: counted in calls, which are the same on every run."""

from __future__ import annotations

import cProfile
import gc
import pstats
import weakref
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor
from intaglio.engine.devices import device_of

if TYPE_CHECKING:
    from collections.abc import Callable


def calls(work: Callable[[], object]) -> int:
    """How many function calls some work makes."""
    profile = cProfile.Profile()
    profile.enable()
    work()
    profile.disable()
    return pstats.Stats(profile).total_calls  # pyright: ignore[reportAttributeAccessIssue] -- set when it is made


def chain(length: int) -> Tensor:
    """x = x * a + b, over and over."""
    a, b = Tensor([0.5] * 8).realize(), Tensor([1.0] * 8).realize()
    x = a
    for _ in range(length):
        x = x * a + b
    return x


def writes(length: int) -> Tensor:
    """Elements written one by one from those of another tensor."""
    x = Tensor(np.arange(length, dtype=np.float32))
    t = Tensor.empty(length)
    for i in range(length):
        t[i] = x[i] * 2 + i
    return t


def recurrence(length: int) -> Tensor:
    """Each element from the one before."""
    t = Tensor.zeros(length + 1)
    for i in range(length):
        t[i + 1] = t[i] * 0.5 + 1
    return t


PROGRAMS = pytest.mark.parametrize("program", [chain, writes, recurrence], ids=lambda f: f.__name__)


@PROGRAMS
def test_a_new_program_takes_calls_in_proportion(program: Callable[[int], Tensor]) -> None:
    program(999).realize()
    few = calls(lambda: program(1000).realize())
    assert calls(lambda: program(10_000).realize()) <= 11 * few


@PROGRAMS
def test_a_program_of_a_known_structure_takes_calls_in_proportion(program: Callable[[int], Tensor]) -> None:
    program(500).realize()
    few = calls(lambda: program(500).realize())
    program(5000).realize()
    assert calls(lambda: program(5000).realize()) <= 11 * few


def test_pending_elements_are_no_objects_for_the_garbage_collector() -> None:
    writes(8).realize()
    held: list[Tensor] = []
    counts: list[int] = []
    for length in (100, 1000):
        held.append(writes(length))
        gc.collect()
        # A weak reference to each scalar is kept for a while, and is gone with the next thousands of them.
        counts.append(sum(not issubclass(type(known), weakref.ref) for known in gc.get_objects()))
    assert counts[1] - counts[0] < 100
    assert [t.journal().entries for t in held] == [100, 1000]


def test_a_chain_of_a_hundred_thousand_steps_runs() -> None:
    result = chain(100_000).numpy()
    assert np.allclose(result, 2.0)


def test_a_kernel_has_a_bounded_number_of_instructions() -> None:
    kernels = device_of("CPU")._kernels
    before = {*kernels}
    chain(4000).realize()
    sizes = [len(made.lowered.linear.src) for key, made in kernels.items() if key not in before]
    assert sizes
    assert max(sizes) < 5000


def test_ten_thousand_writes_are_one_kernel() -> None:
    t = writes(10_000)
    GlobalCounters.reset()
    values = t.numpy()
    assert GlobalCounters.kernel_count == 1
    assert np.array_equal(values, np.arange(10_000, dtype=np.float32) * 3)
