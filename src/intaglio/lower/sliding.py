"""Products by a window that slides over rows: some rows as one run of columns, from which what lies between is left out.

In a convolution the columns of one output row are seldom a whole number of vectors. A step to the next row moves the
window as a step of `pitch` columns would. So rows are computed as one run, with the `pitch - width` columns that lie
between them, which are read inside the image and mean nothing; the run is kept in scratch, and only rows are stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, make, substitute, toposort, walk
from intaglio.lower.binding import Binding
from intaglio.lower.index import number
from intaglio.lower.loops import CHUNK, Place
from intaglio.lower.product import WIDEST, Product
from intaglio.ops.elementwise import add, floor_div, minimum, mod, mul
from intaglio.ops.loop import Range
from intaglio.ops.memory import Load, Local, load
from intaglio.ops.reduce import Fold

if TYPE_CHECKING:
    import itertools

    from intaglio.core.target import Target
    from intaglio.lower.binding import Instance
    from intaglio.lower.loops import Loops

SCRATCH: Final = 1 << 18  # bytes of sums at most: they stay in the second cache
UNROLL: Final = 2  # vectors stored at once


@dataclass(frozen=True, slots=True)
class Sliding:
    """A product whose columns slide over lines of an image."""

    loops: Loops
    axes: itertools.count[int]
    place: Place
    fold: Node
    row: Node
    column: Node
    line: Node  # the range of lines: a step along it is `pitch` steps along the columns
    pitch: int
    lines: int  # that run together

    def run(self, sheets: list[Node], *, split: bool) -> None:
        """Write the loops: over sheets and blocks of lines, which threads share if `split`."""
        loops, emitter = self.loops, self.loops.emitter
        height, width = loops.extent(self.line), loops.extent(self.column)
        lanes = emitter.lanes_of(self.place.value)
        first, run = self._range(height), self._range((self.lines - 1) * self.pitch + width)
        length = -(-loops.extent(run) // lanes) * lanes
        scratch = make(Local(next(self.axes), self.fold.dtype, length * loops.extent(self.row)))
        (total,) = substitute((self.fold,), {self.line: first, self.column: run})
        sums = Place(scratch, emitter.index.sum([(self.row, length), (run, 1)]), total)
        tile = tile_shape_across(loops.extent(self.row), length // lanes, emitter.target)
        product = Product(loops, self.axes, sums, row=self.row, column=run, tile=tile)
        kept = [(self.row, length), (self.line, self.pitch), (first, -self.pitch), (self.column, 1)]
        (value,) = substitute((self.place.value,), {self.fold: load(scratch, emitter.index.sum(kept))})
        place = Place(self.place.pointer, self.place.index, value)
        blocks = -(-height // self.lines)
        counts = [*map(loops.extent, sheets), blocks]
        begin, end = self._share(math.prod(counts)) if split else (number(0), number(math.prod(counts)))

        def block(counter: Node, carried: list[Node]) -> list[Node]:
            level = len(emitter.frames) - 1
            *outer, which = self._digits(counter, counts)
            start = emitter.put(level, mul(which, number(self.lines)))
            stop = emitter.put(level, minimum(emitter.put(level, add(start, number(self.lines))), number(height)))
            whole = emitter.put(level, minimum(start, number(height - self.lines)))  # the last block has all its lines
            for r, value in zip([*sheets, first], [*outer, whole], strict=True):
                emitter.bit(r)
                emitter.bound[r] = Binding(level, value)
            product.run([self.row], split=False)
            self._store(place, lanes, start, stop)
            for r in (*sheets, first):
                del emitter.bound[r]
            return carried

        emitter.loop(begin, end, 1, (), block)

    def _range(self, extent: int) -> Node:
        """A new range."""
        return make(Range(next(self.axes)), number(extent))

    def _share(self, count: int) -> tuple[Node, Node]:
        """The blocks that one call runs."""
        loops = self.loops
        sizes = map(loops.extent, (self.row, self.column, *self.fold.src[1:]))
        work = count * self.lines * math.prod(sizes)
        if work < 2 * CHUNK or count == 1 or loops.emitter.target.threads == 1:
            return number(0), number(count)
        return loops.chunk(count, work, 1)

    def _digits(self, counter: Node, counts: list[int]) -> list[Node]:
        """The position in nested loops of a turn of one loop."""
        emitter = self.loops.emitter
        level = len(emitter.frames) - 1
        found: list[Node] = []
        for k, count in reversed(list(enumerate(counts))):
            if count == 1:
                found.append(number(0))
                continue
            found.append(emitter.put(level, mod(counter, number(count))) if k else counter)
            counter = emitter.put(level, floor_div(counter, number(count)))
        return found[::-1]

    def _store(self, place: Place, lanes: int, start: Node, stop: Node) -> None:
        """What is made of the sums of some lines, and its stores."""
        emitter = self.loops.emitter

        def vectors(instances: list[Instance], _: int) -> None:
            values = emitter.emit_all(place.value, instances)
            for instance, value in zip(instances, values, strict=True):
                emitter.store(place.pointer, place.index, value, instance)

        def line(_: Node, carried: list[Node]) -> list[Node]:
            self.loops.vectors(self.column, lanes, UNROLL, vectors)
            return carried

        def row(_: Node, carried: list[Node]) -> list[Node]:
            emitter.loop(start, stop, 1, (), line, lambda f, c: (self.line, Binding(f, c)))
            return carried

        self.loops.nest([self.row], row)


def sliding(
    loops: Loops, axes: itertools.count[int], place: Place, *, row: Node, column: Node, others: list[Node]
) -> Sliding | None:
    """A product of a store as one whose columns slide over lines, if that makes fewer vectors of them."""
    emitter = loops.emitter
    folds = [n for n in walk((place.value,)) if isinstance(n.op, Fold)]
    if len(folds) != 1:
        return None
    (fold,) = folds
    width, lanes = loops.extent(column), emitter.lanes_of(place.value)
    for line in reversed(others):
        pitch = _pitch(loops, fold, row, line, column)
        if pitch < width or loops.extent(line) == 1:
            continue
        height = loops.extent(line)
        room = SCRATCH // (loops.extent(row) * pitch * fold.dtype.itemsize)
        lines = -(-height // -(-height // max(1, min(room, height))))
        if -(-((lines - 1) * pitch + width) // lanes) < lines * -(-width // lanes):
            return Sliding(loops, axes, place, fold, row, column, line, pitch, lines)
    return None


def tile_shape_across(height: int, width: int, target: Target) -> tuple[int, int]:
    """(rows, vectors) of a tile of `height` rows and `width` vectors, most of which are read across two lines of memory.

    That with the fewest lines and numbers read for all tiles.
    """
    best: tuple[int, int, int] | None = None
    for vectors in (1, 2, 3, 4, 6, WIDEST):
        most = (target.vector_registers - vectors - 1) // vectors
        if vectors > width and best is not None:
            break
        tiles = -(-height // most)
        rows = -(-height // tiles)
        read = tiles * -(-width // vectors) * (rows + 2 * vectors)
        if best is None or read < best[0]:
            best = read, rows, vectors
    assert best is not None
    return best[1:]


def _pitch(loops: Loops, fold: Node, row: Node, line: Node, column: Node) -> int:
    """How many steps along the columns a step to the next line is, wherever memory is read; 0 if it is not so."""
    emitter = loops.emitter
    both = emitter.bit(line) | emitter.bit(column)
    found: set[int] = set()
    for n in toposort((fold.src[0],), enter=lambda n: not isinstance(n.op, Load)):
        if n is line or n is column:
            return 0
        if not isinstance(n.op, Load) or not emitter.mask(n) & both:
            continue
        _, terms = emitter.index.affine(n.src[1])
        others = [t for t in terms if t is not line and t is not column]
        if len(n.src) > 2 or n.op.epoch or terms.get(column) != 1 or any(emitter.mask(t) & both for t in others):
            return 0
        found.add(terms.get(line, 0))
    return found.pop() if len(found) == 1 else 0
