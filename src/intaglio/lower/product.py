"""Products of two factors: tiles held in registers, columns packed in order, blocks that stay in a cache."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, make, substitute, toposort, walk
from intaglio.lower.binding import Binding, Instance
from intaglio.lower.choice import about
from intaglio.lower.following import Following, Tiling
from intaglio.lower.index import number
from intaglio.lower.loops import CHUNK, CHUNKS, Place
from intaglio.lower.turn import transposed, turned_range
from intaglio.lower.upcoming import Upcoming, shares
from intaglio.ops.elementwise import Cast, Elementwise, Mul, add, eq, floor_div, lt, minimum, mul
from intaglio.ops.loop import STORE, Chunk, Range
from intaglio.ops.memory import Local, load
from intaglio.ops.reduce import Dot, Fold

if TYPE_CHECKING:
    import itertools
    from collections.abc import Callable

    from intaglio.core.target import Target
    from intaglio.lower.loops import Body, Loops

    Across = Callable[[Body], None]  # runs a tile over columns

SHARED: Final = 16 * CHUNK  # multiplications from which threads share a product
PIECE: Final = 8 * CHUNK  # multiplications of a chunk at least: few, as a worker that comes late then costs little
SHARES: Final = 8  # chunks of a batch of products for each thread at most
COPIED: Final = 4  # times as many, where each chunk copies columns
PACKED_ROWS: Final = 96  # rows from which a copy of the columns pays, if a cache holds them
FAR_ROWS: Final = 7  # rows from which it pays if none does
TURNED_ROWS: Final = 16  # rows from which it pays if the columns lie apart: `schedule/fuse.py` asks for no copy then
PACK: Final = 1 << 19  # bytes of packed columns at most
HEAVY: Final = 12  # operations from which what is made of a product is computed apart
WIDEST: Final = 8  # vectors of a tile's row at most
NEAR: Final = 4  # vectors of a tile's row of a matrix in a cache
LONG: Final = 32  # tiles of a row from which it matters little how many columns the last of them has


def row_range(loops: Loops, value: Node, ranges: list[Node], column: Node) -> Node | None:
    """The row range of a sum of products whose factors share no free range, if there is one."""
    emitter = loops.emitter
    for r in reversed(ranges):
        if r is column or loops.extent(r) < 2:
            continue
        both = emitter.bit(r), emitter.bit(column)
        for n in walk((value,)):
            if isinstance(n.op, Fold) and n.op.kind == "sum" and isinstance(n.src[0].op, Mul):
                own = [tuple(bool(emitter.mask(s) & bit) for bit in both) for s in n.src[0].src]
                if sorted(own) == [(False, True), (True, False)]:
                    return r
    return None


def turned_column(loops: Loops, value: Node, pointer_index: Node, ranges: list[Node]) -> Node | None:
    """The column range of a product whose columns lie apart, but are stored as neighbours and can be turned."""
    emitter = loops.emitter
    _, terms = emitter.index.affine(pointer_index)
    for column in reversed(ranges):
        row = row_range(loops, value, ranges, column) if terms.get(column) == 1 else None
        if row is not None and loops.extent(row) >= TURNED_ROWS:
            folds = [n for n in walk((value,)) if isinstance(n.op, Fold)]
            depth = math.prod(loops.extent(r) for r in folds[0].src[1:])
            fits = len(folds) == 1 and 2 * loops.emitter.target.vector_bytes * depth <= PACK
            if fits and turned_range(emitter, folds[0].src[0], column, list(folds[0].src[1:])) is not None:
                return column
    return None


def tile_shape(
    height: int, width: int, target: Target, *, part: bool = False, most: int = WIDEST, near: bool = False
) -> tuple[int, int]:
    """(rows, vectors) of a tile of a product of `height` rows and `width` vectors, and `part` of another.

    Sums for all of it, the vectors of one row and one number fit in the registers. Where the rows that leave none over
    are few, there are more vectors, if those leave none over either: each multiply-add waits for the one before it into
    the same sum, and each turn of the loop costs something besides. Tiles of a matrix that lies `near`, in a cache, are
    as wide as four vectors: longer pieces of its rows are read in place. A panel may be `most` vectors wide.
    """
    registers = target.vector_registers

    def highest(vectors: int) -> int:
        return (registers - vectors - 1) // vectors

    vectors = WIDEST
    while vectors > 1 and (vectors > min(width, most) or (vectors > 2 and highest(vectors) < height)):
        vectors //= 2
    rows = min(height, highest(vectors))
    even = [r for r in range(rows, rows // 2, -1) if height % r == 0]
    rows = even[0] if even else -(-height // -(-height // rows))
    wide = max(vectors, min(most, WIDEST, (registers - 1) // (rows + 1)))
    if not (part or width % wide) or width >= LONG * wide:
        return rows, wide
    if near and vectors < NEAR and not (part or width % NEAR) and highest(NEAR) > 1:
        return -(-height // -(-height // highest(NEAR))), NEAR
    return rows, vectors


def even_chunks(tiles: int, most: int, threads: int) -> int:
    """How many chunks some tiles are cut in: at most so many, and as many for each thread if they are enough."""
    least = -(-tiles // max(1, most))
    numbers = (-(-tiles // per) for per in range(least, tiles // threads + 1))
    return next((number for number in numbers if number % threads == 0), most)


def tile_shapes(height: int, width: int, target: Target) -> list[tuple[int, int]]:
    """Shapes of tiles that may be tried: for some widths the highest that fit in the registers, and lower ones."""
    found: list[tuple[int, int]] = []
    for vectors in (1, 2, 3, 4, 6, WIDEST):
        most = (target.vector_registers - vectors - 1) // vectors
        if vectors <= max(1, width) and most:
            found += [(min(height, rows), vectors) for rows in (most, most - 1, most - 2, most // 2) if rows > 0]
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Turn:
    """How columns that lie apart are copied: as vectors along one range, by lines across them."""

    along: Node  # the range along which the factor is read
    line: Node  # the same, by single steps: where turned vectors are stored
    column: Node  # the columns, by single steps
    factor: Node
    index: Node


@dataclass(frozen=True, slots=True)
class _Pack:
    """Columns copied into scratch: what is copied, along which ranges, and where to."""

    factor: Node
    ranges: list[Node]
    scratch: Node
    index: Node
    columns: int
    turn: _Turn | None


@dataclass(frozen=True, slots=True)
class _Lines:
    """Rows of another dtype, put into scratch once for all columns of a block."""

    factor: Node
    scratch: Node
    index: Node
    row: Node  # the rows, as they are copied
    ranges: list[Node]
    first: Node  # the first row in scratch
    rows: int


@dataclass(frozen=True, slots=True)
class _Epilogue:
    """The store of a product whose values are computed apart: its fold, the scratch, the range in which it is read."""

    fold: Node
    scratch: Node
    row: Node
    place: Place


class Product:
    """One product being lowered.

    The nest: sheets (ranges that both factors know), then blocks of columns, which are copied panel by panel into
    scratch if that pays, blocks of rows, panels, tiles. Each number is the sum of the same terms in the same order
    whatever the blocks are.
    """

    def __init__(
        self,
        loops: Loops,
        axes: itertools.count[int],
        place: Place,
        *,
        row: Node,
        column: Node,
        tile: tuple[int, int] | None = None,
    ) -> None:
        """Of a store; `tile`: (rows, vectors) of a tile, if the model's is not to be taken."""
        self.loops: Final = loops
        self.emitter: Final = loops.emitter
        self.target: Final = loops.emitter.target
        self.axes: Final = axes
        self.row: Final = row
        self.column: Final = column
        self.place: Place = place
        self.folds: Final = [n for n in walk((place.value,)) if isinstance(n.op, Fold)]
        self.words: Final = any(isinstance(n.src[0].op, Dot) for n in self.folds)  # packed in any case
        self.depth: Final = self._fold_size()
        self.height: Final = loops.extent(row)
        self.width: Final = loops.extent(column)
        self.lanes: Final = loops.emitter.lanes_of(place.value)
        size = self.height, self.width // self.lanes, self.target
        most = PACK // (self.depth * self.lanes * place.value.dtype.itemsize)
        self.near: Final = self._is_near()
        model = tile or tile_shape(*size, part=bool(self.width % self.lanes), most=most, near=self.near)
        self.tile_rows, self.vectors = loops.decide.of("tile", model, tile_shapes(*size))
        self.panel: Final = self.lanes * self.vectors
        self.whole_rows: Final = self.height // self.tile_rows * self.tile_rows
        self.whole_columns: Final = self.width // self.panel * self.panel
        self.corner: Final = self._range(column)  # the first column of a panel
        self.block: Final = self._range(column)  # the first column of a block of packed columns
        self.row_chunk: tuple[Node, Node] | None = None
        self.column_chunk: tuple[Node, Node] | None = None
        self.pack: _Pack | None = None
        self.apart: _Epilogue | None = None
        self.lines: _Lines | None = None
        self.asks: bool = False  # whether tiles, if they are whole, ask for what the next product reads

    def copy_ahead(self) -> bool:
        """Copy all columns that lie apart, if scratch holds them: for all of the blocks of rows that come after.

        Then `run_copied` writes the rest; else `run` does all.
        """
        along = self._turned()
        pack = None if along is None else self._packed([], along, whole=True)
        if pack is None or pack.turn is None:
            return False
        turn = pack.turn

        def copies(_: Node, carried: list[Node]) -> list[Node]:
            body = self._in_panel(lambda instances, _: self._turn_in(pack, turn, instances))
            self.loops.vectors(self.column, self.lanes, self.vectors, body)
            return carried

        self.loops.nest([r for r in pack.ranges if r is not turn.along], copies)
        self._take_from(pack)
        return True

    def run_copied(self, stop: Node | None) -> None:
        """Write the loops of a product whose columns have been copied, of those before `stop` if there is one."""
        if stop is not None:
            self.column_chunk = number(0), stop
        self._rows(lambda tile: self._columns([], tile))

    def _take_from(self, pack: _Pack) -> None:
        """Take the columns from where they are copied to."""
        value = substitute((self.place.value,), {pack.factor: load(pack.scratch, pack.index)})[0]
        self.place = Place(self.place.pointer, self.place.index, value)

    def run(
        self, ranges: list[Node], *, split: bool, stop: Node | None = None, first: Callable[[], None] | None = None
    ) -> None:
        """Write the loops.

        Args:
            split: Whether the kernel is this product alone.
            stop: The end of the columns, if they are not all needed.
            first: Writes what comes first in each sheet.
        """
        others = [r for r in ranges if r is not self.row and r is not self.column]
        along = self._turned()
        wide = [r for r in others if along is None and not self._rows_know(r)]
        sheets = [r for r in others if r not in wide]
        if along is not None or (split and not wide):
            self.pack = self._packed(sheets, along)
        if self.pack is not None:
            self._take_from(self.pack)
        elif sheets and not wide:
            self._asks_for_next(sheets[-1])
        self.lines = self._widened_rows() if split else None
        self.apart = self._epilogue()
        if stop is not None:
            self.column_chunk = number(0), stop
        bounds = self._share(sheets, wide) if split else (None, None)
        if split and not others and self.row_chunk is None and self.column_chunk is None:
            self.loops.series = self._asks_for_next(None)

        def sheet(_: Node, carried: list[Node]) -> list[Node]:
            if first is not None:
                first()
            if self.pack is None:
                self._rows(lambda tile: self._columns(wide, tile))
            else:
                self._packed_columns(self.pack)
            return carried

        self.loops.nest(sheets, sheet, *bounds)

    # -- choices

    def _range(self, like: Node) -> Node:
        """A new range as long as another."""
        return make(Range(next(self.axes)), like.src[0])

    def _fold_size(self) -> int:
        """How many values the folds take for one result."""
        total = 0
        for fold in self.folds:
            size = 1
            for r in fold.src[1:]:
                size *= self.loops.extent(r)
            total += size
        return max(1, total)

    def _rows_know(self, r: Node) -> bool:
        """Whether the factor with the rows depends on a range; one that only columns know is theirs."""
        emitter = self.emitter
        row, bit = emitter.bit(self.row), emitter.bit(r)
        factors = [s for fold in self.folds for s in fold.src[0].src]
        return any(emitter.mask(s) & row and emitter.mask(s) & bit for s in factors)

    def _column_factor(self) -> Node:
        """The factor that knows the columns, of the only fold."""
        (fold,) = self.folds
        (factor,) = (s for s in fold.src[0].src if self.emitter.mask(s) & self.emitter.bit(self.column))
        return factor

    def _is_near(self) -> bool:
        """Whether the columns lie together and are few enough to stay in a cache: then they are read in place."""
        if self.words or len(self.folds) != 1 or self._turned() is not None:
            return False
        return self.width * self.depth * self._column_factor().dtype.itemsize <= self.target.level2 // 4

    def _turned(self) -> Node | None:
        """The range along which columns that lie apart are read, if they are turned in registers."""
        if len(self.folds) != 1 or self.height < TURNED_ROWS:
            return None
        return turned_range(self.emitter, self._column_factor(), self.column, list(self.folds[0].src[1:]))

    def _packed(self, sheets: list[Node], along: Node | None, *, whole: bool = False) -> _Pack | None:
        """Columns in scratch, if they lie apart, or if they are many for the second cache and used by many rows.

        Args:
            whole: Whether all columns are there at once.
        """
        if len(self.folds) != 1:
            return None
        (fold,) = self.folds
        factor = self._column_factor()
        line = self.depth * factor.dtype.itemsize
        rows = FAR_ROWS if self.width * line > 2 * self.target.level2 else PACKED_ROWS
        if self.panel * line > PACK:
            return None
        if along is None:
            pays = bool(self.words) or not (self.near or self.height < rows or self.width <= self.panel)
            free = not self.words and self.width > self.panel
            if not self.loops.decide.of("pack", int(pays), (0, 1) if free else ()):
                return None
        columns = min(PACK, self.target.level2 // 4) // line // self.panel * self.panel
        share = (
            self.width
            if self.target.threads == 1 or self._is_tall()
            else max(-(-self.width // 8), -(-SHARED // (self.height * self.depth)))
        )  # for threads to share
        columns = max(self.panel, min(columns, -(-share // self.panel) * self.panel))
        if whole:
            columns = self.whole_columns + self.panel
            if columns * line > PACK:
                return None
        else:
            room = min(PACK // line, self.width) // self.panel
            panels = -(-self.width // -(-self.width // columns) // self.panel)  # in blocks that are about equal
            columns = self.panel * self.loops.decide.of("panels", panels, about(panels, 1, room))
        scratch = make(Local(next(self.axes), factor.dtype, self.depth * columns))
        parts = [(self.column, 1), (self.corner, self.depth - 1), *([] if whole else [(self.block, -self.depth)])]
        step = self.panel
        for r in reversed(fold.src[1:]):
            parts.append((r, step))
            step *= self.loops.extent(r)
        index = self.emitter.index.sum(parts)
        turn = self._turn(along, factor, index) if along is not None else None
        return _Pack(factor, list(fold.src[1:]), scratch, index, columns, turn)

    def _turn(self, along: Node, factor: Node, index: Node) -> _Turn:
        """The copy of columns that lie apart."""
        column, line = self._range(self.column), self._range(along)
        (read,) = substitute((factor,), {self.column: column})
        _, terms = self.emitter.index.affine(index)
        moved = {self.column: column, along: line}
        place = self.emitter.index.sum([(moved.get(term, term), step) for term, step in terms.items()])
        return _Turn(along, line, column, read, place)

    def _widened_rows(self) -> _Lines | None:
        """The rows in scratch, if they are of another dtype and there are columns enough."""
        if len(self.folds) != 1 or self.width < 2 * self.panel:
            return None
        (fold,) = self.folds
        factors = [s for s in fold.src[0].src if self.emitter.mask(s) & self.emitter.bit(self.row)]
        itemsize = factors[0].dtype.itemsize
        stride = self.depth + self.lanes  # rows that lie a power of two apart would share few places of a cache
        rows = PACK // (stride * itemsize) // self.tile_rows * self.tile_rows
        if len(factors) != 1 or not isinstance(factors[0].op, Cast) or not rows or len(fold.src) < 2:
            return None
        (factor,) = factors
        scratch = make(Local(next(self.axes), factor.dtype, rows * stride))
        row, first = self._range(self.row), self._range(self.row)
        ranges = {r: self._range(r) for r in fold.src[1:]}
        step = 1
        parts: list[tuple[Node, int]] = []
        for r in reversed(fold.src[1:]):
            parts.append((r, step))
            step *= self.loops.extent(r)
        held = self.emitter.index.sum([(self.row, stride), (first, -stride), *parts])
        (value,) = substitute((self.place.value,), {factor: load(scratch, held)})
        self.place = Place(self.place.pointer, self.place.index, value)
        moved = {self.row: row, **ranges}
        (factor,) = substitute((factor,), moved)
        index = self.emitter.index.sum([(row, stride), (first, -stride), *((ranges[r], s) for r, s in parts)])
        return _Lines(factor, scratch, index, row, list(ranges.values()), first, rows)

    def _epilogue(self) -> _Epilogue | None:
        """What is computed of a product, if that is much: done row by row, from a scratch that holds the tile."""
        value = self.place.value
        top = toposort((value,), enter=lambda n: not isinstance(n.op, Fold))
        folds = [n for n in top if isinstance(n.op, Fold)]
        if len(folds) != 1:
            return None
        (fold,) = folds
        both = self.emitter.bit(self.row) | self.emitter.bit(self.column)
        count = sum(isinstance(n.op, Elementwise) for n in top)
        if not count or self.emitter.mask(fold) & both != both:
            return None
        if not self.loops.decide.of("apart", int(count >= HEAVY), (0, 1)):
            return None
        scratch = make(Local(next(self.axes), fold.dtype, self.tile_rows * self.panel))
        row = self._range(self.row)
        parts = [(row, self.panel), (self.row, -self.panel), (self.column, 1), (self.corner, -1)]
        held = load(scratch, self.emitter.index.sum(parts))
        index, value = substitute((self.place.index, value), {fold: held, self.row: row})
        return _Epilogue(fold, scratch, row, Place(self.place.pointer, index, value))

    def _share(self, sheets: list[Node], wide: list[Node]) -> tuple[Node | None, Node | None]:
        """The loop whose turns threads share: of sheets (whose bounds it gives), blocks of columns, or rows."""
        work = self.height * self.width * self.depth
        for r in (*sheets, *wide):
            work *= self.loops.extent(r)
        if work < SHARED or self.target.threads == 1:
            return None, None
        chunks = work // PIECE
        if sheets and self.loops.extent(sheets[0]) >= 8:
            chunks = min(chunks, SHARES * self.target.threads)  # of some sheets: each tile asks for what comes next
            return self.loops.chunk(self.loops.extent(sheets[0]), CHUNK * chunks, 1)
        if self.pack is not None and self._is_tall():
            rows = -(-self.whole_rows // (2 * self.target.threads) // self.tile_rows) * self.tile_rows
            self.row_chunk = self.loops.chunk_of(self.whole_rows, rows)
        elif self.pack is not None and self.width > 2 * self.pack.columns:
            blocks = -(-self.width // self.pack.columns)
            self.column_chunk = self.loops.chunk_of(self.width, -(-blocks // CHUNKS) * self.pack.columns)
        elif self.pack is None and not wide and self.width >= 4 * self.panel and self.height < self.width:
            self.column_chunk = self.loops.chunk(self.width, CHUNK * chunks, self.panel)
        elif self.whole_rows >= 2 * self.tile_rows:
            if self.pack is not None:  # each chunk copies the columns
                chunks = max(1, chunks // COPIED)
            chunks = even_chunks(self.whole_rows // self.tile_rows, min(chunks, CHUNKS), self.target.threads)
            self.row_chunk = self.loops.chunk(self.whole_rows, CHUNK * chunks, self.tile_rows)
        return None, None

    def _is_tall(self) -> bool:
        """Whether threads share rows though each then copies all columns: less than all rows, read by each thread."""
        return self.height > 2 * self.width

    # -- loops

    def _packed_columns(self, pack: _Pack) -> None:
        """Blocks of columns, each copied and then used by all rows."""
        emitter, v = self.emitter, self.column
        level = len(emitter.frames) - 1
        start, end = self.column_chunk or (number(0), number(self.width))
        stop = emitter.put(level, minimum(end, number(self.whole_columns)))

        turn = pack.turn
        around = pack.ranges if turn is None else [r for r in pack.ranges if r is not turn.along]

        def copy(instances: list[Instance], _: int) -> None:
            if turn is not None:
                self._turn_in(pack, turn, instances)
                return
            for instance in instances:
                emitter.store(pack.scratch, pack.index, emitter.emit(pack.factor, instance), instance)

        def over(panels: Across) -> None:
            """Copy some columns, then compute with them."""

            def copies(_: Node, carried: list[Node]) -> list[Node]:
                panels(self._in_panel(copy))
                return carried

            self.loops.nest(around, copies)
            self._rows(lambda tile: panels(self._in_panel(tile)))

        def block(counter: Node, carried: list[Node]) -> list[Node]:
            inner = len(emitter.frames) - 1
            last = emitter.put(inner, minimum(emitter.put(inner, add(counter, number(pack.columns))), stop))
            if self.width > pack.columns and len(pack.ranges) == 1:
                self._read_next_block(pack)
            over(lambda body: self.loops.whole_vectors(v, counter, last, self.lanes, self.vectors, body))
            for r in pack.ranges:
                emitter.beside.pop(r, None)
            return carried

        def rest() -> None:
            emitter.bound[self.block] = Binding(len(emitter.frames) - 1, number(self.whole_columns))
            over(lambda body: self.loops.last_vectors(v, self.whole_columns, self.lanes, body))
            del emitter.bound[self.block]

        emitter.bit(self.block)
        emitter.loop(start, stop, pack.columns, (), block, lambda f, c: (self.block, Binding(f, c)))
        if self.whole_columns < self.width:
            emitter.when(emitter.put(level, lt(number(self.whole_columns), end)), rest)

    def _read_next_block(self, pack: _Pack) -> None:
        """Have each tile ask for a part of the block of columns after this one, which is copied next."""
        (along,) = pack.ranges
        upcoming = Upcoming(self.emitter, self.axes, pack.factor, row=along, column=self.column)
        tiles = -(-self.height // self.tile_rows)
        every, count = shares(self.depth, tiles) if pack.turn is None else (upcoming.line, -(-self.panel // tiles))
        put = self._put

        def ask(counter: Node) -> None:
            first = self._share_of_tile(count)
            column = put(add(self.emitter.bound[self.column].base, number(pack.columns)))
            if pack.turn is None:
                column = put(minimum(column, number(self.width - self.panel)))
                upcoming.ask(put(add(counter, first)), range(count), column, upcoming.along(self.panel))
            else:
                first = put(minimum(first, number(self.panel - count)))
                column = put(minimum(put(add(column, first)), number(self.width - count)))
                upcoming.ask(counter, range(1), column, range(count))

        if upcoming:
            self.emitter.beside[along] = every, ask

    def _asks_for_next(self, sheet: Node | None) -> bool:
        """Have each tile ask for a part of the next sheet, or of the next launch where there are none; whether it does.

        Packed columns are read in order, and so ahead, anyway.
        """
        (fold,) = self.folds if self.near else (None,)
        if fold is None or len(fold.src) != 2:
            return False
        tiling = Tiling(self.row, self.column, self.height, self.width, self.tile_rows, self.panel)
        place = self.place if sheet is None else None  # large results go past the caches
        following = Following(self.emitter, self.axes, tiling, fold, place=place, sheet=sheet)
        self.asks = self.whole_rows > 0 and following.is_asked_for(self.depth)
        return self.asks

    def _share_of_tile(self, count: int) -> Node:
        """The number of this tile among the rows' times how much each of them asks for."""
        before = self._put(mul(self.emitter.bound[self.row].base, number(count)))
        return self._put(floor_div(before, number(self.tile_rows)))

    def _put(self, node: Node) -> Node:
        """Have an instruction in the innermost frame."""
        return self.emitter.put(len(self.emitter.frames) - 1, node)

    def _turn_in(self, pack: _Pack, turn: _Turn, instances: list[Instance]) -> None:
        """Copy the columns of one panel that lie apart: as many as there are lanes at once."""
        emitter, lanes = self.emitter, self.lanes
        binding = emitter.bound[self.column]
        last = None if binding.bound is None else self.width - self.whole_columns
        for u in range(len(instances)):
            count = lanes if last is None else min(lanes, last - u * lanes)
            first = emitter.first(binding, u)

            def run(_: Node, carried: list[Node], count: int = count) -> list[Node]:
                self.loops.vectors(turn.along, lanes, 1, lambda _, __: self._turn_block(pack, turn, count))
                return carried

            emitter.loop(first, first, lanes, (), run, lambda f, c, n=count: (turn.column, Binding(f, c, n)), once=True)

    def _turn_block(self, pack: _Pack, turn: _Turn, count: int) -> None:
        """A vector of each of some columns, turned and stored line by line."""
        emitter = self.emitter
        level = len(emitter.frames) - 1
        binding = emitter.bound[turn.along]
        extent = self.loops.extent(turn.along)
        lines = self.lanes if binding.bound is None else extent % self.lanes
        read = [emitter.emit(turn.factor, {turn.column: c}) for c in range(count)]
        read += read[-1:] * (self.lanes - count)
        emitter.bit(turn.line)
        emitter.bound[turn.line] = Binding(binding.frame, binding.base, lines)
        for k, vector in enumerate(transposed(emitter, level, read)[:lines]):
            place, _ = emitter.address(turn.index, {turn.line: k})
            emitter.effect(make(STORE, pack.scratch, place, vector))
        del emitter.bound[turn.line]

    def _columns(self, wide: list[Node], tile: Body) -> None:
        """A tile over all columns where they lie."""

        def run(_: Node, carried: list[Node]) -> list[Node]:
            body = self._in_panel(tile)
            if self.column_chunk is None:
                self.loops.vectors(self.column, self.lanes, self.vectors, body)
            else:
                self.loops.vectors_between(self.column, *self.column_chunk, self.lanes, self.vectors, body)
            return carried

        self.loops.nest(wide, run)

    def _in_panel(self, body: Body) -> Body:
        """A body run with the panel's first column known."""
        emitter = self.emitter

        def run(instances: list[Instance], lanes: int) -> None:
            binding = emitter.bound[self.column]
            emitter.bit(self.corner)
            emitter.bound[self.corner] = Binding(binding.frame, binding.base)
            body(instances, lanes)
            del emitter.bound[self.corner]

        return run

    def _rows(self, across: Across) -> None:
        """Blocks of rows that stay in the second cache, each with all columns; then the rows left over."""
        emitter = self.emitter
        line = self.depth * self.place.value.dtype.itemsize
        tiles = max(1, self.target.level2 // 4 // line // self.tile_rows)
        rows = self.tile_rows * self.loops.decide.of("tiles", tiles, about(tiles, 1, self.height // self.tile_rows))
        if self.lines is not None:
            rows = min(rows, self.lines.rows)
        begin, end = self.row_chunk or (number(0), number(self.whole_rows))

        def block(counter: Node, carried: list[Node]) -> list[Node]:
            level = len(emitter.frames) - 1
            stop = emitter.put(level, minimum(emitter.put(level, add(counter, number(rows))), end))
            self._with_rows(counter, stop, lambda: across(lambda instances, _: self._tiles(counter, stop, instances)))
            return carried

        def rest() -> None:
            start, stop = number(self.whole_rows), number(self.height)
            self._with_rows(start, stop, lambda: across(lambda instances, _: self._rest(instances)))

        if self.row_chunk is None and self.whole_rows <= rows:
            self._with_rows(begin, end, lambda: across(lambda instances, _: self._tiles(begin, end, instances)))
        else:
            emitter.loop(begin, end, rows, (), block)
        if self.whole_rows == self.height:
            return
        if self.row_chunk is None:
            rest()
            return
        last = emitter.put(0, eq(emitter.put(0, make(Chunk("end"))), number(self.loops.chunks)))
        emitter.when(last, rest)

    def _with_rows(self, start: Node, stop: Node, body: Callable[[], None]) -> None:
        """What is done with some rows, after they are put into scratch, if they are widened."""
        emitter, lines = self.emitter, self.lines
        if lines is None:
            body()
            return

        def copy(instances: list[Instance], _: int) -> None:
            for instance in instances:
                emitter.store(lines.scratch, lines.index, emitter.emit(lines.factor, instance), instance)

        def along(_: Node, carried: list[Node]) -> list[Node]:
            self.loops.vectors(lines.ranges[-1], self.lanes, 1, copy)
            return carried

        def row(_: Node, carried: list[Node]) -> list[Node]:
            self.loops.nest(lines.ranges[:-1], along)
            return carried

        emitter.bit(lines.first)
        emitter.bound[lines.first] = Binding(len(emitter.frames) - 1, start)
        emitter.loop(start, stop, 1, (), row, lambda f, c: (lines.row, Binding(f, c)))
        body()
        del emitter.bound[lines.first]

    def _tiles(self, start: Node, stop: Node, instances: list[Instance]) -> None:
        """Whole tiles of one panel."""
        self._tile(start, stop, self.tile_rows, instances, once=False)

    def _rest(self, instances: list[Instance]) -> None:
        """The rows left over of one panel."""
        if self.asks:  # what is left would be compiled for longer than it asks for much
            (fold,) = self.folds
            self.emitter.beside.pop(fold.src[1], None)
        self._tile(number(self.whole_rows), number(self.height), self.height - self.whole_rows, instances, once=True)

    def _tile(self, start: Node, stop: Node, count: int, instances: list[Instance], *, once: bool) -> None:
        """Tiles of `count` rows."""

        def run(counter: Node, carried: list[Node]) -> list[Node]:
            if self.apart is None:
                self._finish(count, instances)
            else:
                self._finish_apart(self.apart, counter, count, instances)
            return carried

        self.emitter.loop(start, stop, count, (), run, lambda f, c: (self.row, Binding(f, c, count)), once=once)

    def _finish(self, count: int, instances: list[Instance]) -> None:
        """The values and stores of a tile."""
        emitter, place = self.emitter, self.place
        stores: list[Node] = []
        for m in range(count):
            both = [{**instance, self.row: m} for instance in instances]
            values = emitter.emit_all(place.value, both)
            stores += [emitter.storing(place.pointer, place.index, *pair) for pair in zip(values, both, strict=True)]
        for node in stores:  # together: those that go past the caches branch once
            emitter.effect(node)

    def _finish_apart(self, apart: _Epilogue, start: Node, count: int, instances: list[Instance]) -> None:
        """A tile's sums into scratch, then the values and stores of one row after the other."""
        emitter, place = self.emitter, apart.place
        for m in range(count):
            for u, instance in enumerate(instances):
                value = emitter.emit(apart.fold, {**instance, self.row: m})
                emitter.effect(make(STORE, apart.scratch, number(m * self.panel + u * self.lanes), value))

        def row(_: Node, carried: list[Node]) -> list[Node]:
            emitter.store_all(place.pointer, place.index, place.value, instances)
            return carried

        stop = emitter.put(len(emitter.frames) - 1, add(start, number(count)))
        emitter.loop(start, stop, 1, (), row, lambda f, c: (apart.row, Binding(f, c)))
