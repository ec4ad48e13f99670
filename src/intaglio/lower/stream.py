"""Reductions down the columns of a large matrix: its rows are read in order, the results so far stay in a cache.

So are products of a few rows by one: memory takes the time, whatever is computed with what is read. A sum has results
of its own for each level of its blocks (`lower/sums.py`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, make, substitute, walk
from intaglio.lower.ahead import asked_ahead
from intaglio.lower.binding import Binding, Instance
from intaglio.lower.emit import LINE, Ahead
from intaglio.lower.index import number
from intaglio.lower.loops import CHUNKS, Place
from intaglio.lower.product import row_range
from intaglio.lower.sums import SPAN, blocks_across
from intaglio.lower.totals import Totals, levels_of, spans_down
from intaglio.ops.elementwise import add, minimum
from intaglio.ops.loop import Range
from intaglio.ops.memory import Load, Local, load
from intaglio.ops.reduce import COMBINES, Fold

if TYPE_CHECKING:
    import itertools
    from collections.abc import Sequence

    from intaglio.lower.loops import Body, Loops

FEW: Final = 7  # rows of a product at most: more are faster by tiles (`lower/slabs.py`)
COMPUTED_FEW: Final = 8  # the same by a matrix that is computed, which tiles of more rows would copy
PRODUCT_ROWS: Final = 4  # rows read at once for a product of some rows, each of which multiplies them by other numbers
UNROLL: Final = 2  # vectors of a row at once
COLUMNS: Final = 1 << 15  # bytes of results that stay in the first cache
NARROW: Final = 1 << 9  # bytes of a row at least
PIECE: Final = 1 << 11  # bytes of a row that are read at once at least, where threads share it
PAGE: Final = 1 << 12  # bytes of a row that one thread reads, if there are so many for each


class Stream:
    """A store whose value holds one fold, which steps through memory by whole rows."""

    def __init__(
        self,
        loops: Loops,
        axes: itertools.count[int],
        place: Place,
        fold: Node,
        column: Node,
        row: Node | None = None,
        scratch: Sequence[Node] = (),
    ) -> None:
        """Of the store, its fold, the range of columns that vectors run along, and that of a product's rows.

        Args:
            scratch: That of the store before, which is used again where it fits.
        """
        assert isinstance(fold.op, Fold)
        self.loops: Final = loops
        self.emitter: Final = loops.emitter
        self.column: Final = column
        self.row: Final = row
        self.height: Final = 1 if row is None else loops.extent(row)
        self.kind: Final = fold.op.kind
        self.start: Final = COMBINES[fold.op.kind].identity(fold.dtype)
        self.body: Final = fold.src[0]
        self.rows: Final = list(fold.src[1:])
        masks = tuple(self.emitter.mask(s) for s in self.body.src)
        blocks = blocks_across(self.kind, self.body, masks, self.emitter.bit(column))
        self.apart: Final = SPAN in blocks  # whether the rows that are taken at once are a sum of their own
        self.lanes: Final = loops.emitter.lanes_of(place.value)
        self.ahead: Final = asked_ahead(loops, fold, column, row, column)
        least = min((n.dtype.itemsize for n in self.ahead), default=LINE)
        self.unroll: Final = loops.decide.of("vectors", max(UNROLL, LINE // (self.lanes * least)), (1, 2, 4))
        streams = self.emitter.target.streams
        count = SPAN if self.apart else streams if row is None else PRODUCT_ROWS
        others = () if self.apart else (streams // 4, streams // 2, 2 * streams)
        self.count: Final = loops.decide.of("rows", count, others)
        self.unit: Final = self.lanes * self.unroll
        most = loops.decide.of("bytes", COLUMNS, (COLUMNS // 2, 2 * COLUMNS, 4 * COLUMNS))
        self.spans: Final = spans_down(self.emitter.index, self.rows, blocks, self.count)
        levels = levels_of(self.spans)
        near = min(levels, 2) if self.apart else 1  # of a product, the others are seldom asked for
        columns = most // near // self.height // fold.dtype.itemsize
        self.columns: Final = columns // self.unit * self.unit
        self.block: Final = make(Range(next(axes)), column.src[0])  # the first column of a block
        stride = self.columns + self.lanes  # rows that lie a power of two apart would share few places of a cache
        size = self.columns + (self.height - 1) * stride
        fits = [(s.op.of, s.op.size) for s in scratch if isinstance(s.op, Local)] == [(fold.dtype, size)] * levels
        self.sums: Final = [*scratch] if fits else [make(Local(next(axes), fold.dtype, size)) for _ in range(levels)]
        down = [] if row is None else [(row, stride)]
        self.index: Final = self.emitter.index.sum([*down, (column, 1), (self.block, -1)])
        (value,) = substitute((place.value,), {fold: load(self.sums[0], self.index)})
        self.place: Final = Place(place.pointer, place.index, value)

    def run(self, ranges: list[Node], *, split: bool) -> None:
        """Write the loops over all ranges of the store: blocks of columns, and in each all rows.

        Args:
            ranges: Those of the store, the columns' and the rows' among them.
            split: Whether threads share the blocks.
        """
        outer = [r for r in ranges if r is not self.column and r is not self.row]
        extent = self.loops.extent(self.column)
        start, stop = number(0), number(extent)
        if split and self.emitter.target.threads > 1:
            start, stop = self.loops.chunk_of(extent, self._share(extent))

        def blocks(_: Node, carried: list[Node]) -> list[Node]:
            self.emitter.bit(self.block)
            self.emitter.loop(start, stop, self.columns, (), block, lambda f, c: (self.block, Binding(f, c)))
            return carried

        def block(counter: Node, carried: list[Node]) -> list[Node]:
            level = len(self.emitter.frames) - 1
            end = self.emitter.put(level, minimum(self.emitter.put(level, add(counter, number(self.columns))), stop))
            if self.row is not None:
                self.emitter.bit(self.row)
                self.emitter.bound[self.row] = Binding(level, number(0), self.height)
            self._block(counter, end)
            if self.row is not None:
                del self.emitter.bound[self.row]
            return carried

        self.loops.nest(outer, blocks)

    def _share(self, extent: int) -> int:
        """Columns of a chunk: pieces of rows that are not too short, as many for each thread, and equally long."""
        size, threads = extent * self.sums[0].dtype.itemsize, self.emitter.target.threads
        chunks = max(1, min(CHUNKS, size // PAGE), min(threads, 2 * size // PIECE))
        chunks -= chunks % threads if chunks > threads else 0
        return -(-extent // chunks // self.unit) * self.unit

    def _block(self, start: Node, end: Node) -> None:
        """One block: what the fold starts from, all rows, the values that are stored."""
        emitter, place = self.emitter, self.place

        def finish(instances: list[Instance], _: int) -> None:
            emitter.store_all(place.pointer, place.index, place.value, instances)

        def across(body: Body) -> None:
            self._across(start, end, body)

        def take(level: int, first: Node, stop: Node) -> None:
            self._rows(start, end, level, first, stop)

        Totals(emitter, self.rows, self.spans, self.sums, self.index, self.start, across, take).run()
        across(finish)

    def _across(self, start: Node, end: Node, body: Body) -> None:
        """The columns of a block by vectors, each with all rows of a product."""

        def with_rows(instances: list[Instance], lanes: int) -> None:
            rows: list[Instance] = [{}] if self.row is None else [{self.row: m} for m in range(self.height)]
            body([{**instance, **one} for instance in instances for one in rows], lanes)

        self.loops.vectors_between(self.column, start, end, self.lanes, self.unroll, with_rows)

    def _rows(self, start: Node, end: Node, level: int, first: Node, stop: Node) -> None:
        """Rows taken into the results of a block, `count` at once, then what is left."""
        emitter = self.emitter
        extent = self.loops.extent(self.rows[-1])
        left = extent % self.count
        whole = emitter.put(len(emitter.frames) - 1, minimum(stop, number(extent - left)))
        self._take(start, end, level, first, whole, self.count)
        if left:
            self._take(start, end, level, whole, stop, left if self.apart else 1)

    def _take(self, start: Node, end: Node, level: int, first: Node, stop: Node, count: int) -> None:
        """Rows taken into the results of a block, `count` at once: maybe as a sum of their own."""
        emitter, row, sums = self.emitter, self.rows[-1], self.sums[level]
        emitter.ahead.update(dict.fromkeys(self.ahead, Ahead(row, count)))

        def take(instances: list[Instance], _: int) -> None:
            for instance in instances:
                before = emitter.emit(load(sums, self.index), instance)
                total = emitter.zero(before) if self.apart else before
                for k in range(count):
                    total = emitter.combine(self.kind, total, self.body, {**instance, row: k})
                if self.apart:
                    (total,) = emitter.joined([before], [total])
                emitter.store(sums, self.index, total, instance)

        def run(_: Node, carried: list[Node]) -> list[Node]:
            self._across(start, end, take)
            return carried

        emitter.loop(first, stop, count, (), run, lambda f, c: (row, Binding(f, c, count)))


def streamed(loops: Loops, place: Place, column: Node, row: Node | None = None) -> Node | None:
    """The fold of a store that is taken row by row: the only one, of a matrix that is more than the first cache holds.

    Of a product of some rows, it must fill half of the second: tiles take what is near at once.

    Args:
        row: That of a product, if it has some.
    """
    emitter = loops.emitter
    folds = [n for n in walk((place.value,)) if isinstance(n.op, Fold)]
    if len(folds) != 1 or loops.extent(column) * folds[0].dtype.itemsize < NARROW:
        return None
    (fold,) = folds
    body, *rows = fold.src
    if not rows or (row is not None and loops.extent(row) > _most(loops, body, column)):
        return None
    known = [n for n in walk((body,)) if isinstance(n.op, Load) and emitter.mask(n) & emitter.bit(column)]
    across = [n for n in known if any(emitter.mask(n) & emitter.bit(r) for r in rows)]
    steps = {n: emitter.index.affine(n.src[1])[1] for n in known}
    far = NARROW // fold.dtype.itemsize
    by_rows = all(steps[n].get(rows[-1], 0) >= far for n in across)
    together = all(steps[n].get(column) == 1 for n in known)
    near = emitter.target.level1 if row is None else emitter.target.level2 // 2
    return fold if across and by_rows and together and _size(loops, fold, column) > near else None


def all_streamed(
    loops: Loops, axes: itertools.count[int], places: list[Place], ranges: list[Node], column: Node
) -> list[Stream]:
    """Stores of one shape, all of which are taken row by row, one after the other, in equal chunks of columns; or none.

    Those that read one matrix, of which the second cache holds a part, share their loops instead: it comes from there.
    """
    emitter = loops.emitter
    found: list[tuple[Place, Node, Node | None]] = []
    pointers: list[Node] = []
    for place in places:
        row = row_range(loops, place.value, ranges, column)
        fold = streamed(loops, place, column, row)
        if fold is None:
            return []
        loads = [n for n in walk((fold.src[0],)) if isinstance(n.op, Load) and emitter.mask(n) & emitter.bit(column)]
        pointers += {n.src[0] for n in loads}
        found.append((place, fold, row))
    shared = len({*pointers}) < len(pointers)
    near = shared and all(_size(loops, fold, column) <= 2 * emitter.target.level2 for _, fold, _ in found)
    if near or not loops.decide.of("stream", 1, (0,)):
        return []
    streams: list[Stream] = []
    for place, fold, row in found:
        streams.append(Stream(loops, axes, place, fold, column, row, streams[-1].sums if streams else ()))
    return streams if len({(stream.unit, stream.sums[0].dtype) for stream in streams}) == 1 else []


def _size(loops: Loops, fold: Node, column: Node) -> int:
    """The bytes of all that a fold takes for the columns of a range."""
    return math.prod(loops.extent(r) for r in (column, *fold.src[1:])) * fold.dtype.itemsize


def _most(loops: Loops, body: Node, column: Node) -> int:
    """How many rows a product has at most that is streamed."""
    known = [s for s in body.src if loops.emitter.mask(s) & loops.emitter.bit(column)]
    return FEW if all(isinstance(s.op, Load) for s in known) else COMPUTED_FEW
