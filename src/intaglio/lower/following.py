"""What the product after the one at hand works on, of the next sheet or the next launch, asked for tile by tile.

Products that are each in the first caches leave them to one another: each would wait for what it reads first, the more
so the smaller it is, and its stores for pages that nobody has used for long.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from intaglio.lower.index import number
from intaglio.lower.upcoming import Upcoming, shares
from intaglio.ops.elementwise import add, floor_div, mul
from intaglio.ops.memory import load

if TYPE_CHECKING:
    import itertools

    from intaglio.ir.node import Node
    from intaglio.lower.emit import Emitter
    from intaglio.lower.loops import Place


@dataclass(frozen=True, slots=True)
class Tiling:
    """The rows and columns of a product: their ranges, how many there are, how many a tile has."""

    row: Node
    column: Node
    height: int
    width: int
    rows: int
    panel: int


class Following:
    """The product after this one, of which each tile asks for a part between the turns of its sum.

    That is what the same tile reads there by rows, and stores, and its share of the columns, which all tiles read.
    """

    def __init__(
        self,
        emitter: Emitter,
        axes: itertools.count[int],
        tiling: Tiling,
        fold: Node,
        *,
        place: Place | None = None,
        sheet: Node | None = None,
    ) -> None:
        """Of a sum along one range.

        Args:
            place: Where results are stored, if they are asked for as well.
            sheet: The range whose next value is the next product; None for the next launch.
        """
        self._emitter: Final = emitter
        self._tiling: Final = tiling
        body, self._along = fold.src
        is_column = [bool(emitter.mask(s) & emitter.bit(tiling.column)) for s in body.src]
        columns, rows = (body.src[is_column.index(wanted)] for wanted in (True, False))
        upcoming = partial(Upcoming, emitter, axes, sheet=sheet, series=sheet is None)
        self._columns: Final = upcoming(columns, row=self._along, column=tiling.column)
        self._rows: Final = upcoming(rows, row=tiling.row, column=self._along)
        result = None if place is None else load(place.pointer, place.index)
        self._results: Final = None if result is None else upcoming(result, row=tiling.row, column=tiling.column)

    def is_asked_for(self, depth: int) -> bool:
        """Have it asked for, between turns of the sum, of which there are `depth`; whether there is anything."""
        tiling = self._tiling
        tiles, panels = tiling.height // tiling.rows, -(-tiling.width // tiling.panel)
        every, _ = shares(depth, tiles)
        every = -(-every // self._rows.line) * self._rows.line  # whole lines of rows

        def ask(counter: Node) -> None:
            self._ask_columns(counter, -(-every // tiles))
            self._ask_rows(counter, every, -(-tiling.rows // panels))
            self._ask_results(counter, every, -(-tiling.rows // -(-depth // every)))

        asks = self._columns.is_in_lines or self._rows.is_in_lines
        if asks:
            self._emitter.beside[self._along] = every, ask
        return asks

    def _ask_columns(self, counter: Node, count: int) -> None:
        """Ask for `count` rows of the matrix: each tile for others."""
        tiling = self._tiling
        if self._columns.is_in_lines:
            row = self._put(add(counter, self._times(self._base(tiling.row), tiling.rows, count)))
            self._columns.ask(row, range(count), self._base(tiling.column), self._columns.along(tiling.panel))

    def _ask_rows(self, counter: Node, every: int, count: int) -> None:
        """Ask for what comes next in `count` of the tile's rows: in each panel in others."""
        tiling = self._tiling
        if self._rows.is_in_lines:
            before = self._times(self._base(tiling.column), tiling.panel, count)
            row = self._put(add(self._base(tiling.row), before))
            self._rows.ask(row, range(count), counter, self._rows.along(every))

    def _ask_results(self, counter: Node, every: int, count: int) -> None:
        """Ask for where `count` of the tile's rows are stored: after some turns for others."""
        tiling = self._tiling
        if self._results is not None and self._results.is_in_lines:
            row = self._put(add(self._base(tiling.row), self._times(counter, every, count)))
            self._results.ask(row, range(count), self._base(tiling.column), self._results.along(tiling.panel))

    def _base(self, r: Node) -> Node:
        """Where a range begins in this tile."""
        return self._emitter.bound[r].base

    def _times(self, value: Node, unit: int, count: int) -> Node:
        """How often a unit goes into a value, times a number."""
        return self._put(mul(self._put(floor_div(value, number(unit))), number(count)))

    def _put(self, node: Node) -> Node:
        """Have an instruction in the innermost frame."""
        return self._emitter.put(len(self._emitter.frames) - 1, node)
