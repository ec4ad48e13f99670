"""Reductions down the columns of a large matrix: its rows are read in order, the results so far stay in a cache."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, make, substitute, walk
from intaglio.lower.binding import Binding, Instance
from intaglio.lower.index import number
from intaglio.lower.loops import CHUNKS, Place
from intaglio.ops.elementwise import add, minimum
from intaglio.ops.loop import Range
from intaglio.ops.memory import Load, Local, load
from intaglio.ops.reduce import COMBINES, Fold

if TYPE_CHECKING:
    import itertools

    from intaglio.lower.loops import Body, Loops

ROWS: Final = 8  # rows read at once: as many streams as processors follow
UNROLL: Final = 2  # vectors of a row at once
COLUMNS: Final = 1 << 15  # bytes of results that stay in the first cache
PIECE: Final = 1 << 11  # bytes of a row that are read at once at least
PAGE: Final = 1 << 12  # bytes of a row that one thread reads, if there are so many for each


class Stream:
    """A store whose value holds one fold, which steps through memory by whole rows."""

    def __init__(self, loops: Loops, axes: itertools.count[int], place: Place, fold: Node, column: Node) -> None:
        """Of the store, its fold, and the range of columns that vectors run along."""
        assert isinstance(fold.op, Fold)
        self.loops: Final = loops
        self.emitter: Final = loops.emitter
        self.column: Final = column
        self.kind: Final = fold.op.kind
        self.start: Final = COMBINES[fold.op.kind].identity(fold.dtype)
        self.body: Final = fold.src[0]
        self.rows: Final = list(fold.src[1:])
        self.lanes: Final = loops.emitter.lanes_of(place.value)
        self.unroll: Final = loops.decide.of("vectors", UNROLL, (1, 2, 4))
        self.count: Final = loops.decide.of("rows", ROWS, (ROWS // 4, ROWS // 2, 2 * ROWS))
        self.unit: Final = self.lanes * self.unroll
        most = loops.decide.of("bytes", COLUMNS, (COLUMNS // 2, 2 * COLUMNS, 4 * COLUMNS))
        self.columns: Final = most // fold.dtype.itemsize // self.unit * self.unit
        self.block: Final = make(Range(next(axes)), column.src[0])  # the first column of a block
        self.scratch: Final = make(Local(next(axes), fold.dtype, self.columns))
        self.index: Final = self.emitter.index.sum([(column, 1), (self.block, -1)])
        (value,) = substitute((place.value,), {fold: load(self.scratch, self.index)})
        self.place: Final = Place(place.pointer, place.index, value)

    def run(self, outer: list[Node], *, split: bool) -> None:
        """Write the loops: blocks of columns, and in each all rows; `split`: threads share the blocks."""
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
            self._block(counter, end)
            return carried

        self.loops.nest(outer, blocks)

    def _share(self, extent: int) -> int:
        """Columns of a chunk: pieces of rows that are not too short, as many for each thread, and equally long."""
        size, threads = extent * self.scratch.dtype.itemsize, self.emitter.target.threads
        chunks = max(1, min(CHUNKS, size // PAGE), min(threads, 2 * size // PIECE))
        chunks -= chunks % threads if chunks > threads else 0
        return -(-extent // chunks // self.unit) * self.unit

    def _block(self, start: Node, end: Node) -> None:
        """One block: what the fold starts from, all rows, the values that are stored."""
        emitter, place = self.emitter, self.place

        def begin(instances: list[Instance], _: int) -> None:
            for instance in instances:
                emitter.store(self.scratch, self.index, self.start, instance)

        def finish(instances: list[Instance], _: int) -> None:
            for instance in instances:
                emitter.store(place.pointer, place.index, emitter.emit(place.value, instance), instance)

        def rows(_: Node, carried: list[Node]) -> list[Node]:
            extent = self.loops.extent(self.rows[-1])
            whole = extent // self.count * self.count
            self._rows(start, end, 0, whole, self.count)
            self._rows(start, end, whole, extent, 1)
            return carried

        self._across(start, end, begin)
        self.loops.nest(self.rows[:-1], rows)
        self._across(start, end, finish)

    def _across(self, start: Node, end: Node, body: Body) -> None:
        """The columns of a block by vectors."""
        self.loops.vectors_between(self.column, start, end, self.lanes, self.unroll, body)

    def _rows(self, start: Node, end: Node, first: int, stop: int, count: int) -> None:
        """Rows taken into the results of a block, `count` at once."""
        emitter, row = self.emitter, self.rows[-1]

        def take(instances: list[Instance], _: int) -> None:
            for instance in instances:
                total = emitter.emit(load(self.scratch, self.index), instance)
                for k in range(count):
                    total = emitter.combine(self.kind, total, self.body, {**instance, row: k})
                emitter.store(self.scratch, self.index, total, instance)

        def run(_: Node, carried: list[Node]) -> list[Node]:
            self._across(start, end, take)
            return carried

        emitter.loop(number(first), number(stop), count, (), run, lambda f, c: (row, Binding(f, c, count)))


def streamed(loops: Loops, place: Place, column: Node) -> Node | None:
    """The fold of a store that is taken row by row: the only one, of a matrix too large for the second cache."""
    emitter = loops.emitter
    folds = [n for n in walk((place.value,)) if isinstance(n.op, Fold)]
    if len(folds) != 1 or loops.extent(column) * folds[0].dtype.itemsize < PIECE:
        return None
    (fold,) = folds
    body, *rows = fold.src
    if not rows:
        return None
    size = math.prod(loops.extent(r) for r in (column, *rows)) * fold.dtype.itemsize
    places = [n.src[1] for n in walk((body,)) if isinstance(n.op, Load)]
    steps = [emitter.index.affine(p)[1] for p in places if emitter.mask(p) & emitter.bit(column)]
    far = PIECE // fold.dtype.itemsize
    by_rows = all(terms.get(column) == 1 and terms.get(rows[-1], 0) >= far for terms in steps)
    return fold if steps and by_rows and size > 2 * emitter.target.level2 else None
