"""Plans are made once for all programs of one structure, and never shared by programs that differ in more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor
from intaglio.core.dtypes import dtypes
from intaglio.engine.plan import Plans
from intaglio.ir.view import View
from intaglio.ops.elementwise import add, mul
from intaglio.ops.memory import BufferRef, const
from intaglio.schedule.program import Program, Write, read_at
from intaglio.schedule.structure import Structure

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.schedule.structure import Key

WHOLE = View.contiguous(dtypes.float32, (16,))


def planned(work: Callable[[], Any]) -> tuple[Any, int]:
    """(what some work gives, how many programs were planned for it)."""
    GlobalCounters.reset()
    return work(), GlobalCounters.plan_count


def matrix(seed: int = 0) -> tuple[Tensor, np.ndarray[Any, Any]]:
    """A tensor in memory, and its array."""
    array = np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32)
    return Tensor(array).realize(), array


def test_other_numbers_and_other_buffers_share_a_plan() -> None:
    def run(seed: int, factor: float) -> None:
        x, a = matrix(seed)
        assert np.array_equal((x * factor + 7.25).numpy(), a * np.float32(factor) + np.float32(7.25))

    run(0, 3.5)
    assert planned(lambda: [run(seed, 3.5 + seed) for seed in range(1, 20)])[1] == 0


def test_numbers_that_are_equal_by_chance_make_another_structure() -> None:
    x, a = matrix()
    for low, high in ((3.0, 4.0), (5.0, 5.0), (6.0, 7.0), (8.0, 8.0)):
        got = ((x * low + high) * low).numpy()
        assert np.allclose(got, (a * np.float32(low) + np.float32(high)) * np.float32(low), rtol=1e-6)


def test_rows_of_a_matrix_share_a_plan() -> None:
    x, a = matrix()
    assert (x[1] * 3.0).numpy()[0] == a[1, 0] * 3
    rows, count = planned(lambda: [(x[i] * 3.0).numpy() for i in range(2, 64)])
    assert count == 0
    assert np.array_equal(np.stack(rows), a[2:] * 3)


def test_windows_that_move_together_share_a_plan() -> None:
    x, a = matrix()
    flat, line = x.reshape(-1), a.reshape(-1)
    (flat[0:8] + flat[2:10]).numpy()
    sums, count = planned(lambda: [(flat[k : k + 8] + flat[k + 2 : k + 10]).numpy() for k in range(4, 400, 2)])
    assert count == 0
    assert np.array_equal(np.stack(sums), np.stack([line[k : k + 8] + line[k + 2 : k + 10] for k in range(4, 400, 2)]))


def test_writes_at_other_places_share_a_plan() -> None:
    t, a = matrix()
    y = Tensor.arange(64, dtype=dtypes.float32).realize()
    t[3] = y * 3.0
    t.realize()

    def run() -> None:
        for i in range(4, 64):
            t[i] = y * 3.0
            t.realize()

    assert planned(run)[1] == 0
    a[3:] = np.arange(64, dtype=np.float32) * 3
    assert np.array_equal(t.numpy(), a)


@pytest.mark.parametrize("shift", [-3, -1, 0, 1, 2, 40])
def test_a_copy_within_a_buffer_is_planned_for_its_own_overlap(shift: int) -> None:
    t = Tensor.arange(100).realize()
    a = np.arange(100)
    for first in (10, 12):
        t[first : first + 30] = t[first + shift : first + shift + 30] * 3
        a[first : first + 30] = a[first + shift : first + shift + 30] * 3
        assert np.array_equal(t.numpy(), a)


def test_what_is_kept_is_part_of_the_structure() -> None:
    x, a = matrix()
    y = x * 3.0
    z = y + 1.5
    assert np.array_equal(z.numpy(), a * 3 + np.float32(1.5))
    y = x * 3.0
    z = y + 1.5
    Tensor.realize(y, z)
    assert np.array_equal(y.numpy(), a * 3)
    assert np.array_equal(z.numpy(), a * 3 + np.float32(1.5))


def program(source: BufferRef, target: BufferRef, factor: float, start: int = 0) -> Program:
    """target[:] = source[start : start + 16] * factor + source[start + 4 : start + 20]."""
    one, two = (View.contiguous(dtypes.float32, (16,), 4 * (start + k)) for k in (0, 4))
    value = add(mul(read_at(source, one, 0), const(dtypes.float32, factor)), read_at(source, two, 0))
    return Program([Write(target, WHOLE, value)], fresh={target}, keep={target})


def refs(nbytes: int = 400) -> tuple[BufferRef, BufferRef]:
    """A source and a target."""
    return BufferRef(nbytes, "CPU"), BufferRef(64, "CPU")


def test_a_structure_takes_out_buffers_numbers_and_starts() -> None:
    first, second = Structure(program(*refs(), 3.0)), Structure(program(*refs(800), 4.0, 10))
    assert first.key == second.key
    assert (first.starts, second.starts) == ([0, 0], [40, 0])
    assert [n.value for n in (*first.numbers, *second.numbers)] == [3.0, 4.0]


@pytest.mark.parametrize("other", [2.0, 1.0, float("nan")])
def test_numbers_that_simplify_stay(other: float) -> None:
    assert Structure(program(*refs(), 3.0)).key != Structure(program(*refs(), other)).key


def test_starts_that_are_not_aligned_alike_differ() -> None:
    def key(offset: int) -> Key:
        source, target = refs()
        value = read_at(source, View.contiguous(dtypes.float32, (16,), offset), 0)
        return Structure(Program([Write(target, WHOLE, value)], fresh={target}, keep={target})).key

    assert key(4) == key(8) != key(6) == key(2)


def test_a_plan_names_the_buffers_of_its_program() -> None:
    plans = Plans()
    for start, factor in ((0, 3.0), (10, 4.0)):
        source, target = refs()
        made = plans.plan(program(source, target, factor, start))
        assert (made.buffers, made.renamed) == ([source, target], {target: target})
        (kernel,) = made.kernels
        bits = dtypes.float32.to_bits(factor)
        assert (source, 4 * start) in getattr(kernel, "slots", ())
        assert (dtypes.float32, bits) in getattr(kernel, "slots", ())


def test_the_oldest_plans_are_forgotten_first() -> None:
    plans = Plans(limit=160)

    def count(length: int) -> int:
        source, target = refs()
        value = read_at(source, WHOLE, 0)
        for _ in range(length):
            value = mul(value, value)
        GlobalCounters.reset()
        plans.plan(Program([Write(target, WHOLE, value)], fresh={target}, keep={target}))
        return GlobalCounters.plan_count

    assert [count(length) for length in range(1, 20)] == [1] * 19
    assert [count(19), count(1), count(19)] == [0, 1, 0]
