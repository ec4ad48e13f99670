"""Blocks of rows whose columns go by in blocks as well: maxima so far, and sums that are scaled as those grow.

Rows that are too long for a cache are never there as a whole. A sum of exponentials below the largest number so far is
multiplied by exp(old - new) when a larger one comes. While nothing but -inf has come, 0 stands for it: exp(-inf) is 0
then. What is not finite goes where the formula over whole rows sends it. Columns that a mask sets to -inf, for all rows
of a block, are left out if what they are multiplied with is finite: they would add 0. Sums are divided in the end; till
then they are as large as the values times their number, at most.

Source: Milakov & Gimelshein, Online normalizer calculation for softmax, arXiv 1805.02867.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, make, substitute, walk
from intaglio.ir.view import View
from intaglio.lower.binding import Binding
from intaglio.lower.blocks import ROWS, SCRATCH, Member, RowBlocks
from intaglio.lower.emit import ACCUMULATORS, Cut
from intaglio.lower.index import number
from intaglio.lower.limits import Compared, cut_of
from intaglio.lower.loops import Place
from intaglio.lower.product import Product
from intaglio.ops.elementwise import Mul, add, and_, eq, exp, lt, maximum, minimum, mul, sub, where
from intaglio.ops.loop import Range
from intaglio.ops.memory import Iota, Load, Local, const, load, window
from intaglio.ops.reduce import Fold

if TYPE_CHECKING:
    import itertools
    from collections.abc import Callable, Sequence

    from intaglio.core.dtypes import DType
    from intaglio.core.target import Target
    from intaglio.lower.blocks import Sheets
    from intaglio.lower.loops import Loops
    from intaglio.lower.ranges import Scalarize
    from intaglio.lower.values import Values
    from intaglio.ops.rescaling import Exponentials

COLUMNS: Final = 256  # of a block at most: what is done once for each row and block is little beside them
LINE: Final = 64  # columns of which a block has a whole number, if it can be
HIGH: Final = 256  # rows of a block at most: they share the columns that are turned for them
FEWEST: Final = 16  # at least, if there are more
SHARED: Final = 4  # blocks for each thread at least, where those are of some rows


@dataclass(frozen=True, slots=True)
class Stores:
    """Stores of one kernel, and how they become scalar."""

    stores: Sequence[Node]
    found: Exponentials
    scalar: Scalarize
    values: Values


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum along the columns: its node, its ranges apart from the rows, and where it is held for a block of rows."""

    node: Node
    ranges: list[Node]
    indices: list[Node]
    held: Node
    index: Node


@dataclass(frozen=True, slots=True)
class _Columns:
    """What is done with a block of columns."""

    width: int
    makers: list[Member]
    larger: Place  # the largest number of a row up to here
    along: Node  # the range of the fold in it
    weights: Member
    sums: list[Member]
    cuts: list[
        Cut
    ]  # at one place, of the exponents, of what is folded of them, of the weights; none where none is known


def are_long(found: Exponentials, target: Target) -> bool:
    """Whether a block of whole rows would fill half of the second cache: the columns would not be near as well."""
    line = found.exponent.shape[-1] * found.exponent.dtype.itemsize
    return ROWS * line >= min(SCRATCH, target.level2 // 2)


def column_block(columns: int) -> int:
    """How many columns a block has: if it can be, a number of which there are whole blocks."""
    even = [n for n in range(COLUMNS, COLUMNS // 2, -LINE) if columns % n == 0]
    return even[0] if even else min(COLUMNS, columns)


def row_block(found: Exponentials, sheets: int, rows: int, target: Target) -> int:
    """How many rows a block has: what a quarter of the second cache holds; less where threads would get none.

    Half of that where positions are compared: past a mask's diagonal whole blocks are computed.
    """
    exponent = found.exponent
    line = column_block(exponent.shape[-1]) * exponent.dtype.itemsize
    compares = any(isinstance(n.op, Iota) for n in walk((exponent,)))
    most = min(HIGH // 2 if compares else HIGH, target.level2 // 4 // line)
    share = sheets * rows // target.threads
    if target.threads > 1:
        most = min(most, max(share // SHARED, min(share, ROWS)))
    return -(-rows // -(-rows // max(FEWEST, most)))


class Rescaled(RowBlocks):
    """The stores of one kernel being lowered, the last of which takes sums of exponentials."""

    def __init__(
        self,
        loops: Loops,
        axes: itertools.count[int],
        sheets: Sheets,
        made: Stores,
        *,
        nest: Callable[[list[Place], list[Node]], None],
        column: Callable[[list[Place], list[Node]], Node | None],
    ) -> None:
        """Of some stores; else as all blocks of rows."""
        super().__init__(loops, axes, sheets, nest=nest, column=column)
        *makers, weights, last = made.stores
        exponent = made.found.exponent
        self.made: Final = made
        self.sheets: Final = sheets
        self.dtype: Final = exponent.dtype
        self.total: Final = exponent.shape[-1]
        self.width: Final = column_block(self.total)
        self.stride: Final = self.width + self.emitter.target.vector_bytes // self.dtype.itemsize
        self.epochs: int = 0
        self.makers: Final = makers
        self.scratch: Final = {n.src[0].src[0]: self._local(n.src[1].dtype, self.stride) for n in makers}
        self.whole: Final = weights.src[0].src[0]  # the weights of all rows, which are nowhere
        self.scratch[self.whole] = self._local(self.dtype, self.stride)
        self.largest, self.larger, self.factor = (self._local(self.dtype, 1) for _ in range(3))
        self.sums: Final = [self._sum(n) for n in made.found.sums]
        self.last: Final = self._last(last)
        self.start: Final = made.scalar.range(self.total - self.width + 1)  # the first column of a block

    def run(self, *, split: bool) -> None:
        """Write the loops; `split`: threads share the blocks of rows."""
        self.emitter.pinned |= self.emitter.bit(self.start)
        columns = self._columns(self.start, self.width)
        left = self.total % self.width
        rest = self._columns(number(self.total - left), left) if left else None
        adds_nothing = self._left_out(columns)
        work = sum(map(self.work, (*columns.makers, *columns.sums))) * (self.total // self.width)
        self.over(work, lambda: self._block(columns, rest, adds_nothing), lambda: None, split=split)

    # -- scalar values

    def _local(self, dtype: DType, line: int) -> Node:
        """Scratch for the rows of a block."""
        return make(Local(next(self.axes), dtype, self.height * line))

    def _load(self, pointer: Node, index: Node) -> Node:
        """What is in scratch when it is asked for."""
        self.epochs += 1
        return load(pointer, index, epoch=self.epochs)

    def _at(self, value: Node, indices: tuple[Node, ...], column: Node) -> Node:
        """A value at a row, the scratch of all rows read as that of a block of rows and columns."""
        simple = self.made.values.at(self.made.scalar, value, (*self.sheets.own, *indices))
        read = [n for n in walk((simple,)) if isinstance(n.op, Load) and n.src[0] in self.scratch]
        place = self._place(column)
        return substitute((simple,), {n: self._load(self.scratch[n.src[0]], place) for n in read})[0]

    def _place(self, column: Node) -> Node:
        """Where a column of a row is in scratch."""
        return self.emitter.index.sum([(self.row, self.stride), (column, 1)])

    def _sum(self, node: Node) -> _Sum:
        """A sum along the columns, with scratch."""
        shape = node.shape[len(self.sheets.own) :]
        indices = [self.made.scalar.range(n) if n != 1 else number(0) for n in shape]
        index = self.emitter.index
        place = index.sum([(self.row, math.prod(shape)), (index.flatten(tuple(indices), shape), 1)])
        held = self._local(node.dtype, math.prod(shape))
        return _Sum(node, [r for r in indices if isinstance(r.op, Range)], indices, held, place)

    def _last(self, store: Node) -> Member:
        """The last store, which takes the sums from scratch."""
        scalar, own = self.made.scalar, self.sheets.own
        whole = {s.node: make(Local(next(self.axes), s.node.dtype, s.node.size)) for s in self.sums}
        windows = {n: window(View.contiguous(n.dtype, n.shape), pointer) for n, pointer in whole.items()}
        (value,) = substitute((self.made.found.last,), windows)
        rest = tuple(scalar.range(n) if n != 1 else number(0) for n in store.src[0].shape[len(own) :])
        pointer, index = self.made.values.target(store.src[0], (*own, *rest), scalar)
        value = self.made.values.at(scalar, value, (*own, *rest))
        for s in self.sums:
            zeros = (number(0),) * (s.node.rank - len(own))
            base = scalar.at(windows[s.node], (*self.sheets.starts, *zeros)).src[1]
            read = [n for n in walk((value,)) if isinstance(n.op, Load) and n.src[0] is whole[s.node]]
            near = {n: self.emitter.index.sum([(n.src[1], 1), (base, -1)]) for n in read}
            (value,) = substitute((value,), {n: self._total(s, place) for n, place in near.items()})
        return Member(Place(pointer, index, value), [r for r in rest if isinstance(r.op, Range)])

    def _total(self, found: _Sum, place: Node) -> Node:
        """A sum of a row when all columns are taken: NaN where nothing but -inf has come, as 0 stood for it."""
        largest = self._load(self.largest, self.row)
        return add(self._load(found.held, place), sub(largest, largest))

    def _columns(self, start: Node, width: int) -> _Columns:
        """What is done with the columns from a start."""
        scalar, index = self.made.scalar, self.emitter.index
        column, along = scalar.range(width), scalar.range(width)
        here = index.add(start, column)
        makers: list[Member] = []
        for store in self.makers:
            value = self._at(store.src[1], (here,), column)
            makers.append(self._member(Place(self.scratch[store.src[0].src[0]], self._place(column), value), [column]))
        exponent = self._at(self.made.found.exponent, (here,), column)
        (inner,) = substitute((exponent,), {column: along})
        largest = maximum(self._load(self.largest, self.row), make(Fold("max"), inner, along))
        weight = self.made.values.decomposed(exp(sub(exponent, self._finite())))
        weights = Member(Place(self.scratch[self.whole], self._place(column), weight), [column])
        sums: list[Member] = []
        for s in self.sums:
            r = scalar.range(width)
            body = self._at(s.node.src[0], (*s.indices, index.add(start, r)), r)
            scaled = mul(self._load(s.held, s.index), self._load(self.factor, self.row))
            value = add(scaled, make(Fold("sum"), body, r))
            sums.append(self._member(Place(s.held, s.index, value), s.ranges))
        cuts = self._cuts([(exponent, column), (inner, along), (weight, column)], start)
        return _Columns(width, makers, Place(self.larger, self.row, largest), along, weights, sums, cuts)

    def _finite(self) -> Node:
        """The largest number of a row up to here, or 0 where that is -inf."""
        held = self._load(self.larger, self.row)
        return where(eq(held, const(self.dtype, -math.inf)), const(self.dtype, 0), held)

    def _member(self, place: Place, ranges: list[Node]) -> Member:
        """A store, with what it is as a product."""
        column = self.columns_of(place, ranges) if ranges and self.emitter.target.vector_bytes else None
        if column is None:
            return Member(place, ranges)
        return Member(place, ranges, Product(self.loops, self.axes, place, row=self.row, column=column))

    # -- columns that are cut off

    def _cuts(self, values: list[tuple[Node, Node]], start: Node) -> list[Cut]:
        """Where values are simpler along their columns in a block, if that is at one place for all of them."""
        emitter = self.emitter
        rows = Compared(self.row, self.height, emitter.bit(self.sheet) | emitter.bit(self.first) | emitter.bit(start))
        unit = emitter.target.vector_bytes // self.dtype.itemsize * ACCUMULATORS
        cuts = [cut_of(emitter, value, column, rows, unit) for value, column in values if unit]
        found = [cut for cut in cuts if cut is not None and cuts[0] is not None]
        alike = len({(cut.low, cut.high) for cut in found}) == 1
        return found if alike and len(found) == len(values) else []

    def _left_out(self, columns: _Columns) -> list[Node]:
        """What must hold for the columns past a cut to add nothing; nothing where it is not known."""
        emitter = self.emitter
        if not columns.cuts:
            return []
        beyond = columns.cuts[0].beyond
        if any(
            emitter.mask(beyond) & emitter.bit(r) for r in (self.start, self.first, self.row, *columns.weights.ranges)
        ):
            return []
        tests = [eq(beyond, const(self.dtype, -math.inf))]
        for member, s in zip(columns.sums, self.sums, strict=True):
            (fold,) = (n for n in walk((member.place.value,)) if isinstance(n.op, Fold))
            body, r = fold.src
            for factor in body.src if isinstance(body.op, Mul) else ():
                if not _reads(factor, self.scratch[self.whole]):
                    free = [n for n in s.ranges if emitter.mask(factor) & emitter.bit(n)]
                    moved = {n: make(Range(next(self.axes)), n.src[0]) for n in free}
                    every = self.made.scalar.range(self.total)
                    (whole,) = substitute((factor,), {self.start: number(0), r: every, **moved})
                    nothing = make(Fold("sum"), mul(whole, const(factor.dtype, 0)), every, *moved.values())
                    tests.append(eq(nothing, const(factor.dtype, 0)))  # unless some of it is not finite
        return tests

    # -- loops

    def _block(self, columns: _Columns, rest: _Columns | None, tests: list[Node]) -> None:
        """All that is done with a block of rows."""
        emitter, loops = self.emitter, self.loops
        self.nest([Place(self.largest, self.row, const(self.dtype, -math.inf))], [self.row])
        for s in self.sums:
            self.nest([Place(s.held, s.index, const(s.node.dtype, 0))], [self.row, *s.ranges])
        level = len(emitter.frames) - 1
        out: Node | None = None
        for test in tests:
            value = emitter.emit(test, {})
            out = value if out is None else emitter.put(level, and_(out, value))

        def block(_: Node, carried: list[Node]) -> list[Node]:
            self._by_columns(columns, out)
            return carried

        end = self.total // self.width * self.width
        emitter.loop(number(0), number(end), self.width, (), block, lambda f, c: (self.start, Binding(f, c)))
        if rest is not None:
            self._by_columns(rest, out)
        loops.nest([self.row], lambda _, carried: (self.nest([self.last.place], self.last.ranges), carried)[1])

    def _by_columns(self, columns: _Columns, out: Node | None) -> None:
        """A block of columns, if it adds anything."""
        emitter = self.emitter
        if not columns.cuts:
            self._take(columns, None, None)
            return
        level = len(emitter.frames) - 1
        width = number(columns.width)
        low, high = (emitter.emit(n, {}) for n in (columns.cuts[0].low, columns.cuts[0].high))
        _, inner, weights = (replace(cut, low=low, high=high) for cut in columns.cuts)
        emitter.cuts[columns.along] = inner
        stop = None if out is None else emitter.put(level, where(out, emitter.put(level, minimum(high, width)), width))
        if stop is None:
            self._take(columns, weights, None)
        else:
            emitter.when(emitter.put(level, lt(number(0), stop)), lambda: self._take(columns, weights, stop))

    def _take(self, columns: _Columns, cut: Cut | None, stop: Node | None) -> None:
        """A block of columns: what makes them, their weights, their sums.

        Args:
            cut: Where the weights are simpler.
            stop: How far sums of products go.
        """
        emitter = self.emitter
        for member in columns.makers:
            self._store(member, None if cut is None else self._needed(columns, member, cut))
        self._weigh(columns.larger, columns.weights, cut)
        for member in columns.sums:
            if stop is not None and member.product is not None:
                (fold,) = member.product.folds
                emitter.stops[fold.src[1]] = stop
            self._store(member, None)

    def _store(self, member: Member, stop: Node | None) -> None:
        """One store for a block of rows."""
        if member.product is not None:
            self.multiply(member.product, member.ranges, stop)
        else:
            self.loops.nest([self.row], lambda _, k: (self.nest([member.place], member.ranges), k)[1])

    def _weigh(self, larger: Place, weights: Member, cut: Cut | None) -> None:
        """The largest numbers of some rows, what sums so far are multiplied by, and the weights."""
        self.loops.nest([self.row], lambda _, k: (self.nest([larger], []), k)[1])
        shrunk = exp(sub(self._load(self.largest, self.row), self._finite()))
        self.nest([Place(self.factor, self.row, self.made.values.decomposed(shrunk))], [self.row])
        self.nest([Place(self.largest, self.row, self._load(self.larger, self.row))], [self.row])

        def weigh(_: Node, carried: list[Node]) -> list[Node]:
            if cut is None:
                self.nest([weights.place], weights.ranges)
            else:
                self.cut_off(weights.place, weights.ranges[0], cut)
            return carried

        self.loops.nest([self.row], weigh)

    def _needed(self, columns: _Columns, member: Member, cut: Cut) -> Node | None:
        """How many columns of what a store makes are read, if not all: those before the cut."""
        values = [cut.beyond, *(m.place.value for m in columns.makers)]
        if any(_reads(value, member.place.pointer) for value in values):
            return None
        return self.emitter.put(len(self.emitter.frames) - 1, minimum(cut.high, number(columns.width)))


def _reads(value: Node, pointer: Node) -> bool:
    """Whether a value reads some memory."""
    return any(isinstance(n.op, Load) and n.src[0] is pointer for n in walk((value,)))
