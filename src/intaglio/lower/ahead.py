"""Reading ahead: what the next panel of a matrix is read from is asked for while the present one is multiplied.

A processor reads ahead along a page by itself. The rows of a panel lie in as many pages as there are rows, so the first
tile of each panel would wait for most of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, make, substitute, walk
from intaglio.lower.binding import Binding
from intaglio.ops.loop import PREFETCH, Range
from intaglio.ops.memory import Load

if TYPE_CHECKING:
    import itertools

    from intaglio.lower.emit import Emitter

LINE: Final = 64  # bytes of a line of memory
APART: Final = 8  # rows of a panel that are multiplied between two reads at least: so many that a loop over them pays


class Ahead:
    """The reads of a matrix, of which some rows of a panel can be asked for."""

    def __init__(
        self, emitter: Emitter, axes: itertools.count[int], factor: Node, *, row: Node, column: Node, panel: int
    ) -> None:
        """Of a factor whose rows and columns are two ranges, by panels of some columns."""
        self._emitter: Final = emitter
        self._row: Final = make(Range(next(axes)), row.src[0])
        self._column: Final = make(Range(next(axes)), column.src[0])
        reads = [n for n in walk((factor,)) if isinstance(n.op, Load) and _steps(emitter, n, row, column)]
        places = substitute([n.src[1] for n in reads], {row: self._row, column: self._column})
        pointers = [n.src[0] for n in reads]
        # The last element of each line's worth: the line of the panel's first element is at hand if it is shared.
        self._lines: Final = [
            (pointer, place, [min(k + LINE // pointer.dtype.itemsize, panel) - 1 for k in _starts(pointer, panel)])
            for pointer, place in zip(pointers, places, strict=True)
        ]

    def __bool__(self) -> bool:
        """Whether there is anything to be asked for."""
        return bool(self._lines)

    def ask(self, row: Node, count: int, column: Node) -> None:
        """Ask for some rows, from one on, of the panel that starts at a column."""
        emitter = self._emitter
        frame = len(emitter.frames) - 1
        for r, first, instances in ((self._row, row, count), (self._column, column, 1)):
            emitter.bit(r)
            emitter.bound[r] = Binding(frame, first, instances)
        for pointer, place, offsets in self._lines:
            for k in range(count):
                for offset in offsets:
                    at, _ = emitter.address(place, {self._row: k, self._column: offset})
                    emitter.effect(make(PREFETCH, pointer, at))
        del emitter.bound[self._row], emitter.bound[self._column]


def shares(lines: int, tiles: int) -> tuple[int, int]:
    """(rows that are multiplied between two reads, rows of the next panel asked for there) of a panel of some rows.

    Each of the tiles that use a panel asks for a part of the next one.
    """
    count = min(-(-APART // tiles), -(-lines // tiles))
    return tiles * count, count


def _starts(pointer: Node, panel: int) -> range:
    """Where each line's worth of a panel's row starts."""
    return range(0, panel, LINE // pointer.dtype.itemsize)


def _steps(emitter: Emitter, node: Node, row: Node, column: Node) -> bool:
    """Whether a load steps evenly along rows, and by neighbours along columns."""
    _, terms = emitter.index.affine(node.src[1])
    both = emitter.bit(row) | emitter.bit(column)
    even = not any(emitter.mask(t) & both for t in terms if t is not row and t is not column)
    return even and terms.get(column) == 1 and row in terms
