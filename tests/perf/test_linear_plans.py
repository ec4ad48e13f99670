"""Planning takes work in proportion to the length of a program, whatever its shape: counted in lines that run."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.storage.flush import plans

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

WIDE = 4096  # elements of a write from which it has a kernel of its own
SATURATED = 180  # turns from which a chain of values is cut into kernels: until then each turn's expression grows


def lines(work: Callable[[], object]) -> int:
    """How many lines of Python some work runs: calls, and the turns of loops that call nothing."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def rows(n: int, width: int = 4) -> Tensor:
    """A table in memory."""
    return Tensor(np.arange(n * width, dtype=np.float32).reshape(n, width)).realize()


def products_cut_in_parts(n: int) -> list[Tensor]:
    w, t = rows(8, 8), Tensor.ones(n, 8).realize()
    for i in range(1, n):
        h = t[i - 1] @ w
        t[i, :4] = h[:4]
        t[i, 4:] = h[4:]
    return [t]


def rows_cloned(n: int) -> list[Tensor]:
    x, t = rows(n), Tensor.zeros(n, 4).realize()
    for i in range(n):
        r = x[i].clone()
        r += 1
        t[i] = r
    return [t]


def rows_exchanged(n: int) -> list[Tensor]:
    a, rng = rows(n), random.Random(1)
    for _ in range(n):
        i, j = rng.randrange(n), rng.randrange(n)
        kept = a[i].clone()
        a[i] = a[j]
        a[j] = kept
    return [a]


def elements_compared(n: int) -> list[Tensor]:
    t = rows(1, n).reshape(-1)
    for i in range(n - 1):
        low, high = t[i].minimum(t[i + 1]), t[i].maximum(t[i + 1])
        t[i] = low
        t[i + 1] = high
    return [t]


def buffers_filled(n: int) -> list[Tensor]:
    x, t = rows(1, n).reshape(-1), Tensor.zeros(n).realize()
    for i in range(n):
        buffer = Tensor.zeros(4)
        buffer[0] = x[i]
        t[i] = buffer.sum()
    return [t]


def wide_stencil(n: int) -> list[Tensor]:
    t = rows(1, 2 * WIDE).reshape(-1)
    for _ in range(n):
        t[1:-1] += 0.1 * (t[2:] - 2 * t[1:-1] + t[:-2])
    return [t]


def wide_rows(n: int) -> list[Tensor]:
    t = rows(n, WIDE)
    for i in range(1, n):
        t[i] = t[i - 1].cumsum(0) + t[i]
    return [t]


def columns_summed(n: int) -> list[Tensor]:
    t = rows(8, n)
    for i in range(1, n):
        t[:, i] = t[:, i - 1].cumsum(0) + 1
    return [t]


def old_values_kept(n: int) -> list[Tensor]:
    t, kept = rows(n), []
    for i in range(n):
        kept.append(t[i] * 2)
        t[i] = i
        t[i] += 1
    return [t, *kept]


def copies_of_copies(n: int) -> list[Tensor]:
    x = rows(1, 8).reshape(-1)
    for _ in range(n):
        y = x.clone()
        y[1:] += x[:-1]
        x = y
    return [x]


def a_chain_that_is_written(n: int) -> list[Tensor]:
    t, s = Tensor.zeros(n, 4).realize(), Tensor.zeros(4).realize()
    for i in range(n):
        s = s * 0.5 + 1
        t[i] = s
    return [t]


def a_chain_beside_a_stencil(n: int) -> list[Tensor]:
    x, w, t = rows(1, 4).reshape(-1), rows(1, 2 * WIDE).reshape(-1), Tensor.zeros(n, 4).realize()
    s = x * 1
    for i in range(n):
        s = s * 0.5 + x
        t[i] = s
        w[1:-1] = w[2:] + w[:-2]
        x[0] = i
    return [t, w, x]


def a_queue(n: int) -> list[Tensor]:
    q = rows(1, 8).reshape(-1)
    for i in range(n):
        q[1:] = q[:-1]
        q[0] = i
    return [q]


def elements_of_one_another(n: int) -> list[Tensor]:
    parts = [Tensor.zeros(2).realize() for _ in range(n + 1)]
    for i in range(n):
        parts[i + 1][0] = parts[i][0] * 2
    parts[0][1] = parts[0][0] + 1
    return parts[:1]


def many_arms(n: int) -> list[Tensor]:
    t, rng = Tensor.zeros(n + 1).realize(), random.Random(2)
    for i in range(n):
        value = t[rng.randrange(i + 1)]
        for bit in range(4):
            value = value * 0.5 if rng.randrange(n) >> bit & 1 else value + 1
        t[i + 1] = value
    return [t]


PROGRAMS = (
    products_cut_in_parts,
    rows_cloned,
    rows_exchanged,
    elements_compared,
    buffers_filled,
    wide_stencil,
    wide_rows,
    columns_summed,
    old_values_kept,
    copies_of_copies,
    a_chain_that_is_written,
    a_chain_beside_a_stencil,
    a_queue,
    elements_of_one_another,
    many_arms,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_program_takes_work_in_proportion(program: Callable[[int], list[Tensor]]) -> None:
    def run(n: int) -> None:
        first, *rest = program(n)
        first.realize(*rest)

    counts: list[int] = []
    n = SATURATED if program is a_chain_that_is_written else 60
    for length in (n, 2 * n):
        run(length)  # what it compiles is compiled
        plans.clear()
        counts.append(lines(lambda n=length: run(n)))
    assert counts[1] <= 2.3 * counts[0]
