"""Tables: every chunk of every kernel is run once, what is not independent in order, with any number of threads."""

from __future__ import annotations

import ctypes
import random
import threading
from array import array
from itertools import pairwise

import pytest

from intaglio.core.trace import GlobalCounters
from intaglio.runtime.compiler import Compiler
from intaglio.runtime.launch import (
    PIECE,
    SHARES,
    Row,
    Table,
    _shared,  # pyright: ignore[reportPrivateUsage] -- which thread takes which chunk is in part left to chance
)
from intaglio.runtime.taking import SIGNATURE, shares

COMPILER = Compiler(lambda: None)


class Noted:
    """Kernels that note when which of their chunks is run: each reads its number from its only argument."""

    def __init__(self, chunks: list[int], costs: list[int], series: int = 0) -> None:
        self.events: list[tuple[int, int, int]] = []  # kernel, chunks from and to before
        self.kernel = SIGNATURE(self._note)
        self.address = ctypes.cast(self.kernel, ctypes.c_void_p).value or 0
        noted = enumerate(zip(chunks, costs, strict=True))
        self.rows = [Row(self.address, k, n, cost, series) for k, (n, cost) in noted]
        self.slots = array("Q", range(len(chunks)))
        self._lock = threading.Lock()

    def _note(self, slots: int, begin: int, end: int, _: int) -> None:
        number = ctypes.c_uint64.from_address(slots).value
        with self._lock:
            self.events.append((number, begin, end))

    def run(self, waves: list[list[list[int]]], threads: int) -> list[tuple[int, int, int]]:
        """What happened, in order."""
        self.events.clear()
        Table(COMPILER, self.rows, waves).run(self.slots, threads, 0, len(self.rows))
        return self.events


def each(numbers: range) -> list[list[int]]:
    """Each kernel as a chain."""
    return [[number] for number in numbers]


def chains_of(draw: random.Random, numbers: range) -> list[list[int]]:
    """Neighbours in some chains."""
    chains: dict[int, list[int]] = {}
    for number in numbers:
        chains.setdefault(draw.randrange(6), []).append(number)
    return [*chains.values()]


def test_each_chunk_runs_once_and_waves_end_before_what_follows(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(30):
        count = draw.randrange(1, 40)
        chunks = [draw.choice([1, 1, 1, 2, 7]) for _ in range(count)]
        noted = Noted(chunks, [draw.choice([1, PIECE // 3, PIECE, 50 * PIECE]) for _ in range(count)])
        cuts = sorted(draw.sample(range(count + 1), min(count, 2 * draw.randrange(4))))
        waves = [chains_of(draw, range(a, b)) for a, b in zip(cuts[::2], cuts[1::2], strict=False) if b - a > 1]
        step = {k: wave[0][0] for wave in waves for chain in wave for k in chain}
        events = noted.run(waves, draw.choice([1, 2, 3]))
        ran = sorted((number, chunk) for number, begin, end in events for chunk in range(begin, end))
        assert ran == [(number, chunk) for number, n in enumerate(chunks) for chunk in range(n)]
        order = [step.get(number, number) for number, _, _ in events]
        assert order == sorted(order)
        place = {number: k for k, (number, _, _) in enumerate(events)}
        for chain in [chain for wave in waves for chain in wave]:
            assert chain == sorted(chain, key=place.__getitem__)


@pytest.mark.parametrize("count", [2, 7, 64])
@pytest.mark.parametrize(("before", "after"), [(0, 0), (1, 0), (2, 1), (5, 7)])
def test_each_thread_has_neighbours_of_a_kernel_that_is_cut(before: int, after: int, count: int) -> None:
    for threads in range(2, 70):
        first = [[Row(k + 1, 0, 1, 1000 * count * PIECE - k)] for k in range(before)]
        last = [[Row(-1, 0, 1, 2 * PIECE)] for _ in range(after)]
        pieces = _shared([*first, [Row(0, 0, count, 900 * count * PIECE)], *last], threads)
        assert len(pieces) == before + count + after
        cut = 0
        for share in shares(len(pieces), threads):
            own = [begin for address, _, begin, _ in pieces[share.start : share.stop] if address == 0]
            assert own == [*range(own[0], own[-1] + 1)] if own else True, (threads, own)
            cut += len(own)
        assert cut == count
        dearest = [pieces[share.start][0] for share in shares(len(pieces), threads) if share]
        assert {*dearest} >= {*range(1, min(before, threads) + 1)}


def test_one_thread_makes_one_call_for_each_kernel_in_order() -> None:
    noted = Noted([1, 4, 1, 1, 9], [PIECE] * 5)
    expected = [(k, 0, n) for k, n in enumerate((1, 4, 1, 1, 9))]
    assert noted.run([each(range(3))], 1) == expected


def test_a_kernel_that_takes_less_than_sharing_it_is_worth_is_one_call() -> None:
    noted = Noted([4, 4], [PIECE, PIECE])
    noted.rows = [row._replace(worth=PIECE + k) for k, row in enumerate(noted.rows)]
    assert sorted(noted.run([], 2)) == [*((0, k, k + 1) for k in range(4)), (1, 0, 4)]


@pytest.mark.parametrize("first", range(5))
def test_a_part_of_a_table_runs_alone(first: int) -> None:
    noted = Noted([1] * 5, [PIECE] * 5)
    table = Table(COMPILER, noted.rows, [each(range(5))])
    GlobalCounters.reset()
    table.run(noted.slots, 2, first, 5)
    assert [number for number, _, _ in noted.events] == list(range(first, 5)) or first == 0
    assert GlobalCounters.wave_count == (first == 0)


def test_small_kernels_go_together_and_the_last_large_one_is_cut() -> None:
    noted = Noted([8, 8, 8, *[1] * 64], [80 * PIECE] * 3 + [PIECE // 16] * 64)
    events = noted.run([each(range(67))], 2)
    calls = [sum(number == k for number, _, _ in events) for k in range(3)]
    assert calls == [1, 1, 8]
    small = [number for number, _, _ in events if number >= 3]
    assert sorted(small) == list(range(3, 67))
    alone = Noted([8, 1], [80 * PIECE, 79 * PIECE]).run([each(range(2))], 3)
    assert [sum(number == k for number, _, _ in alone) for k in range(2)] == [8, 1]


def test_a_wave_of_one_piece_runs_after_what_comes_before_it() -> None:
    noted = Noted([1] * 5, [1] * 5)
    assert noted.run([each(range(3, 5))], 2) == [(k, 0, 1) for k in range(5)]


def test_waves_are_counted_where_threads_share_them() -> None:
    noted = Noted([1] * 6, [PIECE] * 6)
    table = Table(COMPILER, noted.rows, [each(range(3)), each(range(3, 6))])
    for threads, count in ((1, 0), (2, 2), (3, 4)):
        GlobalCounters.reset() if threads == 1 else None
        table.run(noted.slots, threads, 0, 6)
        assert GlobalCounters.wave_count == count
    tiny = Noted([1] * 6, [1] * 6)
    GlobalCounters.reset()
    tiny.run([each(range(6))], 2)
    assert GlobalCounters.wave_count == 0  # all together are one piece
    assert all(a <= b for a, b in pairwise(number for number, _, _ in tiny.events))


def test_launches_of_a_series_are_one_call() -> None:
    noted = Noted([1] * 6, [PIECE] * 6, series=1)
    assert noted.run([], 1) == [(0, 0, 6)]
    assert noted.run([each(range(6))], 1) == [(0, 0, 6)]
    table = Table(COMPILER, noted.rows)
    noted.events.clear()
    table.run(noted.slots, 1, 2, 4)
    assert noted.events == [(2, 0, 2)]
    apart = Noted([1] * 4, [PIECE] * 4, series=2)  # the arguments of the next one do not follow
    assert apart.run([], 1) == [(k, 0, 1) for k in range(4)]
    mixed, other = Noted([1] * 5, [PIECE] * 5, series=1), Noted([1] * 5, [PIECE] * 5, series=1)
    mixed.rows[2] = other.rows[2]
    assert mixed.run([], 1) == [(0, 0, 2), (3, 0, 2)]
    assert other.events == [(2, 0, 1)]


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("count", [1, 2, 7, 100, 1000])
def test_a_wave_of_one_kind_is_cut_in_pieces_that_shrink(count: int, threads: int) -> None:
    noted = Noted([1] * count, [4 * PIECE] * count, series=1)
    events = sorted(noted.run([each(range(count))], threads))
    assert [begin for _, begin, _ in events] == [0] * len(events)
    numbers = [number + k for number, _, launches in events for k in range(launches)]
    assert numbers == [*range(count)]
    sizes = [launches for _, _, launches in events]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] <= max(1, -(-count // (SHARES * threads)))
    assert sizes[-1] == 1
