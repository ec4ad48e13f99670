"""Stores that run together for blocks of rows: what one leaves in scratch, the next takes from there while it is near.

Where a choice between what was computed and a constant cuts columns off (a causal mask), what is past the cut is not
computed: a product of it is not needed, and a sum stops there once it is seen that what follows adds nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, make, substitute, toposort, walk
from intaglio.lower.binding import Binding
from intaglio.lower.emit import ACCUMULATORS, Cut
from intaglio.lower.index import number
from intaglio.lower.limits import Compared, cut_of
from intaglio.lower.loops import CHUNK, Place
from intaglio.lower.product import Product, row_range, turned_column
from intaglio.lower.slabs import Slabs
from intaglio.ops.elementwise import absolute, add, and_, eq, floor_div, maximum, minimum, mul, sub, where
from intaglio.ops.loop import Range
from intaglio.ops.memory import Load, Local, const, load
from intaglio.ops.reduce import Fold

if TYPE_CHECKING:
    import itertools
    from collections.abc import Callable

    from intaglio.lower.binding import Instance
    from intaglio.lower.index import Index
    from intaglio.lower.loops import Body, Loops

ROWS: Final = 64  # of a block at most
FEWEST: Final = 4  # at least, if there are more
SCRATCH: Final = 1 << 20  # bytes of what lies between the stores at most
UNROLL: Final = 2  # vectors at once of a masked row


@dataclass(slots=True)
class Member:
    """One store: where and what, and the ranges after the rows."""

    place: Place
    ranges: list[Node]
    product: Product | None = None


@dataclass(frozen=True, slots=True)
class _Masked:
    """A store to scratch that is another value past a cut of its columns."""

    member: Member
    column: Node
    cut: Cut
    folds: dict[Node, Cut]  # of the folds in it, by their ranges
    unread: Node | None  # the scratch of a product that is read before the cut only
    even: bool  # whether it is one number for each row past the cut


def block_rows(rows: int, row_bytes: int, level2: int) -> int:
    """How many rows a block has: as many as half of the second cache holds, in blocks of about equal size."""
    most = max(FEWEST, min(ROWS, min(SCRATCH, level2 // 2) // max(1, row_bytes)))
    return -(-rows // -(-rows // most))


def written_over(members: list[Member], row: Node, index: Index) -> dict[int, int]:
    """The stores to scratch that may take the bytes of others, by number: they alone read those, each at its place.

    What they fold of a row is folded before the first number of it is stored.
    """
    found: dict[int, int] = {}
    for k, member in enumerate(members):
        for j, maker in enumerate(members[:k]):
            own, other = member.place.pointer, maker.place.pointer
            if not isinstance(own.op, Local) or not isinstance(other.op, Local) or j in found.values():
                continue
            alike = (own.op.size, own.op.of) == (other.op.size, other.op.of)
            alone = all(m is member or not _loads(m.place.value, other) for m in members)
            step = index.affine(member.place.index)[1].get(row)
            near = all(index.affine(n.src[1])[1].get(row) == step for n in _loads(member.place.value, other))
            top = toposort((member.place.value,), enter=lambda n: not isinstance(n.op, Fold))
            here = all(n.src[1] is member.place.index for n in top if isinstance(n.op, Load) and n.src[0] is other)
            folds = [n for n in top if isinstance(n.op, Fold) and _loads(n, other)]
            once = not any(n in member.ranges for n in walk(folds))  # not for each number, as in a product
            if alike and alone and near and here and once:
                found[k] = j
                break
    return found


def _loads(value: Node, pointer: Node) -> list[Node]:
    """What a value reads of some memory."""
    return [n for n in walk((value,)) if isinstance(n.op, Load) and n.src[0] is pointer]


@dataclass(frozen=True, slots=True)
class Sheets:
    """Where blocks of rows are: the ranges of sheets, of the first rows of blocks and of the rows of a block."""

    sheet: Node
    first: Node
    row: Node
    rows: int  # of a sheet
    own: tuple[Node, ...]  # the indices of a row, along the sheets' axes and the rows'
    starts: tuple[Node, ...]  # those of the first row of a block


class RowBlocks:
    """The loops over sheets and over blocks of their rows, and what runs in them."""

    def __init__(
        self,
        loops: Loops,
        axes: itertools.count[int],
        sheets: Sheets,
        *,
        nest: Callable[[list[Place], list[Node]], None],
        column: Callable[[list[Place], list[Node]], Node | None],
    ) -> None:
        """Of stores whose places follow from a sheet, the first row of a block and a row of it.

        Args:
            nest: Writes the loops of stores over ranges.
            column: The range among some that becomes a vector.
        """
        self.loops: Final = loops
        self.emitter: Final = loops.emitter
        self.axes: Final = axes
        self.sheet: Final = sheets.sheet
        self.first: Final = sheets.first
        self.row: Final = sheets.row
        self.rows: Final = sheets.rows
        self.height: Final = loops.extent(sheets.row)
        self.nest: Final = nest
        self.column: Final = column
        for r in (sheets.sheet, sheets.first):
            self.emitter.pinned |= self.emitter.bit(r)

    def over(self, work: int, block: Callable[[], None], ahead: Callable[[], None], *, split: bool) -> None:
        """Write the loops.

        Args:
            work: How many values one block takes.
            block: Writes what is done for each block.
            ahead: Writes what comes first in each sheet.
            split: Whether threads share the blocks.
        """
        emitter = self.emitter
        blocks = -(-self.rows // self.height)
        total = self.loops.extent(self.sheet) * blocks
        begin, end = number(0), number(total)
        if split and work * total >= 2 * CHUNK and total > 1 and emitter.target.threads > 1:
            begin, end = self.loops.chunk(total, work * total, 1)

        def one(counter: Node, carried: list[Node]) -> list[Node]:
            level = len(emitter.frames) - 1
            start = emitter.put(level, mul(counter, number(self.height)))  # the last block begins so that it is whole
            start = emitter.put(level, minimum(start, number(self.rows - self.height)))
            emitter.bound[self.first] = Binding(level, start)
            block()
            del emitter.bound[self.first]
            return carried

        def sheet(counter: Node, carried: list[Node]) -> list[Node]:
            level = len(emitter.frames) - 1
            before = emitter.put(level, mul(counter, number(blocks)))
            start = emitter.put(level, maximum(emitter.put(level, sub(begin, before)), number(0)))
            stop = emitter.put(level, minimum(emitter.put(level, sub(end, before)), number(blocks)))
            ahead()
            emitter.loop(start, stop, 1, (), one)
            return carried

        low = emitter.put(0, floor_div(begin, number(blocks)))
        high = emitter.put(0, floor_div(emitter.put(0, add(end, number(blocks - 1))), number(blocks)))
        emitter.loop(low, high, 1, (), sheet, lambda f, c: (self.sheet, Binding(f, c)))

    def work(self, member: Member) -> int:
        """How many values one block of a store takes."""
        size = self.height * math.prod(map(self.loops.extent, member.ranges))
        folds = [n for n in walk((member.place.value,)) if isinstance(n.op, Fold)]
        return size * max((math.prod(map(self.loops.extent, n.src[1:])) for n in folds), default=1)

    def columns_of(self, place: Place, ranges: list[Node]) -> Node | None:
        """The range of the columns of a store that is a product of the rows by a matrix, if it is one."""
        ranges = [self.row, *ranges]
        v = self.column([place], ranges) or turned_column(self.loops, place.value, place.index, ranges)
        if v is None or v is self.row or row_range(self.loops, place.value, [self.row, v], v) is not self.row:
            return None
        return v

    def multiply(self, product: Product, ranges: list[Node], stop: Node | None) -> None:
        """A product of one block, of the columns before `stop` if there is one."""
        if stop is None and self._is_deep(product):
            Slabs(self.loops, self.axes, product.place, row=self.row, column=product.column, near=True).run(
                [], split=False
            )
        else:
            product.run([self.row, *ranges], split=False, stop=stop)

    def cut_off(self, place: Place, v: Node, cut: Cut) -> None:
        """One row of a store whose columns are cut."""
        emitter, loops = self.emitter, self.loops
        level = len(emitter.frames) - 1
        lanes = emitter.lanes_of(place.value)
        whole = loops.extent(v) // (lanes * UNROLL) * lanes * UNROLL
        low, high = (emitter.put(level, minimum(n, number(whole))) for n in (cut.low, cut.high))

        def store(value: Node) -> Body:
            def run(instances: list[Instance], _: int) -> None:
                for instance, made in zip(instances, emitter.emit_all(value, instances), strict=True):
                    emitter.store(place.pointer, place.index, made, instance)

            return run

        parts = (number(0), low, cut.before), (low, high, place.value), (high, number(whole), cut.beyond)
        for start, stop, value in parts:
            loops.whole_vectors(v, start, stop, lanes, UNROLL, store(value))
        if whole < loops.extent(v):
            loops.last_vectors(v, whole, lanes, store(place.value))

    def _is_deep(self, product: Product) -> bool:
        """Whether a panel of the columns, which lie together, is more than the first cache holds."""
        emitter = self.emitter
        places = [n.src[1] for n in walk((product.place.value,)) if isinstance(n.op, Load)]
        steps = [emitter.index.affine(p)[1].get(product.column) for p in places]
        together = all(
            s == 1 for s, p in zip(steps, places, strict=True) if emitter.mask(p) & emitter.bit(product.column)
        )
        line = product.panel * product.place.value.dtype.itemsize
        return len(product.folds) == 1 and together and product.depth * line > emitter.target.level1


class Blocks(RowBlocks):
    """The stores of one kernel being lowered, for blocks of rows, each with all of its columns."""

    def __init__(
        self,
        loops: Loops,
        axes: itertools.count[int],
        sheets: Sheets,
        members: list[Member],
        *,
        nest: Callable[[list[Place], list[Node]], None],
        column: Callable[[list[Place], list[Node]], Node | None],
    ) -> None:
        """Of some stores; else as all blocks of rows."""
        super().__init__(loops, axes, sheets, nest=nest, column=column)
        self.members: list[Member] = members
        self.masked: _Masked | None = None
        self.copied: set[int] = set()  # the products, by identity, whose columns are copied for all blocks of a sheet

    def run(self, *, split: bool) -> None:
        """Write the loops; `split`: threads share the blocks."""
        work = sum(map(self.work, self.members))
        if self.emitter.target.vector_bytes:
            self.members = [m for member in self.members for m in self._planned(member)]
            self.masked = self._find_masked()
        self.over(work, self._block, self._copy_ahead, split=split)

    def _copy_ahead(self) -> None:
        """Copy the columns of products that all blocks of a sheet use, where scratch holds them."""
        products = [m.product for m in self.members if m.product is not None]
        self.copied = {id(p) for p in products if p.copy_ahead()}

    # -- choices

    def _planned(self, member: Member) -> list[Member]:
        """A store, with what it is as a product; before it, stores of what it folds of a row, for all its columns."""
        emitter, place, row = self.emitter, member.place, self.row
        v = self.columns_of(place, member.ranges)
        if v is None:
            return [member]
        found: list[Member] = []
        for fold in toposort((place.value,), enter=lambda n: not isinstance(n.op, Fold)):
            if isinstance(fold.op, Fold) and not emitter.mask(fold) & emitter.bit(v):
                scratch = make(Local(next(self.axes), fold.dtype, self.height))
                found.append(Member(Place(scratch, row, fold), []))
                epoch = len(self.members) + len(found)
                (value,) = substitute((place.value,), {fold: load(scratch, row, epoch=epoch)})
                place = Place(place.pointer, place.index, value)
        product = Product(self.loops, self.axes, place, row=row, column=v)
        return [*found, Member(place, member.ranges, product)]

    def _find_masked(self) -> _Masked | None:
        """The first store whose columns are cut, with the folds in it that are cut there as well."""
        emitter = self.emitter
        rows = Compared(self.row, self.height, emitter.bit(self.sheet) | emitter.bit(self.first))
        for member in self.members:
            value = member.place.value
            if member.product is not None or len(member.ranges) != 1 or not isinstance(member.place.pointer.op, Local):
                continue
            (column,) = member.ranges
            unit = emitter.lanes_of(value) * ACCUMULATORS
            cut = cut_of(emitter, value, column, rows, unit)
            if cut is None:
                continue
            folds: dict[Node, Cut] = {}
            roots = [cut.beyond]
            for fold in (n for n in walk((value,)) if isinstance(n.op, Fold)):
                own = cut_of(emitter, fold.src[0], fold.src[1], rows, unit) if len(fold.src) == 2 else None
                same = own is not None and (own.low, own.high) == (cut.low, cut.high)
                same = same and self.loops.extent(fold.src[1]) == self.loops.extent(column)
                if own is not None and same:
                    folds[fold.src[1]] = own
                roots.append(own.beyond if own is not None and same else fold.src[0])
            past = toposort(roots, enter=lambda n: not isinstance(n.op, Fold))
            read = {n.src[0] for n in past if isinstance(n.op, Load)}
            makers = [m.place.pointer for m in self.members if m.product is not None and _loads(value, m.place.pointer)]
            unread = [
                p
                for p in makers
                if p not in read and all(m is member or not _loads(m.place.value, p) for m in self.members)
            ]
            even = not emitter.mask(cut.beyond) & emitter.bit(column)
            return _Masked(member, column, cut, folds, unread[0] if unread else None, even)
        return None

    # -- loops

    def _block(self) -> None:
        """All stores of one block."""
        emitter, masked = self.emitter, self.masked
        if masked is not None:
            low, high = emitter.emit(masked.cut.low, {}), emitter.emit(masked.cut.high, {})
            masked = replace(masked, cut=replace(masked.cut, low=low, high=high))
            emitter.cuts.update({r: replace(c, low=low, high=high) for r, c in masked.folds.items()})
        waiting: list[Member] = []
        for member in self.members:
            if member.product is None:
                waiting.append(member)
                continue
            self._by_rows(waiting, masked)
            waiting = []
            self._product(member, member.product, masked)
        self._by_rows(waiting, masked)

    def _product(self, member: Member, product: Product, masked: _Masked | None) -> None:
        """A product of one block: of no more columns, and no more terms, than are needed."""
        emitter = self.emitter
        stop: Node | None = None
        if masked is not None and member.place.pointer is masked.unread:
            stop = emitter.put(len(emitter.frames) - 1, minimum(masked.cut.high, number(product.width)))
        if masked is not None and self._sums_masked(masked, product):
            (fold,) = product.folds
            emitter.stops[fold.src[1]] = self._stop(masked, fold, product.column)
        if id(product) in self.copied:
            product.run_copied(stop)
        else:
            self.multiply(product, member.ranges, stop)

    def _by_rows(self, members: list[Member], masked: _Masked | None) -> None:
        """Stores that are no products, row by row."""

        def run(_: Node, carried: list[Node]) -> list[Node]:
            for member in members:
                if masked is not None and member is masked.member:
                    self.cut_off(masked.member.place, masked.column, masked.cut)
                else:
                    self.nest([member.place], member.ranges)
            return carried

        if members:
            self.loops.nest([self.row], run)

    # -- columns that are cut off

    def _sums_masked(self, masked: _Masked, product: Product) -> bool:
        """Whether a product sums what a masked store leaves in scratch, along its columns."""
        if not masked.even or len(product.folds) != 1 or len(product.folds[0].src) != 2:
            return False
        (fold,) = product.folds
        body, r = fold.src
        held = [s for s in body.src if isinstance(s.op, Load) and s.src[0] is masked.member.place.pointer]
        width = self.loops.extent(masked.column)
        steps = [self.emitter.index.affine(s.src[1]) for s in held]
        return steps == [(0, {self.row: width, r: 1})] and self.loops.extent(r) == width and body.dtype.is_float

    def _stop(self, masked: _Masked, fold: Node, column: Node) -> Node:
        """How far a sum of products goes: to the cut, if each row is 0 past it and what it is multiplied with finite.

        What is left out adds nothing then: 0 times a number is 0.
        """
        emitter = self.emitter
        pointer, width = masked.member.place.pointer, self.loops.extent(masked.column)
        level = len(emitter.frames) - 1
        past = emitter.put(level, minimum(masked.cut.high, number(width - 1)))

        def look(counter: Node, carried: list[Node]) -> list[Node]:
            inner = len(emitter.frames) - 1
            at = emitter.put(inner, add(emitter.put(inner, mul(counter, number(width))), past))
            held = emitter.put(inner, absolute(emitter.put(inner, load(pointer, at, epoch=1))))
            return [emitter.put(inner, maximum(carried[0], held))]

        (most,) = emitter.loop(number(0), number(self.height), 1, [const(pointer.dtype, 0)], look)
        (factor,) = (s for s in fold.src[0].src if not emitter.mask(s) & emitter.bit(self.row))
        free = [*fold.src[1:], column]
        moved = {r: make(Range(next(self.axes)), r.src[0]) for r in free if emitter.mask(factor) & emitter.bit(r)}
        (factor,) = substitute((factor,), moved)
        nothing = make(Fold("sum"), mul(factor, const(factor.dtype, 0)), *moved.values())
        tests = [emitter.put(level, eq(n, const(n.dtype, 0))) for n in (most, emitter.emit(nothing, {}))]
        stop = emitter.put(level, minimum(masked.cut.high, number(width)))
        return emitter.put(level, where(emitter.put(level, and_(*tests)), stop, number(width)))
