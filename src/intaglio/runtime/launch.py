"""Launches: a table of kernels, run by one native call; threads share some of them."""

from __future__ import annotations

import itertools
from array import array
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from intaglio.core.trace import GlobalCounters
from intaglio.runtime.pool import pool
from intaglio.runtime.taking import EACH, SIGNATURE, shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.runtime.compiler import Compiler

PIECE: Final = 1 << 16  # the cost of a piece of a wave at least (some microseconds): to take one is two words exchanged
SHARES: Final = 4  # pieces for each thread that what is left of a wave is cut in at least
Wave: TypeAlias = (
    "Sequence[Sequence[int]]"  # chains, of numbers of kernels, which are neighbours; the first comes first
)
HEAD: Final = 3  # words of a job's head: what says where all arguments lie, its calls, the first call of each piece
CALL: Final = 4  # words of a call: a kernel, the place of its first argument, its first chunk and past the last
DRIVER: Final = f"""
define void @run_pieces(ptr %args, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %base.at = load ptr, ptr %args
  %base = load ptr, ptr %base.at
  %calls.at = getelementptr i64, ptr %args, i64 1
  %calls = load ptr, ptr %calls.at
  %bounds.at = getelementptr i64, ptr %args, i64 2
  %bounds = load ptr, ptr %bounds.at
  %first.at = getelementptr i64, ptr %bounds, i64 %begin
  %first = load i64, ptr %first.at
  %last.at = getelementptr i64, ptr %bounds, i64 %end
  %last = load i64, ptr %last.at
  %some = icmp slt i64 %first, %last
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [%first, %entry], [%j, %loop]
  %call = getelementptr [{CALL} x i64], ptr %calls, i64 %i
  %kernel = load ptr, ptr %call
  %start.at = getelementptr i64, ptr %call, i64 1
  %start = load i64, ptr %start.at
  %slots = getelementptr i64, ptr %base, i64 %start
  %chunk.at = getelementptr i64, ptr %call, i64 2
  %chunk = load i64, ptr %chunk.at
  %stop.at = getelementptr i64, ptr %call, i64 3
  %stop = load i64, ptr %stop.at
  call void %kernel(ptr %slots, i64 %chunk, i64 %stop, ptr %scratch)
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %last
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


@cache
def _driver(compiler: Compiler) -> int:
    """The native loop over calls: its address."""
    return compiler.load(DRIVER, "run_pieces")[0]


class Row(NamedTuple):
    """A kernel of a table.

    Attributes:
        address: Its function.
        start: The place of its first argument among those of all.
        chunks: How many it has.
        cost: What it is estimated to take.
        series: If launches of it may be one call, how many arguments it has; else 0.
        worth: What it must take for threads to share it.
    """

    address: int
    start: int
    chunks: int
    cost: int
    series: int = 0
    worth: int = 0


class _Schedule:
    """What is called in which order, made once for a number of threads: jobs, of pieces, of calls.

    Jobs come one after the other. The pieces of one are independent, so threads share them; the calls of a piece (a
    kernel and some of its chunks) are made by one thread.

    Attributes:
        base: Where all arguments lie, filled in at each run.
        jobs: The address of each job's head, and how many pieces it has.
        most: How many pieces a job has at most.
        waves: How many jobs are of several kernels that threads share.
    """

    def __init__(self, rows: Sequence[Row], waves: Sequence[Wave], threads: int, first: int, last: int) -> None:
        self._calls: Final = array("Q")
        self._bounds: Final = array("Q", [0])
        self._begins: Final[list[int]] = []
        self._pieces: Final[list[int]] = []
        self.waves: int = 0
        begun = {wave[0][0]: wave for wave in waves} if threads > 1 else {}
        number = first
        while number < last:
            row, wave = rows[number], begun.get(number, ())
            number += 1
            count = sum(map(len, wave))
            if 0 < count <= last - wave[0][0]:
                self._job(_shared([[rows[k] for k in chain] for chain in wave], threads))
                self.waves += self._pieces[-1] > 1
                number += count - 1
            elif row.chunks > 1 and threads > 1 and row.cost >= row.worth:
                self._job(_chunks(row, range(row.chunks)))
            elif self._pieces and self._pieces[-1] == 1:
                _add(self._calls, row)
                self._bounds[-1] = len(self._calls) // CALL
            else:
                self._job([_whole(row)])
        calls, bounds = self._calls.buffer_info()[0], self._bounds.buffer_info()[0]
        self.base: Final = array("Q", [0])
        base = self.base.buffer_info()[0]
        self._heads: Final = array("Q", [word for k in self._begins for word in (base, calls, bounds + 8 * k)])
        head = self._heads.buffer_info()[0]
        each = enumerate(self._pieces)
        self.jobs: Final = array("Q", [word for k, pieces in each for word in (head + 8 * HEAD * k, pieces)])
        self.most: Final = max(self._pieces, default=0)

    def _job(self, pieces: Sequence[Sequence[int]]) -> None:
        """One more job: for each piece the words of its calls."""
        self._begins.append(len(self._bounds) - 1)
        self._pieces.append(len(pieces))
        for piece in pieces:
            self._calls.extend(piece)
            self._bounds.append(len(self._calls) // CALL)


def _whole(row: Row) -> list[int]:
    """A kernel, all of it."""
    return [row.address, row.start, 0, row.chunks]


def _add(calls: list[int] | array[int], row: Row) -> None:
    """One more kernel to be run, all of it: by the last call, where that is of launches that it follows as one more."""
    if calls and row.series and calls[-CALL] == row.address:
        _, start, _, launches = calls[-CALL:]
        if start + launches * row.series == row.start:
            calls[-1] += 1
            return
    calls.extend(_whole(row))


def _chunks(row: Row, chunks: range) -> list[list[int]]:
    """Some of a kernel's chunks, each a piece."""
    return [[row.address, row.start, k, k + 1] for k in chunks]


def _shared(chains: Sequence[Sequence[Row]], threads: int) -> list[list[int]]:
    """Independent chains of kernels as pieces, each thread's dearest first: so all end at about the same time.

    Pieces are dealt to the threads in turn, and lie in the order of the threads: so what each is dealt is its share. Of
    a kernel that is cut in chunks, each gets neighbours, as if the kernel were alone; who was next gets the first.
    A kernel is cut in chunks only if whole it would take longer than a thread's part of what is left: chunks may each
    copy what all of them need. Chains that take little more than it takes to share them go together, and so do those
    of which there are many: where each asks for what the next one reads, that one should be run by the same thread.
    """
    dealt: list[list[list[int]]] = [[] for _ in range(threads)]
    turn = 0  # who is next
    last: list[int] = []  # the last piece,
    costs = [sum(row.cost for row in chain) for chain in chains]
    rest = sum(costs)
    room = 0  # and what it may still take
    for cost, chain in sorted(zip(costs, chains, strict=True), key=lambda found: -found[0]):
        if len(chain) == 1 and chain[0].chunks > 1 and threads * cost > rest:
            for place, chunks in enumerate(shares(chain[0].chunks, threads)):
                dealt[(turn + place) % threads] += _chunks(chain[0], chunks)
            turn += chain[0].chunks
            room = 0
        else:
            if room <= 0:
                last = []
                dealt[turn % threads].append(last)
                turn += 1
                room = max(PIECE, rest // (SHARES * threads))
            for row in chain:
                _add(last, row)
            room -= cost
        rest -= cost
    return [*itertools.chain.from_iterable(dealt)]


class Table:
    """Kernels in order, and which of them are independent of one another."""

    def __init__(self, compiler: Compiler, rows: Sequence[Row], waves: Sequence[Wave] = ()) -> None:
        """Note the kernels. `waves`: neighbours that fall into chains none of which needs what another does."""
        self._compiler: Final = compiler
        self._address: Final = _driver(compiler)
        self._alone: Final = SIGNATURE(self._address)
        self._rows: Final = rows
        self._waves: Final = waves
        self._schedules: Final[dict[tuple[int, int, int], _Schedule]] = {}

    def run(self, slots: array[int], threads: int, first: int, last: int) -> None:
        """Run kernels `first` to before `last`, one run at a time: by one native call if no thread is waited for.

        Args:
            slots: The 8-byte arguments of all kernels.
        """
        schedule = self._schedules.get((threads, first, last))
        if schedule is None:
            made = _Schedule(self._rows, self._waves, threads, first, last)
            schedule = self._schedules[threads, first, last] = made
        if schedule.waves:
            GlobalCounters.wave_count += schedule.waves
        schedule.base[0] = slots.buffer_info()[0]
        if len(schedule.jobs) == EACH and schedule.most == 1:
            self._alone(schedule.jobs[0], 0, 1, pool.scratch)
        else:
            pool.run_all(self._compiler, self._address, schedule.jobs, min(threads, schedule.most))
