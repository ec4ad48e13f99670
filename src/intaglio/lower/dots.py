"""Products of a few rows, two at least, by a matrix whose columns lie apart: sums along memory, some at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, walk
from intaglio.lower.ahead import asked_ahead
from intaglio.lower.binding import Binding
from intaglio.lower.emit import Ahead
from intaglio.lower.index import number
from intaglio.lower.loops import CHUNK
from intaglio.lower.product import row_range
from intaglio.lower.turn import turned_range
from intaglio.ops.elementwise import Mul, maximum, minimum
from intaglio.ops.reduce import Fold

if TYPE_CHECKING:
    from intaglio.lower.loops import Loops, Place

ROWS: Final = 8  # at once, at most
COLUMNS: Final = 4
NARROW: Final = 2  # columns at once beside more than half as many rows: sums must fit in the registers


class Dots:
    """One product being lowered: for some columns, all rows; each number is a sum of vectors along memory."""

    def __init__(self, loops: Loops, place: Place, row: Node, column: Node) -> None:
        """Of a store, and what `dot_ranges` found."""
        self.loops: Final = loops
        self.place: Final = place
        self.row: Final = row
        self.column: Final = column
        self.height: Final = loops.extent(row)
        blocks = -(-self.height // ROWS)
        self.rows: Final = -(-self.height // blocks)
        columns = COLUMNS if self.rows <= ROWS // 2 else NARROW
        self.columns: Final = loops.decide.of("columns", columns, (1, 2, 4) if self.height % self.rows == 0 else ())
        self.ahead: Final = self._reads()

    def run(self, sheets: list[Node], work: int, *, split: bool) -> None:
        """Write the loops; `split`: threads share the columns."""
        emitter = self.loops.emitter
        width = self.loops.extent(self.column)
        start, stop = number(0), number(width)
        if split and work >= 2 * CHUNK and emitter.target.threads > 1:
            start, stop = self.loops.chunk(width, work, self.columns)
        whole = width // self.columns * self.columns

        def sheet(_: Node, carried: list[Node]) -> list[Node]:
            level = len(emitter.frames) - 1
            self._across(start, emitter.put(level, minimum(stop, number(whole))), self.columns)
            if whole < width:
                self._across(emitter.put(level, maximum(start, number(whole))), stop, 1)
            return carried

        self.loops.nest(sheets, sheet)

    def _reads(self) -> list[Node]:
        """What is asked for ahead."""
        (fold,) = (n for n in walk((self.place.value,)) if isinstance(n.op, Fold))
        ranges = list(fold.src[1:])
        (factor,) = (s for s in fold.src[0].src if self.loops.emitter.mask(s) & self.loops.emitter.bit(self.column))
        along = turned_range(self.loops.emitter, factor, self.column, ranges)
        return [] if along is None else asked_ahead(self.loops, fold, self.column, self.row, along)

    def _across(self, start: Node, stop: Node, count: int) -> None:
        """Columns, `count` at once, each time with all rows."""
        self.loops.emitter.ahead.update(dict.fromkeys(self.ahead, Ahead(self.column, count)))

        def run(_: Node, carried: list[Node]) -> list[Node]:
            whole = self.height // self.rows * self.rows
            self._down(0, whole, self.rows, count)
            self._down(whole, self.height, self.height - whole, count)
            return carried

        self.loops.emitter.loop(start, stop, count, (), run, lambda f, c: (self.column, Binding(f, c, count)))

    def _down(self, first: int, stop: int, rows: int, columns: int) -> None:
        """Rows, some at once, with some columns."""
        emitter, place = self.loops.emitter, self.place

        def run(_: Node, carried: list[Node]) -> list[Node]:
            for m in range(rows):
                for c in range(columns):
                    one = {self.column: c, self.row: m}
                    emitter.store(place.pointer, place.index, emitter.emit(place.value, one), one)
            return carried

        if first < stop:
            emitter.loop(number(first), number(stop), rows, (), run, lambda f, c: (self.row, Binding(f, c, rows)))


def dot_ranges(loops: Loops, place: Place, ranges: list[Node]) -> tuple[Node, Node] | None:
    """(the rows, the columns) of a store of sums along memory, if there is more than one row."""
    emitter = loops.emitter
    folds = [n for n in walk((place.value,)) if isinstance(n.op, Fold)]
    _, terms = emitter.index.affine(place.index)
    columns = [r for r in ranges if terms.get(r) == 1]
    if len(folds) != 1 or len(columns) != 1 or not isinstance(folds[0].src[0].op, Mul):
        return None
    (fold,), (column,) = folds, columns
    know = [s for s in fold.src[0].src if emitter.mask(s) & emitter.bit(column)]
    if len(know) != 1 or turned_range(emitter, know[0], column, list(fold.src[1:])) is None:
        return None
    row = row_range(loops, place.value, ranges, column)
    return None if row is None else (row, column)
