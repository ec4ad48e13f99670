"""Products of few rows by a large matrix: slabs of it pass the first cache, the sums so far stay in the second."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, make, substitute, walk
from intaglio.lower.ahead import asked_ahead
from intaglio.lower.binding import Binding, Instance
from intaglio.lower.choice import about
from intaglio.lower.emit import Ahead
from intaglio.lower.index import number
from intaglio.lower.loops import CHUNKS, Place
from intaglio.lower.product import PACK, tile_shape, tile_shapes
from intaglio.lower.sums import blocks_across
from intaglio.lower.totals import Totals, levels_of, spans_down
from intaglio.lower.upcoming import Upcoming, shares
from intaglio.ops.elementwise import add, eq, floor_div, lt, minimum, mul, sub, where
from intaglio.ops.loop import Range
from intaglio.ops.memory import Load, Local, const, load
from intaglio.ops.movement import expand
from intaglio.ops.reduce import Fold

if TYPE_CHECKING:
    import itertools
    from collections.abc import Callable

    from intaglio.lower.loops import Body, Loops

ROWS: Final = 192  # of a block at most: of more rows, each makes the copy of columns as a whole cheaper
SHALLOW: Final = 256  # rows of the matrix up to which whole columns are taken
COLUMNS: Final = 2048  # of a block at most
FEWEST: Final = 128  # columns of a block at least, so that long pieces of each row are read
PAGES: Final = 64  # rows of a slab at least: a processor reads ahead in about as many pages
COPIED_ROWS: Final = 64  # the same bounds where a matrix is computed, and so copied
COPIED_SHALLOW: Final = 512
COPIED_COLUMNS: Final = 512


@dataclass(frozen=True, slots=True)
class _Lines:
    """Rows of the matrix: the first of a slab, its end, and where the block of the sum ends that it is in."""

    first: Node
    end: Node
    stop: Node
    total: Node  # scratch for what the sum has come to before that block


class Slabs:
    """One product being lowered: blocks of columns, in each slabs of rows of the matrix, in each tiles.

    A slab is read where it lies, by panels that stay in the first cache for all rows; what must be computed of the
    matrix is put into scratch first. Each number is the sum of the same terms in the same order as without slabs: a
    block of a sum (`lower/sums.py`) is one slab, or some, between which scratch holds what it has come to.
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
        self.ranges: Final = list(fold.src[1:])
        self.depth: Final = self.ranges[-1]
        self.lanes: Final = loops.emitter.lanes_of(place.value)
        self.height: Final = loops.extent(row)
        self.width: Final = loops.extent(column)
        size = self.height, self.width // self.lanes, self.emitter.target
        self.tile_rows, self.vectors = loops.decide.of(
            "tile", tile_shape(*size, part=bool(self.width % self.lanes)), tile_shapes(*size)
        )
        unit = self.lanes * self.vectors
        blocks = 1 if near else -(-self.height // ROWS)
        self.rows: Final = min(self.height, -(-self.height // (blocks * self.tile_rows)) * self.tile_rows)  # of a block
        factor = _matrix(loops, fold, column)
        self.copies: Final = not near and not isinstance(factor.op, Load) and self.height > self.tile_rows
        self.factor: Final = factor
        masks = tuple(self.emitter.mask(s) for s in fold.src[0].src)
        terms = blocks_across("sum", fold.src[0], masks, self.emitter.bit(column))
        length = loops.extent(self.depth)
        self.span: Final = min((length, *terms[:1]))  # of a block of the sum
        self.is_blocked: Final = self.span < length
        self.spans: Final = spans_down(self.emitter.index, self.ranges, terms, self.span)
        lines = 0 if self.copies else self._read_lines(unit, factor.dtype.itemsize, near=near)
        levels = levels_of(self.spans)
        scratches = levels + (self.is_blocked and lines < self.span)  # for sums, also of blocks that are several slabs
        self.columns: Final = self._block_columns(unit, fold.dtype.itemsize, scratches, near=near)
        stride = self.columns + self.lanes  # rows that lie a power of two apart would share few places of a cache
        held = scratches * self.rows * stride * fold.dtype.itemsize
        self.lines: Final = lines or self._even(max(1, (PACK - held) // (stride * factor.dtype.itemsize)))
        self.block: Final = make(Range(next(axes)), column.src[0])  # the first column of a block
        self.start: Final = make(Range(next(axes)), self.depth.src[0])  # the first row of a block of the sum
        self.first: Final = make(Range(next(axes)), self.depth.src[0])  # the first row of a slab
        self.top: Final = make(Range(next(axes)), row.src[0])  # the first row of a block of rows
        self.tiles: Final = -(-self.rows // self.tile_rows)
        asks = not near and not self.copies
        only = self.tiles == 1  # tile of a panel: it asks for the next one with each of its loads
        self.reads: Final = asked_ahead(loops, fold, column, row, column) if asks and only else []
        upcoming = Upcoming(self.emitter, axes, factor, row=self.depth, column=column) if asks and not only else None
        self.upcoming: Final = upcoming or None
        self.scratch: Final = make(Local(next(axes), factor.dtype, self.lines * stride))
        *sums, part = (make(Local(next(axes), fold.dtype, self.rows * stride)) for _ in range(1 + levels))
        self.sums: Final = sums
        self.part: Final = part if self.is_blocked and self.lines < self.span else None  # what a block has come to
        index = self.emitter.index
        self.copied: Final = index.sum([(self.depth, stride), (self.first, -stride), (column, 1), (self.block, -1)])
        self.held: Final = index.sum([(row, stride), (self.top, -stride), (column, 1), (self.block, -1)])
        (self.body,) = substitute((fold.src[0],), {factor: load(self.scratch, self.copied)} if self.copies else {})
        (value,) = substitute((place.value,), {fold: load(self.sums[0], self.held)})
        self.place: Final = Place(place.pointer, place.index, value)

    def _block_columns(self, unit: int, itemsize: int, scratches: int, *, near: bool) -> int:
        """How many columns a block has: many, but some blocks for each thread, of which scratch holds the sums."""
        threads = 1 if near else self.emitter.target.threads
        blocks = 1 if threads == 1 else max(1, min(2 * threads, self.width // FEWEST))
        blocks -= blocks % threads if blocks > threads else 0  # as many for each thread
        share = -(-self.width // blocks)
        room = (PACK // 2 if self.copies else PACK) // scratches // itemsize // self.rows - self.lanes
        most = max(1, min(room, COPIED_COLUMNS if self.copies else COLUMNS) // unit)
        panels = -(-share // -(-share // (most * unit)) // unit)  # in blocks that are about equal
        return unit * self.loops.decide.of("panels", panels, about(panels, 1, most))

    def _read_lines(self, unit: int, itemsize: int, *, near: bool) -> int:
        """How many rows of the matrix a slab has that is read where it lies.

        A panel of it is no larger than the first cache. The more pages its rows lie in, the longer memory takes; the
        more tiles there are, the less that counts beside taking the sums up again for each slab.
        """
        most = max(1, self.emitter.target.level1 // (2 if near else 1) // (unit * itemsize))
        lines = self._even(most if near else min(most, max(PAGES, min(2 * self.rows, self._apart()))))
        return self.loops.decide.of("lines", lines, about(lines, 1, min(most, self.span)))

    def _even(self, lines: int) -> int:
        """How many rows the slabs of a block have: about equally many."""
        return -(-self.span // -(-self.span // lines))

    def _apart(self) -> int:
        """How many rows of the matrix fill half of the second cache where their starts share its places."""
        target = self.emitter.target
        reads = [n for n in walk((self.factor,)) if isinstance(n.op, Load)]
        steps = [abs(self.emitter.index.affine(n.src[1])[1].get(self.depth, 0)) * n.dtype.itemsize for n in reads]
        return min(
            (target.level2 // 2 // (step & -step) for step in steps if step), default=self.loops.extent(self.depth)
        )

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
            self._rows(counter, self._end(counter, self.columns, stop))
            return carried

        self.loops.nest(sheets, sheet)

    def _end(self, start: Node, count: int, stop: Node) -> Node:
        """start + count, or the stop before that."""
        level = len(self.emitter.frames) - 1
        return self.emitter.put(level, minimum(self.emitter.put(level, add(start, number(count))), stop))

    def _rows(self, start: Node, end: Node) -> None:
        """Blocks of rows of one block of columns."""
        emitter, height = self.emitter, number(self.height)

        def block(counter: Node, carried: list[Node]) -> list[Node]:
            self._block(start, end, counter, self._end(counter, self.rows, height))
            return carried

        once = self.rows == self.height
        emitter.loop(number(0), height, self.rows, (), block, lambda f, c: (self.top, Binding(f, c)), once=once)

    def _block(self, start: Node, end: Node, top: Node, bottom: Node) -> None:
        """One block of columns and rows: sums of zero, all slabs, the values that are stored."""
        emitter, place = self.emitter, self.place
        zero = const(self.sums[0].dtype, 0)

        def across(body: Body) -> None:
            self.loops.vectors_between(self.column, start, end, self.lanes, self.vectors, body)

        def by_rows(body: Body) -> None:
            self.loops.nest([self.row], lambda _, k: (across(body), k)[1], top, bottom)

        def finish(instances: list[Instance], _: int) -> None:
            emitter.store_all(place.pointer, place.index, place.value, instances)

        def copy(instances: list[Instance], _: int) -> None:
            for instance in instances:
                emitter.store(self.scratch, self.copied, emitter.emit(self.factor, instance), instance)

        def slabs(level: int, first: Node, stop: Node) -> None:
            def slab(counter: Node, carried: list[Node]) -> list[Node]:
                last = self._end(counter, self.lines, stop)
                if self.copies:
                    self.loops.nest([self.depth], lambda _, k: (across(copy), k)[1], counter, last)
                lines = _Lines(counter, last, stop, self.sums[level])

                def panel(instances: list[Instance], _: int) -> None:
                    following = self._next(start, end, lines) if self.upcoming else None
                    self._tiles(instances, (top, bottom), lines, following)

                across(panel)
                return carried

            emitter.bit(self.first)
            emitter.loop(first, stop, self.lines, (), slab, lambda f, c: (self.first, Binding(f, c)))

        def blocks(level: int, first: Node, stop: Node) -> None:
            def block(counter: Node, carried: list[Node]) -> list[Node]:
                slabs(level, counter, self._end(counter, self.span, stop))
                return carried

            emitter.bit(self.start)
            emitter.loop(first, stop, self.span, (), block, lambda f, c: (self.start, Binding(f, c)))

        take = blocks if self.is_blocked else slabs
        Totals(emitter, self.ranges, self.spans, self.sums, self.held, zero, by_rows, take).run()
        by_rows(finish)

    def _next(self, start: Node, end: Node, lines: _Lines) -> tuple[Node, Node]:
        """The first row and column of the panel after this one: of this slab, of the next, of the next block.

        Args:
            start: The first column of the block.
            end: Its end.
            lines: Those of the slab.
        """
        emitter = self.emitter
        level = len(emitter.frames) - 1

        def chosen(condition: Node, x: Node, y: Node) -> Node:
            return emitter.put(level, where(condition, x, y))

        following = emitter.put(level, add(emitter.bound[self.column].base, number(self.lanes * self.vectors)))
        beside = emitter.put(level, lt(following, end))
        below = emitter.put(level, lt(lines.end, self.depth.src[0]))
        row = chosen(beside, lines.first, chosen(below, lines.end, number(0)))
        return row, chosen(beside, following, chosen(below, start, end))

    def _tiles(
        self,
        instances: list[Instance],
        rows: tuple[Node, Node],
        lines: _Lines,
        following: tuple[Node, Node] | None,
    ) -> None:
        """Some rows of one panel of a slab.

        Args:
            instances: The columns.
            rows: The first row, and the end.
            lines: Those of the slab.
            following: The row and column at which the next panel begins, if it is to be asked for.
        """
        top, bottom = rows
        emitter = self.emitter
        level = len(emitter.frames) - 1
        whole = self.height // self.tile_rows * self.tile_rows

        def tile(count: int, instances: list[Instance]) -> None:
            every = [{**instance, self.row: m} for m in range(count) for instance in instances]
            before = self._before(lines, every)

            def take(_: Node, carried: list[Node]) -> list[Node]:
                return [emitter.combine("sum", c, self.body, one) for c, one in zip(carried, every, strict=True)]

            def take_all(start: Node, end: Node, carried: list[Node]) -> list[Node]:
                return emitter.loop(start, end, 1, carried, take, lambda f, c: (self.depth, Binding(f, c)))

            self._after(lines, every, self._ask_between(lines, following, before, take_all))

        reads = dict.fromkeys(self.reads, Ahead(self.column, self.vectors))
        emitter.ahead.update(reads)
        inside = emitter.put(level, minimum(bottom, number(whole)))
        for first, stop, count in ((top, inside, self.tile_rows), (number(whole), bottom, self.height - whole)):
            if count:
                emitter.loop(
                    first,
                    stop,
                    count,
                    (),
                    lambda _, k, count=count: (tile(count, instances), k)[1],
                    lambda f, c, count=count: (self.row, Binding(f, c, count)),
                )
        for read in reads:
            del emitter.ahead[read]

    def _before(self, lines: _Lines, every: list[Instance]) -> list[Node]:
        """What the sums of a tile are before a slab."""
        emitter = self.emitter
        if self.part is None and self.is_blocked:
            zero = expand(const(self.sums[0].dtype, 0), (emitter.bound[self.column].lanes,))
            return [emitter.put(len(emitter.frames) - 1, zero)] * len(every)
        held = load(lines.total, self.held)
        if self.part is not None:  # nothing is there before the first slab of a block
            held = load(self.part, self.held, lt(self.start, self.first))
        return [emitter.emit(held, one) for one in every]

    def _after(self, lines: _Lines, every: list[Instance], sums: list[Node]) -> None:
        """Store what the sums of a tile are after a slab: of a block of the sum that ends there, in its total."""
        emitter, part = self.emitter, self.part

        def store(pointer: Node, values: list[Node]) -> None:
            for value, one in zip(values, every, strict=True):
                emitter.store(pointer, self.held, value, one)

        def join() -> None:
            before = [emitter.emit(load(lines.total, self.held), one) for one in every]
            store(lines.total, emitter.joined(before, sums))

        if part is not None:
            level = len(emitter.frames) - 1
            emitter.when(emitter.put(level, lt(lines.end, lines.stop)), lambda: store(part, sums))
            emitter.when(emitter.put(level, eq(lines.end, lines.stop)), join)
        elif self.is_blocked:
            join()
        else:
            store(lines.total, sums)

    def _ask_between(
        self,
        lines: _Lines,
        following: tuple[Node, Node] | None,
        sums: list[Node],
        take: Callable[[Node, Node, list[Node]], list[Node]],
    ) -> list[Node]:
        """What `take` makes of the sums of a tile, between whose terms the next panel is asked for."""
        emitter, upcoming = self.emitter, self.upcoming
        if upcoming is None or following is None:
            return take(lines.first, lines.end, sums)
        every, count = shares(self.lines, self.tiles)
        along = upcoming.along(self.lanes * self.vectors)
        row, column = following
        level = len(emitter.frames) - 1
        tile = emitter.put(level, sub(emitter.bound[self.row].base, emitter.bound[self.top].base))
        tile = emitter.put(level, mul(tile, number(count)))
        tile = emitter.put(level, floor_div(tile, number(self.tile_rows)))
        row = emitter.put(level, sub(emitter.put(level, add(row, tile)), lines.first))

        def ask(counter: Node) -> None:
            first = emitter.put(len(emitter.frames) - 1, add(row, counter))
            upcoming.ask(first, range(count), column, along)

        return emitter.with_beside(every, ask, take)(lines.first, lines.end, sums)


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
        line = math.prod(map(loops.extent, rows)) * factor.dtype.itemsize
        copied = PACK // (emitter.lanes_of(place.value) * line)  # vectors at once, by `lower/product.py`
        few = copied < 2 or loops.extent(row) <= ROWS * (1 if copied > 2 else 2)
        return few and loops.extent(rows[-1]) > SHALLOW and size > level2 // 4
    return loops.extent(row) <= COPIED_ROWS and loops.extent(rows[-1]) > COPIED_SHALLOW and size > 2 * level2


def _folds(value: Node) -> list[Node]:
    """The reductions in a value."""
    return [n for n in walk((value,)) if isinstance(n.op, Fold)]


def _matrix(loops: Loops, fold: Node, column: Node) -> Node:
    """The factor of a sum of products that knows the columns."""
    (factor,) = (s for s in fold.src[0].src if loops.emitter.mask(s) & loops.emitter.bit(column))
    return factor
