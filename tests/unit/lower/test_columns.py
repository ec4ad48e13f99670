"""Stores that also reduce down columns: some columns at a time, what they read and compute kept in scratch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio.ops.elementwise import add, div, exp, mul, sub
from intaglio.ops.memory import Local
from intaglio.ops.movement import broadcast, reshape
from intaglio.ops.reduce import reduce
from intaglio.runtime.compiler import host_target
from tests.unit.lower.running import Operands, numbers
from tests.unit.lower.running import run as run_alone

if TYPE_CHECKING:
    from intaglio.ir.node import Node

SHAPES = [(1, 40), (2, 1), (7, 15), (8, 64), (16, 63), (24, 63), (31, 65), (33, 257), (300, 130), (1025, 16)]


def run(k: Operands, *statements: Node, level2: int = 1 << 20, threads: int = 1) -> int:
    """Run statements, the last chunk first; gives how many arrays of scratch there are."""
    lowered = run_alone(k, *statements, target=replace(host_target(threads), level2=level2))
    return len({s for n in lowered.linear.src for s in n.src if isinstance(s.op, Local)})


def kept(kind: str, x: Node, axes: tuple[int, ...]) -> Node:
    """A reduction, repeated along its axes."""
    narrow = reduce(kind, x, axes)
    return broadcast(reshape(narrow, tuple(1 if a in axes else n for a, n in enumerate(x.shape))), x.shape)


def softmax(x: Node, axes: tuple[int, ...]) -> Node:
    """The softmax along some axes."""
    e = exp(sub(x, kept("max", x, axes)))
    return div(e, kept("sum", e, axes))


def softmax_of(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The softmax along some axes, in double precision."""
    e = np.exp(x.astype(np.float64) - x.max(axes, keepdims=True))
    return e / e.sum(axes, keepdims=True)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_softmax_down_columns(shape: tuple[int, int], threads: int) -> None:
    x, out = numbers(shape) / 4, np.full(shape, 99, np.float32)
    k = Operands()
    scratch = run(k, k.write(out, softmax(k.read(x), (0,))), threads=threads)
    np.testing.assert_allclose(out, softmax_of(x, (0,)), rtol=1e-5)
    if min(shape) > 1 and shape[1] >= 16:
        assert scratch == 1  # what is read, over which comes what is computed


@pytest.mark.parametrize("shape", [(9, 33, 40), (2, 100, 70), (40, 50, 17)])
@pytest.mark.parametrize("axes", [(1,), (0, 1), (0,), (0, 2)])
def test_any_axes(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x, out = numbers(shape) / 4, np.full(shape, 99, np.float32)
    k = Operands()
    run(k, k.write(out, softmax(k.read(x), axes)), threads=2)
    np.testing.assert_allclose(out, softmax_of(x, axes), rtol=1e-5)


def test_neither_room_nor_threads_change_a_bit() -> None:
    x = np.random.default_rng(0).standard_normal((700, 1100), np.float32)
    results: set[bytes] = set()
    for level2, threads, scratch in [(1 << 21, 1, 1), (1 << 10, 1, 0), (1 << 21, 4, 1)]:
        out = np.empty_like(x)
        k = Operands()
        assert run(k, k.write(out, softmax(k.read(x), (0,))), level2=level2, threads=threads) == scratch
        results.add(out.tobytes())
    assert len(results) == 1


@pytest.mark.parametrize("shape", [(2, 16), (5, 40), (6, 70), (9, 33), (33, 64)])
def test_what_takes_the_place_of_other_values_is_read_as_itself(shape: tuple[int, int]) -> None:
    x, y = numbers(shape) / 4, numbers(shape, seed=1)
    out = np.full(shape, 99, np.float32)
    k = Operands()
    own, ct = softmax(k.read(x), (0,)), k.read(y)
    run(k, k.write(out, mul(own, sub(ct, kept("sum", mul(ct, own), (0,))))))
    s = softmax_of(x, (0,))
    np.testing.assert_allclose(out, s * (y - (y * s).sum(0)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(33, 257), (129, 130)])
def test_columns_that_lie_apart(shape: tuple[int, int]) -> None:
    x, out = numbers(shape).T / 4, np.full(shape[::-1], 99, np.float32)
    k = Operands()
    run(k, k.write(out, softmax(k.read(np.ascontiguousarray(x.T).T), (0,))))
    np.testing.assert_allclose(out, softmax_of(x, (0,)), rtol=1e-5)


def test_what_is_needed_of_two_values_is_kept_of_both() -> None:
    x, y, out = numbers((50, 80)), numbers((50, 80), seed=1), np.empty((50, 80), np.float32)
    k = Operands()
    left, right = k.read(x), k.read(y)
    value = add(sub(left, kept("sum", left, (0,))), mul(right, kept("max", right, (0,))))
    assert run(k, k.write(out, value)) == 2
    np.testing.assert_allclose(out, x - x.sum(0) + y * y.max(0), rtol=1e-5, atol=1e-3)


def test_stores_with_other_reductions_have_loops_of_their_own() -> None:
    x = numbers((60, 90)) / 4
    down, along, plain = (np.full((60, 90), 99, np.float32) for _ in range(3))
    k = Operands()
    value = k.read(x)
    run(k, k.write(down, softmax(value, (0,))), k.write(along, softmax(value, (1,))), k.write(plain, add(value, value)))
    np.testing.assert_allclose(down, softmax_of(x, (0,)), rtol=1e-5)
    np.testing.assert_allclose(along, softmax_of(x, (1,)), rtol=1e-5)
    np.testing.assert_array_equal(plain, x + x)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_in_its_column(value: float) -> None:
    x, out = numbers((20, 50)) / 4, np.empty((20, 50), np.float32)
    x[3, 7] = value
    k = Operands()
    run(k, k.write(out, softmax(k.read(x), (0,))))
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(out, softmax_of(x, (0,)), rtol=1e-5)


def test_the_interpreter_agrees() -> None:
    x, out = numbers((5, 37)) / 4, np.empty((5, 37), np.float32)
    k = Operands()
    run_alone(k, k.write(out, softmax(k.read(x), (0,))), interpret=True)
    np.testing.assert_allclose(out, softmax_of(x, (0,)), rtol=1e-5)
