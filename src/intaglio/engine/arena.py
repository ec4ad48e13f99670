"""Places in memory for values that a program needs for a while: where others lay that are dead, or will lie later."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ALIGNMENT: Final = 64  # bytes: a cache line
HOSTS: Final = 8  # results, the largest, before whose first use others may lie in their memory

Places = list[tuple[int | None, int]]


class Life(NamedTuple):
    """The first step that uses a value, the last, and its bytes."""

    first: int
    last: int
    nbytes: int


class Arena:
    """Places in one block, given out step by step.

    Attributes:
        nbytes: How large the block must be.
    """

    def __init__(self, room: int | None = None) -> None:
        """A block that grows as it must, unless there is only some room."""
        self.nbytes: int = room or 0
        self._grows: Final = room is None
        self._gaps: Final = [(0, room)] if room else []  # starts and ends, in order; no two touch
        self._living: Final[list[tuple[int, int, int]]] = []  # the last step, start and end of each value; a heap

    def place(self, life: Life) -> int | None:
        """The start of a value, in the smallest gap that holds it; none if there is no room.

        Values come in the order of their first steps.
        """
        while self._living and self._living[0][0] < life.first:
            _, start, end = heapq.heappop(self._living)
            self._free(start, end)
        size = -(-life.nbytes // ALIGNMENT) * ALIGNMENT
        fits = [(end - start, start, end) for start, end in self._gaps if end - start >= size]
        if fits:
            _, start, end = min(fits)
            self._gaps.remove((start, end))
        elif self._grows:
            start = end = self.nbytes
            if self._gaps and self._gaps[-1][1] == end:  # the last gap grows
                start, _ = self._gaps.pop()
            end = self.nbytes = start + size
        else:
            return None
        if start + size < end:
            insort(self._gaps, (start + size, end))
        heapq.heappush(self._living, (life.last, start, start + size))
        return start

    def _free(self, start: int, end: int) -> None:
        """Some bytes are a gap from now on, with those that it touches."""
        after = bisect_left(self._gaps, (start, end))
        if after < len(self._gaps) and self._gaps[after][0] == end:
            _, end = self._gaps.pop(after)
        if after and self._gaps[after - 1][1] == start:
            start, _ = self._gaps.pop(after - 1)
        insort(self._gaps, (start, end))


def arranged(lives: Sequence[Life], results: Sequence[Life]) -> tuple[Places, int]:
    """Where values lie: in the memory of a result (its number), before that is used, or in a block of their own.

    Args:
        lives: Of values that are needed for a while.
        results: Of what has memory anyway.

    Returns:
        For each value the result, if any, and where it starts; and how large the block is.

    Examples:
        >>> arranged([Life(0, 1, 100), Life(1, 2, 64), Life(2, 3, 60)], [])
        ([(None, 0), (None, 128), (None, 0)], 192)
        >>> arranged([Life(0, 1, 100), Life(1, 2, 100), Life(2, 3, 100)], [Life(3, 4, 128)])
        ([(None, 0), (0, 0), (None, 0)], 128)
    """
    return min((_placed(lives, results, backwards=way) for way in (False, True)), key=lambda found: found[1])


def _placed(lives: Sequence[Life], results: Sequence[Life], *, backwards: bool) -> tuple[Places, int]:
    """As `arranged`, by values in the order of their first steps, or from the last steps back."""
    turned = [Life(-life.last, -life.first, life.nbytes) for life in lives] if backwards else lives
    largest = sorted(range(len(results)), key=lambda number: results[number].nbytes)[-HOSTS:]
    hosts = [(number, Arena(results[number].nbytes // ALIGNMENT * ALIGNMENT)) for number in largest]
    own = Arena()
    found: Places = [(None, 0)] * len(lives)
    for number in sorted(range(len(lives)), key=lambda number: turned[number].first):
        for host, arena in [*hosts, (None, own)]:
            free = host is None or lives[number].last < results[host].first
            start = arena.place(turned[number]) if free else None
            if start is not None:
                found[number] = host, start
                break
    return found, own.nbytes
