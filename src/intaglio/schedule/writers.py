"""The writes of one buffer, found by their place in the program and by the bytes that they touch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from intaglio.ir.view import View

NEVER: Final = 1 << 60
TRIES: Final = 16  # writes whose bounds meet a read's that are compared with it exactly

Spans: TypeAlias = list[tuple[int, int]]  # (first byte, past the last) of runs that do not meet, ascending


class Writers:
    """The writes of a buffer, in the order of the statements that make them.

    They are the leaves of a tree each of whose inner nodes knows the bytes that the writes below it touch.
    """

    def __init__(self) -> None:
        self._numbers: Final[list[int]] = []
        self._views: Final[list[View | None]] = []
        self._levels: Final[list[list[Spans]]] = []

    def add(self, number: int, view: View | None) -> None:
        """One more write, of a later statement or the same (None: anywhere in the buffer)."""
        self._numbers.append(number)
        self._views.append(view)
        self._levels.clear()

    def first(self, position: int, view: View) -> int:
        """The number of the first statement at or after a position that touches bytes of a view; NEVER if none does.

        Where many writes lie between the bytes of a view and touch none, one of those may be taken for it: what is
        read is then only computed sooner than it need be.
        """
        low, high = view.byte_bounds()
        if low == high:
            return NEVER
        place = bisect_left(self._numbers, position)
        for _ in range(TRIES):
            place = self._next(place, low, high)
            if place == len(self._numbers):
                return NEVER
            target = self._views[place]
            if target is None or target.overlaps(view):
                break
            place += 1
        return self._numbers[min(place, len(self._numbers) - 1)]

    def _next(self, place: int, low: int, high: int) -> int:
        """The first write from a place on whose bounds meet some bytes (past the last if none do)."""
        levels = self._levels or self._build()
        level = 0
        while place < len(levels[level]):
            if _meets(levels[level][place], low, high):
                if level == 0:
                    return place
                level, place = level - 1, 2 * place
            else:
                place += 1
                while place % 2 == 0 and level + 1 < len(levels):
                    level, place = level + 1, place // 2
        return len(self._numbers)

    def _build(self) -> list[list[Spans]]:
        """The tree, leaves first."""
        levels = self._levels
        levels.append([[view.byte_bounds() if view is not None else (0, NEVER)] for view in self._views])
        while len(levels[-1]) > 1:
            below = levels[-1]
            levels.append([_merged(below[k : k + 2]) for k in range(0, len(below), 2)])
        return levels


def _merged(parts: list[Spans]) -> Spans:
    """The bytes of all parts, as runs that do not meet."""
    found: Spans = []
    for low, high in sorted(span for part in parts for span in part):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return found


def _meets(spans: Spans, low: int, high: int) -> bool:
    """Whether some bytes are among those of the spans."""
    place = bisect_right(spans, (low, NEVER)) - 1  # the last that begins at or before the first byte
    return (place >= 0 and spans[place][1] > low) or (place + 1 < len(spans) and spans[place + 1][0] < high)
