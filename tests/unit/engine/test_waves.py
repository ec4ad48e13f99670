"""Which kernels of a plan may run side by side: none that needs what another does, and enough of them that it pays."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from intaglio.core.dtypes import dtypes
from intaglio.engine.arena import Life
from intaglio.engine.waves import LARGE, ROOM, SAVED, SHARING, estimated, waves
from intaglio.ir.view import View
from intaglio.ops.elementwise import add
from intaglio.ops.memory import BufferRef, buffer, window
from intaglio.schedule.kernels import Copy, PlannedKernel, build
from intaglio.schedule.program import Write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.engine.waves import Wave

VIEW = View.contiguous(dtypes.float32, (16,))


def refs(count: int, device: str = "CPU") -> list[BufferRef]:
    """Buffers of 16 floats."""
    return [BufferRef(64, device) for _ in range(count)]


def kernel(target: BufferRef, *sources: BufferRef) -> PlannedKernel:
    """One that writes a buffer from others."""
    values = [window(VIEW, buffer(ref)) for ref in sources]
    value = values[0]
    for other in values[1:] or values:
        value = add(value, other)
    return build([Write(target, VIEW, value)])


def found(
    kernels: Sequence[PlannedKernel | Copy], cost: int = 2 * SAVED, *, shared: bool = False, lives: Sequence[Life] = ()
) -> list[Wave]:
    """The waves of kernels of one cost."""
    return waves(kernels, [cost] * len(kernels), [shared] * len(kernels), lives)


def test_kernels_that_share_only_what_they_read_are_chains() -> None:
    x, *targets = refs(5)
    assert found([kernel(target, x) for target in targets]) == [[[0], [1], [2], [3]]]


def test_a_kernel_follows_the_last_of_the_one_chain_that_it_needs() -> None:
    a, b, c, d, e, f = refs(6)
    assert found([kernel(b, a), kernel(c, b), kernel(d, a), kernel(e, d)]) == [[[0, 1], [2, 3]]]
    assert found([kernel(b, a), kernel(c, a), kernel(d, b), kernel(e, c)]) == [[[0, 2], [1, 3]]]
    assert found([kernel(b, a), kernel(c, a), kernel(d, b, c), kernel(e, d), kernel(f, d)]) == [[[0], [1]], [[3], [4]]]
    assert found([kernel(b, a), kernel(c, b), kernel(d, b), kernel(e, b), kernel(f, b)]) == [[[1], [2], [3], [4]]]
    assert found([kernel(b, a), kernel(c, b), kernel(d, c), kernel(e, d)]) == []


def test_what_is_read_is_not_written_beside() -> None:
    a, b, c, d, e = refs(5)
    assert found([kernel(b, a), kernel(c, e), kernel(a, d), kernel(e, d)]) == [[[0, 2], [1, 3]]]
    assert found([kernel(b, a), kernel(c, a), kernel(a, d), kernel(e, d)]) == [[[0], [1]], [[2], [3]]]
    assert found([kernel(b, a), kernel(b, c), kernel(d, a), kernel(d, c)]) == [[[0, 1], [2, 3]]]


def test_chains_of_random_kernels_are_independent() -> None:
    draw = random.Random(0)
    some = 0
    for _ in range(200):
        all_refs = refs(draw.randrange(3, 30))
        drawn = [draw.sample(all_refs, draw.randrange(2, 4)) for _ in range(draw.randrange(20))]
        kernels = [kernel(target, *sources) for target, *sources in drawn]
        costs = [draw.choice([SAVED // 8, 2 * SAVED, LARGE]) for _ in kernels]
        stop = 0
        for wave in waves(kernels, costs, [draw.random() < 0.5 for _ in kernels], []):
            some += 1
            numbers = sorted(itertools.chain.from_iterable(wave))
            assert numbers == list(range(wave[0][0], numbers[-1] + 1))
            assert numbers[0] >= stop
            stop = numbers[-1] + 1
            for one, other in itertools.permutations(wave, 2):
                written = {drawn[k][0] for k in one}
                assert all(written.isdisjoint(drawn[k]) for k in other)
    assert some > 100


def test_copies_and_other_devices_end_a_wave() -> None:
    (x, y), (p, q) = refs(2), refs(2, "CPU:1")
    ours, theirs = [kernel(t, x) for t in refs(2)], [kernel(t, p) for t in refs(2, "CPU:1")]
    assert found([*ours, *theirs]) == [[[0], [1]], [[2], [3]]]
    assert found([*ours, Copy(y, VIEW, q), *theirs]) == [[[0], [1]], [[3], [4]]]


def test_a_kernel_that_threads_share_well_alone_ends_a_wave() -> None:
    x, *targets = refs(21)
    kernels = [kernel(target, x) for target in targets]
    every = [[[k] for k in range(20)]]
    assert 19 * SHARING > SAVED
    assert found(kernels, LARGE) == every
    assert found(kernels, LARGE - 1, shared=True) == every
    assert found(kernels, LARGE, shared=True) == []


def test_a_wave_pays() -> None:
    x, *targets = refs(5)
    kernels = [kernel(target, x) for target in targets]
    assert found(kernels, (SAVED + SHARING) // 2) == [[[0], [1], [2], [3]]]
    assert found(kernels, (SAVED + SHARING) // 2 - 1) == []
    assert waves(kernels, [LARGE, 1, 1, 1], [False] * 4, []) == []


def test_a_wave_ends_where_one_thread_would_be_left_with_the_rest() -> None:
    x, y, *others = refs(12)
    tail = [kernel(b, a) for a, b in pairwise([y, *others])]
    wide = [kernel(y, x), *[kernel(ref, x) for ref in refs(5)]]
    costs, shared = [2 * SAVED] * 16, [False] * 6 + [True] * 10
    assert waves([*wide, *tail], costs, shared, []) == [[[0, 6, 7, 8, 9], [1], [2], [3], [4], [5]]]


def test_a_wave_keeps_little_from_those_that_come_later() -> None:
    x, *targets = refs(9)
    kernels = [kernel(target, x) for target in targets]
    ending = [Life(0, k, ROOM // 2) for k in range(8)]
    assert found(kernels, lives=ending) == [[[0], [1]], [[2], [3]], [[4], [5]], [[6], [7]]]
    assert found(kernels, lives=[Life(0, 7, 100 * ROOM)]) == [[[k] for k in range(8)]]


def test_planning_looks_at_each_kernel_a_few_times() -> None:
    all_refs = refs(2001)
    chain = [kernel(b, a) for a, b in pairwise(all_refs)]
    looks = Counter[int]()

    class Costs(list[int]):
        def __getitem__(self, place: Any) -> Any:
            looks[place] += 1
            return super().__getitem__(place)  # pyright: ignore[reportUnknownVariableType]

    assert waves(chain, Costs([SAVED] * 2000), [False] * 2000, []) == []
    assert max(looks.values()) <= 4


def test_costs_are_bytes_and_operations() -> None:
    assert estimated(100, 0) < estimated(100, 1000) < estimated(2000, 1000)
