"""The quotient of a vector of positions by a multiple of its lanes is one number, computed once for all lanes."""

from __future__ import annotations

import mmap
from dataclasses import replace

import numpy as np
import pytest

from intaglio.ops.elementwise import FloorDiv, mul
from intaglio.ops.memory import Load
from intaglio.ops.movement import expand, reshape
from intaglio.ops.reduce import reduce
from intaglio.runtime.compiler import host_target
from tests.unit.lower import running
from tests.unit.lower.running import Operands, numbers, run


@pytest.fixture(autouse=True)
def lanes(monkeypatch: pytest.MonkeyPatch) -> int:
    """Vectors of eight float32, on any host that has some."""
    if host_target(1).vector_bytes < 32:
        pytest.skip("this host has no such vectors")
    monkeypatch.setattr(running, "host_target", lambda threads: replace(host_target(threads), vector_bytes=32))
    return 8


@pytest.mark.parametrize("groups", [1, 3, 5, 8, 40])
@pytest.mark.parametrize("size", [4, 8, 12, 16, 24, 48, 64, 128, 192])
@pytest.mark.parametrize("interpret", [False, True])
def test_sums_of_groups_that_are_scaled(lanes: int, size: int, groups: int, interpret: bool) -> None:
    x, scale = numbers((3, groups * size), "float32"), numbers((3, groups), "float32")
    out = np.full(3, 99, "float32")
    k = Operands()
    wide = expand(reshape(k.read(scale), (3, groups, 1)), (3, groups, size))
    lowered = run(
        k,
        k.write(out, reduce("sum", mul(k.read(x), reshape(wide, (3, groups * size))), (1,))),
        interpret=interpret,
    )
    assert np.array_equal(out, (x.reshape(3, groups, size) * scale[:, :, None]).sum((1, 2)))
    if size % lanes == 0:
        assert not any(isinstance(n.op, FloorDiv) and n.shape for n in lowered.linear.src)
        assert not any(isinstance(n.op, Load) and n.src[1].shape for n in lowered.linear.src)
    if size == 16 and groups == 40:  # one division for each block of vectors, no more for each vector in it
        assert sum(isinstance(n.op, FloorDiv) for n in lowered.linear.src) <= 2


@pytest.mark.parametrize("groups", [3, 5, 9])
@pytest.mark.parametrize("size", [8, 24])
def test_no_scale_past_the_last_is_read(size: int, groups: int) -> None:
    pages = mmap.mmap(-1, mmap.PAGESIZE)
    whole = np.frombuffer(pages, np.float32)
    whole[:] = 1
    scale = whole[whole.size - groups :].reshape(1, groups)  # the last one is the last of the page
    x, out = numbers((1, groups * size), "float32"), np.zeros(1, "float32")
    k = Operands()
    wide = expand(reshape(k.read(scale), (1, groups, 1)), (1, groups, size))
    run(k, k.write(out, reduce("sum", mul(k.read(x), reshape(wide, (1, groups * size))), (1,))))
    assert np.array_equal(out, x.sum(1))
