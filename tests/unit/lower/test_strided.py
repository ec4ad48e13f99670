"""Every second, third or fourth element is read in whole vectors, and nothing past the last one."""

from __future__ import annotations

import mmap
from dataclasses import replace

import numpy as np
import pytest

from intaglio.ops.elementwise import neg
from intaglio.ops.loop import Shuffle
from intaglio.ops.memory import Const, Load
from intaglio.ops.movement import reshape
from intaglio.ops.reduce import reduce
from intaglio.runtime.compiler import host_target
from tests.unit.lower import running
from tests.unit.lower.running import Operands, numbers, run

COUNTS = [2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "int64"])
@pytest.mark.parametrize("step", [2, 3, 4, 5])
@pytest.mark.parametrize("interpret", [False, True])
def test_elements_apart(dtype: str, step: int, interpret: bool) -> None:
    for count in COUNTS:
        x = numbers((3, count * step + 1), "int64").astype(dtype)
        for first in (0, 1):
            seen = x[:, first::step]
            out = np.full(seen.shape, 99, dtype)
            k = Operands()
            lowered = run(k, k.write(out, neg(k.read(seen))), interpret=interpret)
            assert np.array_equal(out, -seen)
            far = any(isinstance(n.op, Load) and n.src[1].shape for n in lowered.linear.src)
            near = any(isinstance(n.op, Shuffle) for n in lowered.linear.src)
            assert not (far and near)
            if count >= 64:
                assert near == (step <= 4)


@pytest.mark.parametrize("step", [2, 3, 4])
@pytest.mark.parametrize("count", [5, 16, 33, 64])
def test_nothing_is_read_past_the_last_element(step: int, count: int) -> None:
    pages = mmap.mmap(-1, mmap.PAGESIZE)
    whole = np.frombuffer(pages, np.float32)
    first = whole.size - (step * (count - 1) + 1)  # the last element that is read is the last of the page
    whole[:] = np.arange(whole.size)
    seen = whole[first::step]
    assert seen.size == count
    out = np.zeros(count, np.float32)
    k = Operands()
    run(k, k.write(out, neg(k.read(seen))))
    assert np.array_equal(out, -seen)


@pytest.mark.parametrize("step", [2, 3, 4])
@pytest.mark.parametrize("count", [2, 5, 16])
def test_nor_by_vectors_of_fewer_elements_than_steps(monkeypatch: pytest.MonkeyPatch, step: int, count: int) -> None:
    monkeypatch.setattr(running, "host_target", lambda threads: replace(host_target(threads), vector_bytes=16))
    pages = mmap.mmap(-1, mmap.PAGESIZE)
    whole = np.frombuffer(pages, np.float64)
    whole[:] = np.arange(whole.size)
    seen = whole[whole.size - (step * (count - 1) + 1) :: step]
    out = np.zeros(count)
    k = Operands()
    lowered = run(k, k.write(out, neg(k.read(seen))))
    assert np.array_equal(out, -seen)
    whole_reads = [n for n in lowered.linear.src if isinstance(n.op, Load) and n.shape and len(n.src) == 2]
    starts = [n.src[1].op.value for n in whole_reads if isinstance(n.src[1].op, Const)]
    assert starts or count > 2
    assert all(start + 1 < whole.size for start in starts)


@pytest.mark.parametrize("interpret", [False, True])
def test_the_largest_of_pairs_is_found_in_vectors(interpret: bool) -> None:
    x = numbers((6, 70))
    out = np.zeros((6, 35), np.float32)
    k = Operands()
    lowered = run(k, k.write(out, reduce("max", reshape(k.read(x), (6, 35, 2)), (2,))), interpret=interpret)
    assert np.array_equal(out, x.reshape(6, 35, 2).max(2))
    assert sum(isinstance(n.op, Shuffle) for n in lowered.linear.src) >= 2
    assert not any(isinstance(n.op, Load) and not n.shape for n in lowered.linear.src)
