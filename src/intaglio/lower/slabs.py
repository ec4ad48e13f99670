"""Products of few rows by a large matrix: slabs of it pass the first cache, the sums so far stay in the second."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, make, substitute, walk
from intaglio.lower.ahead import asked_ahead
from intaglio.lower.binding import Binding, Instance
from intaglio.lower.choice import about
from intaglio.lower.index import number
from intaglio.lower.loops import CHUNKS, Place
from intaglio.lower.product import PACK, tile_shape, tile_shapes
from intaglio.ops.elementwise import add, minimum
from intaglio.ops.loop import Range
from intaglio.ops.memory import Load, Local, const, load
from intaglio.ops.reduce import Fold

if TYPE_CHECKING:
    import itertools

    from intaglio.lower.loops import Body, Loops

ROWS: Final = 192  # at most: of more rows, each makes the copy of columns as a whole cheaper
SHALLOW: Final = 256  # rows of the matrix up to which whole columns are taken
COLUMNS: Final = 2048  # of a block at most
FEWEST: Final = 128  # columns of a block at least, so that long pieces of each row are read
PAGES: Final = 64  # rows of a slab at least: a processor reads ahead in about as many pages
COPIED_ROWS: Final = 64  # the same bounds where a matrix is computed, and so copied
COPIED_SHALLOW: Final = 512
COPIED_COLUMNS: Final = 512


class Slabs:
    """One product being lowered: blocks of columns, in each slabs of rows of the matrix, in each tiles.

    A slab is read where it lies, by panels that stay in the first cache for all rows; what must be computed of the
    matrix is put into scratch first. Each number is the sum of the same terms in the same order as without slabs.
    """

    def __init__(
        self, loops: Loops, axes: itertools.count[int], place: Place, *, row: Node, column: Node, near: bool = False
    ) -> None:
        """Of a store that `is_slabbed`; `near`: the matrix is in a cache and is not copied."""
        self.loops: Final = loops
        self.emitter: Final = loops.emitter
        self.row: Final = row
        self.column: Final = column
        (fold,) = _folds(place.value)
        *self.above, self.depth = fold.src[1:]
        self.lanes: Final = loops.emitter.lanes_of(place.value)
        self.height: Final = loops.extent(row)
        self.width: Final = loops.extent(column)
        size = self.height, self.width // self.lanes, self.emitter.target
        self.tile_rows, self.vectors = loops.decide.of(
            "tile", tile_shape(*size, part=bool(self.width % self.lanes)), tile_shapes(*size)
        )
        unit = self.lanes * self.vectors
        factor = _matrix(loops, fold, column)
        self.copies: Final = not near and not isinstance(factor.op, Load) and self.height > self.tile_rows
        self.columns: Final = self._block_columns(unit, fold.dtype.itemsize, near=near)
        self.ahead: Final = [] if near or self.copies else asked_ahead(loops, fold, column, row, column)
        stride = self.columns + self.lanes  # rows that lie a power of two apart would share few places of a cache
        self.lines: Final = self._slab_lines(unit, stride, factor.dtype.itemsize, near=near)
        self.block: Final = make(Range(next(axes)), column.src[0])  # the first column of a block
        self.first: Final = make(Range(next(axes)), self.depth.src[0])  # the first row of a slab
        self.factor: Final = factor
        self.scratch: Final = make(Local(next(axes), factor.dtype, self.lines * stride))
        self.sums: Final = make(Local(next(axes), fold.dtype, self.height * stride))
        index = self.emitter.index
        self.copied: Final = index.sum([(self.depth, stride), (self.first, -stride), (column, 1), (self.block, -1)])
        self.held: Final = index.sum([(row, stride), (column, 1), (self.block, -1)])
        (self.body,) = substitute((fold.src[0],), {factor: load(self.scratch, self.copied)} if self.copies else {})
        (value,) = substitute((place.value,), {fold: load(self.sums, self.held)})
        self.place: Final = Place(place.pointer, place.index, value)

    def _block_columns(self, unit: int, itemsize: int, *, near: bool) -> int:
        """How many columns a block has: many, but some blocks for each thread, of which scratch holds the sums."""
        threads = self.emitter.target.threads
        share = self.width if near or threads == 1 else max(FEWEST, -(-self.width // (2 * threads)))
        room = (PACK // 2 if self.copies else PACK) // itemsize // self.height - self.lanes
        most = max(1, min(room, COPIED_COLUMNS if self.copies else COLUMNS) // unit)
        panels = -(-share // -(-share // (most * unit)) // unit)  # in blocks that are about equal
        return unit * self.loops.decide.of("panels", panels, about(panels, 1, most))

    def _slab_lines(self, unit: int, stride: int, itemsize: int, *, near: bool) -> int:
        """How many rows of the matrix a slab has.

        A panel of it stays in the first cache. The first tile of a panel waits for memory, more so the more pages the
        rows lie in; the more tiles there are, the less that counts beside taking the sums up again for each slab.
        """
        if self.copies:
            return max(1, (PACK - self.height * stride * itemsize) // (stride * itemsize))
        most = max(1, self.emitter.target.level1 // 2 // (unit * itemsize))
        lines = most if near else min(most, max(PAGES, self.height))
        return self.loops.decide.of("lines", lines, about(lines, 1, most))

    def run(self, sheets: list[Node], *, split: bool) -> None:
        """Write the loops; `split`: threads share blocks of columns."""
        start, stop = number(0), number(self.width)
        if split and self.emitter.target.threads > 1:
            blocks = -(-self.width // self.columns)
            start, stop = self.loops.chunk_of(self.width, -(-blocks // CHUNKS) * self.columns)

        def sheet(_: Node, carried: list[Node]) -> list[Node]:
            self.emitter.bit(self.block)
            self.emitter.loop(start, stop, self.columns, (), block, lambda f, c: (self.block, Binding(f, c)))
            return carried

        def block(counter: Node, carried: list[Node]) -> list[Node]:
            self._block(counter, self._end(counter, self.columns, stop))
            return carried

        self.loops.nest(sheets, sheet)

    def _end(self, start: Node, count: int, stop: Node) -> Node:
        """start + count, or the stop before that."""
        level = len(self.emitter.frames) - 1
        return self.emitter.put(level, minimum(self.emitter.put(level, add(start, number(count))), stop))

    def _block(self, start: Node, end: Node) -> None:
        """One block of columns: sums of zero, all slabs, the values that are stored."""
        emitter, place = self.emitter, self.place
        zero = const(self.sums.dtype, 0)
        depth = emitter.stops.get(self.depth, self.depth.src[0])

        def across(body: Body) -> None:
            self.loops.vectors_between(self.column, start, end, self.lanes, self.vectors, body)

        def clear(instances: list[Instance], _: int) -> None:
            for instance in instances:
                emitter.store(self.sums, self.held, zero, instance)

        def finish(instances: list[Instance], _: int) -> None:
            emitter.store_all(place.pointer, place.index, place.value, instances)

        def copy(instances: list[Instance], _: int) -> None:
            for instance in instances:
                emitter.store(self.scratch, self.copied, emitter.emit(self.factor, instance), instance)

        def slab(counter: Node, carried: list[Node]) -> list[Node]:
            last = self._end(counter, self.lines, depth)
            if self.copies:
                self.loops.nest([self.depth], lambda _, k: (across(copy), k)[1], counter, last)
            across(lambda instances, _: self._tiles(instances, counter, last))
            return carried

        def slabs(_: Node, carried: list[Node]) -> list[Node]:
            emitter.bit(self.first)
            every = number(0), depth, self.lines
            emitter.loop(*every, (), slab, lambda f, c: (self.first, Binding(f, c)))
            return carried

        self.loops.nest([self.row], lambda _, k: (across(clear), k)[1])
        self.loops.nest(self.above, slabs)
        self.loops.nest([self.row], lambda _, k: (across(finish), k)[1])

    def _tiles(self, instances: list[Instance], start: Node, end: Node) -> None:
        """All rows of one panel of a slab, whose rows are from start to end. The first tile asks for the next panel."""
        whole = self.height // self.tile_rows * self.tile_rows
        asking = self.tile_rows if self.ahead else 0

        def tile(count: int, instances: list[Instance]) -> None:
            emitter = self.emitter
            every = [{**instance, self.row: m} for m in range(count) for instance in instances]
            before = [emitter.emit(load(self.sums, self.held), one) for one in every]

            def take(_: Node, carried: list[Node]) -> list[Node]:
                return [emitter.combine("sum", c, self.body, one) for c, one in zip(carried, every, strict=True)]

            sums = emitter.loop(start, end, 1, before, take, lambda f, c: (self.depth, Binding(f, c)))
            for total, one in zip(sums, every, strict=True):
                emitter.store(self.sums, self.held, total, one)

        for first, stop in pairwise((0, asking, whole, self.height)):
            count = self.tile_rows if stop <= whole else self.height - whole
            ahead = dict.fromkeys(self.ahead if stop == asking else (), (self.column, self.vectors))
            self.emitter.ahead.update(ahead)
            if first < stop:
                self.emitter.loop(
                    number(first),
                    number(stop),
                    count,
                    (),
                    lambda _, k, count=count: (tile(count, instances), k)[1],
                    lambda f, c, count=count: (self.row, Binding(f, c, count)),
                )
            for read in ahead:
                del self.emitter.ahead[read]


def is_slabbed(loops: Loops, place: Place, row: Node, column: Node) -> bool:
    """Whether a store is a product of few rows by a large matrix, whose columns are long and lie together."""
    emitter = loops.emitter
    folds = _folds(place.value)
    both = emitter.bit(row) | emitter.bit(column)
    if len(folds) != 1 or emitter.mask(folds[0]) & both != both or len(folds[0].src) < 2:
        return False
    (fold,) = folds
    rows = fold.src[1:]
    factor = _matrix(loops, fold, column)
    places = [n.src[1] for n in walk((factor,)) if isinstance(n.op, Load)]
    steps = [emitter.index.affine(p)[1] for p in places if emitter.mask(p) & emitter.bit(column)]
    if not steps or any(terms.get(column) != 1 for terms in steps) or loops.extent(column) < 2 * FEWEST:
        return False
    size = loops.extent(column) * math.prod(loops.extent(r) for r in rows) * factor.dtype.itemsize
    level2 = emitter.target.level2
    if isinstance(factor.op, Load):
        return loops.extent(row) <= ROWS and loops.extent(rows[-1]) > SHALLOW and size > level2 // 4
    return loops.extent(row) <= COPIED_ROWS and loops.extent(rows[-1]) > COPIED_SHALLOW and size > 2 * level2


def _folds(value: Node) -> list[Node]:
    """The reductions in a value."""
    return [n for n in walk((value,)) if isinstance(n.op, Fold)]


def _matrix(loops: Loops, fold: Node, column: Node) -> Node:
    """The factor of a sum of products that knows the columns."""
    (factor,) = (s for s in fold.src[0].src if loops.emitter.mask(s) & loops.emitter.bit(column))
    return factor
