"""What the next panel of a matrix is read from, asked for while the present one is multiplied.

A processor reads ahead along a page by itself. The rows of a panel lie in as many pages as there are rows, and it is
read at once: what uses it first would wait for all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, make, substitute, walk
from intaglio.lower.binding import Binding
from intaglio.lower.emit import LINE
from intaglio.lower.index import number
from intaglio.ops.elementwise import add
from intaglio.ops.loop import PREFETCH, Range
from intaglio.ops.memory import Load, NextParam, Param

if TYPE_CHECKING:
    import itertools
    from collections.abc import Iterable

    from intaglio.lower.emit import Emitter

APART: Final = 8  # rows of a panel that are multiplied between two reads at least: so many that a loop over them pays


class Upcoming:
    """The reads of a matrix, of which some elements can be asked for."""

    def __init__(
        self,
        emitter: Emitter,
        axes: itertools.count[int],
        factor: Node,
        *,
        row: Node,
        column: Node,
        sheet: Node | None = None,
        series: bool = False,
    ) -> None:
        """Of a factor whose rows and columns are two ranges.

        Args:
            sheet: If its values are many matrices, of the next one.
            series: If launches follow one another, of the next one.
        """
        self._emitter: Final = emitter
        self._sheet: Final = None if sheet is None else (sheet, make(Range(next(axes)), sheet.src[0]))
        self._row: Final = make(Range(next(axes)), row.src[0])
        self._column: Final = make(Range(next(axes)), column.src[0])
        reads = {n.src[0]: n for n in walk((factor,)) if isinstance(n.op, Load) and _is_even(emitter, n, row, column)}
        moved = {row: self._row, column: self._column, **dict([self._sheet] if self._sheet else [])}
        places = substitute([n.src[1] for n in reads.values()], moved)
        pointers = [make(NextParam(p.op.slot, p.op.of)) if series and isinstance(p.op, Param) else p for p in reads]
        self._reads: Final = list(zip(pointers, places, strict=True))
        self.line: Final = LINE // max((n.dtype.itemsize for n in reads), default=LINE)  # elements of one

    def __bool__(self) -> bool:
        """Whether there is anything to be asked for."""
        return bool(self._reads)

    @property
    def is_in_lines(self) -> bool:
        """Whether there is anything to be asked for, of which what has neighbouring columns lies side by side."""
        steps = [self._emitter.index.affine(place)[1].get(self._column) for _, place in self._reads]
        return bool(steps) and all(step == 1 for step in steps)

    def along(self, count: int) -> range:
        """One of each line's worth of so many neighbours, of which the first may lie in the line before them."""
        return range(min(self.line, count) - 1, count, self.line)

    def ask(self, row: Node, rows: Iterable[int], column: Node, columns: Iterable[int]) -> None:
        """Ask for elements: so many rows and columns after one."""
        emitter = self._emitter
        frame = len(emitter.frames) - 1
        starts = {self._row: row, self._column: column}
        if self._sheet is not None:
            sheet, following = self._sheet
            starts[following] = emitter.put(frame, add(emitter.bound[sheet].base, number(1)))
        for r, first in starts.items():
            emitter.bit(r)
            emitter.bound[r] = Binding(frame, first)
        for pointer, place in self._reads:
            for k in rows:
                for c in columns:
                    at, _ = emitter.address(place, {self._row: k, self._column: c})
                    emitter.effect(make(PREFETCH, pointer, at))
        for r in starts:
            del emitter.bound[r]


def shares(lines: int, tiles: int) -> tuple[int, int]:
    """(rows that are multiplied between two reads, rows of the next panel asked for there) of a panel of some rows.

    Each of the tiles that use a panel asks for a part of the next one.
    """
    count = min(-(-APART // tiles), -(-lines // tiles))
    return tiles * count, count


def _is_even(emitter: Emitter, node: Node, row: Node, column: Node) -> bool:
    """Whether a load steps evenly along rows and columns of what is no scratch, from where no other load says.

    Another load would really run.
    """
    if not isinstance(node.src[0].op, Param) or any(isinstance(n.op, Load) for n in walk((node.src[1],))):
        return False
    _, terms = emitter.index.affine(node.src[1])
    both = emitter.bit(row) | emitter.bit(column)
    return {row, column} <= terms.keys() and sum(bool(emitter.mask(t) & both) for t in terms) == 2
