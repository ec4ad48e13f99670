"""Products by a window that slides over an image: blocks of its lines, each as one run of columns.

In a convolution the columns of one line of results are seldom a whole number of vectors. A step to the next line moves
the window as a step of `pitch` columns would. So some lines are computed as one run, with the `pitch - width` columns
between them, which are read inside the image and mean nothing. The sums are kept in scratch, and only lines are stored.
Where the image is padded, the lines that a block needs are first copied to scratch, with the zeros around them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Node, make, substitute, toposort, walk
from intaglio.lower.binding import Binding
from intaglio.lower.index import number
from intaglio.lower.loops import CHUNK, Place
from intaglio.lower.product import WIDEST, Product
from intaglio.ops.elementwise import Cast, add, floor_div, minimum, mod, mul
from intaglio.ops.loop import Range
from intaglio.ops.memory import Load, Local, load
from intaglio.ops.reduce import Fold

if TYPE_CHECKING:
    import itertools
    from collections.abc import Callable

    from intaglio.core.target import Target
    from intaglio.lower.binding import Instance
    from intaglio.lower.index import Terms
    from intaglio.lower.loops import Loops

SCRATCH: Final = 1 << 18  # bytes of a block's sums, and of its part of the image: both stay in the second cache
MOST: Final = 1 << 19  # as many if one line of results needs them: `schedule/fuse.py` knows that
FARTHEST: Final = 64  # steps from one end of a window to the other at most
UNROLL: Final = 2  # vectors stored at once


@dataclass(frozen=True, slots=True)
class Image:
    """Lines of an image in scratch, padded: what is copied, and how the product's factor follows from it."""

    factor: Node  # of the product
    value: Node  # what is copied: of the ranges below and of those of the sum that are not within the window
    line: Node
    column: Node
    around: list[Node]
    reach: int  # lines of a window, less one
    place: Node  # where the product's factor is, if the first line in scratch is line 0


@dataclass(frozen=True, slots=True)
class Sliding:
    """A product whose columns slide over lines of an image."""

    loops: Loops
    axes: itertools.count[int]
    place: Place
    fold: Node
    row: Node
    column: Node
    line: Node  # the range of lines
    pitch: int  # how many steps along the columns a step to the next line is
    lines: int  # of a block
    joined: bool  # whether the lines of a block are one run of columns
    image: Image | None  # what is copied to scratch

    def run(self, sheets: list[Node], *, split: bool) -> None:
        """Write the loops: over sheets and blocks of lines, which threads share if `split`."""
        loops, emitter = self.loops, self.loops.emitter
        height, width = loops.extent(self.line), loops.extent(self.column)
        lanes = emitter.lanes_of(self.place.value)
        first = self._range(height)
        fold, copy = (self.fold, None) if self.image is None else self._copied(self.image, first)
        if self.joined:
            pitch, line = self.pitch, number(0)
            column = self._range((self.lines - 1) * pitch + width)
            length = -(-loops.extent(column) // lanes) * lanes
        else:
            pitch, line, column = -(-width // lanes) * lanes, self._range(self.lines), self.column
            length = pitch * self.lines
        scratch = make(Local(next(self.axes), fold.dtype, length * loops.extent(self.row)))
        (total,) = substitute((fold,), {self.line: emitter.index.add(first, line), self.column: column})
        sums = Place(scratch, emitter.index.sum([(self.row, length), (line, pitch), (column, 1)]), total)
        tile = _tile_shape(loops.extent(self.row), -(-loops.extent(column) // lanes), emitter.target)
        product = Product(loops, self.axes, sums, row=self.row, column=column, tile=tile)
        kept = [(self.row, length), (self.line, pitch), (first, -pitch), (self.column, 1)]
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
            for r, at in zip([*sheets, first], [*outer, whole], strict=True):
                emitter.bit(r)
                emitter.bound[r] = Binding(level, at)
            if copy is not None:
                copy(whole)
            product.run([self.row] if self.joined else [self.row, line], split=False)
            self._store(place, lanes, start, stop)
            for r in (*sheets, first):
                del emitter.bound[r]
            return carried

        emitter.loop(begin, end, 1, (), block)

    def _range(self, extent: int) -> Node:
        """A new range."""
        return make(Range(next(self.axes)), number(extent))

    def _copied(self, image: Image, first: Node) -> tuple[Node, Callable[[Node], None]]:
        """(the sum with its factor taken from scratch, what writes the copy of some lines from the first on)."""
        loops, emitter = self.loops, self.loops.emitter
        lines = self.lines + image.reach
        size = lines * self.pitch
        scratch = make(Local(next(self.axes), image.value.dtype, size * math.prod(map(loops.extent, image.around))))
        around: list[tuple[Node, int]] = []
        for r in reversed(image.around):
            around.append((r, size))
            size *= loops.extent(r)
        back = [(first, -self.pitch)]
        held = load(scratch, emitter.index.sum([(image.place, 1), *around, *back]))
        (fold,) = substitute((self.fold,), {image.factor: held})
        place = emitter.index.sum([(image.line, self.pitch), (image.column, 1), *around, *back])

        def copy(start: Node) -> None:
            stop = emitter.put(len(emitter.frames) - 1, add(start, number(lines)))

            def vectors(instances: list[Instance], _: int) -> None:
                def line(_: Node, carried: list[Node]) -> list[Node]:
                    values = emitter.emit_all(image.value, instances)
                    for instance, value in zip(instances, values, strict=True):
                        emitter.store(scratch, place, value, instance)
                    return carried

                emitter.loop(start, stop, 1, (), line, lambda f, c: (image.line, Binding(f, c)))

            def channel(_: Node, carried: list[Node]) -> list[Node]:
                loops.vectors(image.column, emitter.lanes_of(image.value), UNROLL, vectors)
                return carried

            loops.nest(image.around, channel)

        return fold, copy

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
    """A product of a store as one by a window that slides over lines, if that makes fewer vectors of its columns.

    Or if the image is padded: then lines of it are first copied to scratch, zeros and all.
    """
    emitter = loops.emitter
    folds = [n for n in walk((place.value,)) if isinstance(n.op, Fold)]
    if len(folds) != 1:
        return None
    (fold,) = folds
    width, lanes = loops.extent(column), emitter.lanes_of(place.value)
    room = min(SCRATCH, emitter.target.level2 // 4)
    for line in reversed(others):
        image = _image(loops, axes, fold, row, line, column)
        pitch = _pitch(loops, fold, line, column) if image is None else loops.extent(image.column)
        height = loops.extent(line)
        if height == 1 or (pitch < width and image is None):
            continue
        sums = loops.extent(row) * max(pitch, width) * fold.dtype.itemsize  # bytes of one line
        lines = _even(height, room // sums)
        if image is not None:
            copied = math.prod(map(loops.extent, image.around)) * pitch * image.value.dtype.itemsize
            lines = _even(height, min(room // sums, room // copied - image.reach))
            if max(sums * lines, copied * (lines + image.reach)) > MOST:
                continue
        joined = -(-((lines - 1) * pitch + width) // lanes) < lines * -(-width // lanes)
        if joined or image is not None:
            return Sliding(loops, axes, place, fold, row, column, line, pitch, lines, joined, image)
    return None


def _even(height: int, most: int) -> int:
    """How many lines a block has: as many as there is room for, in blocks of about equal size."""
    return -(-height // -(-height // max(1, min(most, height))))


def _tile_shape(height: int, width: int, target: Target) -> tuple[int, int]:
    """(rows, vectors) of a tile of `height` rows and `width` vectors, most of which lie across two lines of memory.

    That with the fewest reads of lines and numbers for all tiles.
    """
    best: tuple[int, int, int] | None = None
    for vectors in (1, 2, 3, 4, 6, WIDEST):
        most = (target.vector_registers - vectors - 1) // vectors
        if most < 1 or (vectors > width and best is not None):
            break
        tiles = -(-height // most)
        rows = -(-height // tiles)
        read = tiles * -(-width // vectors) * (rows + 2 * vectors)
        if best is None or read < best[0]:
            best = read, rows, vectors
    assert best is not None
    return best[1:]


def _pitch(loops: Loops, fold: Node, line: Node, column: Node) -> int:
    """How many steps along the columns a step to the next line is, wherever memory is read; 0 if it is not so."""
    emitter = loops.emitter
    both = emitter.bit(line) | emitter.bit(column)
    found: set[int] = set()
    for n in toposort((fold.src[0],), enter=lambda n: not isinstance(n.op, Load)):
        if n is line or n is column:
            return 0
        if not isinstance(n.op, Load) or not emitter.mask(n) & both:
            continue
        _, place, *gate = n.src
        if gate or n.op.epoch or emitter.stride(place, column) != 1:
            return 0
        found.add(emitter.stride(place, line))
    return found.pop() if len(found) == 1 else 0


def _image(loops: Loops, axes: itertools.count[int], fold: Node, row: Node, line: Node, column: Node) -> Image | None:
    """A padded image that a window of a product slides over, if a step of the window is one line, or one column.

    Then the factor follows from the line and the column in the image, each a sum of one of the window and one in it.
    """
    emitter, index = loops.emitter, loops.emitter.index
    own = [s for s in fold.src[0].src if emitter.mask(s) & emitter.bit(column)]
    if len(own) != 1 or isinstance(own[0].op, (Load, Cast)) or emitter.mask(own[0]) & emitter.bit(row):
        return None
    (factor,) = own
    if any(emitter.mask(s) & emitter.bit(line) for s in fold.src[0].src if s is not factor):
        return None  # the rows are others for each line
    nodes = toposort((factor,), enter=lambda n: n.dtype is not dtypes.int64 or isinstance(n.op, Load))
    if factor.dtype is dtypes.int64 or any(isinstance(n.op, Load) and n.op.epoch for n in nodes):
        return None
    forms = [index.affine(n)[1] for n in nodes if n.dtype is dtypes.int64 and not isinstance(n.op, Load)]
    down = _inner(loops, forms, line, list(fold.src[1:]))
    across = _inner(loops, forms, column, [r for r in fold.src[1:] if down is None or r is not down[0]])
    pairs = [(axis, found) for axis, found in ((line, down), (column, across)) if found is not None]
    windows = [r for _, (r, _) in pairs]
    if not windows:
        return None
    moved = emitter.bit(line) | emitter.bit(column)
    for r in windows:
        moved |= emitter.bit(r)
    if any(emitter.mask(t) & moved for form in forms for t in form if t not in (line, column, *windows)):
        return None
    reach = {axis: step * (loops.extent(r) - 1) for axis, (r, step) in pairs}
    height, width = (loops.extent(axis) + reach.get(axis, 0) for axis in (line, column))
    high, low = (make(Range(next(axes)), number(n)) for n in (height, width))
    (value,) = substitute((factor,), {line: high, column: low, **{r: number(0) for r in windows}})
    around = [r for r in fold.src[1:] if r not in windows and emitter.mask(factor) & emitter.bit(r)]
    scale = {line: width, column: 1}
    inside = [(r, step * scale[axis]) for axis, (r, step) in pairs]
    place = index.sum([(line, width), (column, 1), *inside])
    return Image(factor, value, high, low, around, reach.get(line, 0), place)


def _inner(loops: Loops, forms: list[Terms], axis: Node, ranges: list[Node]) -> tuple[Node, int] | None:
    """The range within a window that adds to an axis, and how many steps of that a step of it is: the fewest."""
    steps = [(_dilation(forms, axis, r), k) for k, r in enumerate(ranges)]
    near = [(d, k) for d, k in steps if d and d * (loops.extent(ranges[k]) - 1) <= FARTHEST]
    if not near:
        return None
    step, k = min(near)
    return ranges[k], step


def _dilation(forms: list[Terms], axis: Node, r: Node) -> int:
    """How many steps of an axis a step of a range is, in all forms; 0 if it is not so."""
    found: set[int] = set()
    for form in forms:
        a, b = form.get(axis, 0), form.get(r, 0)
        if a or b:
            found.add(b // a if a and b % a == 0 else 0)
    return max(found.pop(), 0) if len(found) == 1 else 0
