"""Products of bfloat16 or of bytes by words of two or four, where the target sums the products of their parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import DType, dtypes
from intaglio.ir.node import Node, make, substitute, walk
from intaglio.lower.index import number
from intaglio.lower.loops import Loops, Place
from intaglio.lower.product import PACK, Product
from intaglio.ops.elementwise import Cast, Mul, add, bitcast, cast, mul, or_, shl, xor
from intaglio.ops.loop import Range
from intaglio.ops.memory import Load, Local, Param, const, load
from intaglio.ops.reduce import Dot, Fold

if TYPE_CHECKING:
    import itertools

ROWS: Final = 16  # from which it pays to put the columns' parts together
SIGNS: Final = const(dtypes.uint32, 0x80808080)  # the difference between bytes with a sign and those 128 above them
ONES: Final = const(dtypes.uint32, 0x01010101)


@dataclass(frozen=True, slots=True)
class Words:
    """A product by words: the store, and what must be summed of each row first, if its bytes have another sign."""

    loops: Loops
    axes: itertools.count[int]
    place: Place
    row: Node
    column: Node
    sums: tuple[Node, Node] | None  # (scratch, the sum of a row)

    @property
    def is_exact(self) -> bool:
        """Whether it is of integers: in whatever order they are summed, and at once by far the fewest instructions."""
        return not any(isinstance(n.op, Fold) and n.dtype.is_float for n in walk((self.place.value,)))

    def run(self, ranges: list[Node]) -> None:
        """Write the loops of the kernel."""
        product = Product(self.loops, self.axes, self.place, row=self.row, column=self.column)
        product.run(ranges, split=True, first=None if self.sums is None else self._sum_rows)

    def _sum_rows(self) -> None:
        """The sum of each row into scratch."""
        assert self.sums is not None
        scratch, total = self.sums
        emitter = self.loops.emitter

        def one(_: Node, carried: list[Node]) -> list[Node]:
            emitter.store(scratch, self.row, emitter.emit(total, {}), {})
            return carried

        self.loops.nest([self.row], one)


def in_words(
    loops: Loops, axes: itertools.count[int], place: Place, row: Node, column: Node, sheets: list[Node]
) -> Words | None:
    """A product of a store by words, if its factors are of a dtype that the target has words of, and deep enough."""
    emitter = loops.emitter
    folds = [n for n in walk((place.value,)) if isinstance(n.op, Fold)]
    if len(folds) != 1 or loops.extent(row) < ROWS or not isinstance(folds[0].src[0].op, Mul):
        return None
    (fold,) = folds
    body, *ranges = fold.src
    factors = sorted(body.src, key=lambda s: bool(emitter.mask(s) & emitter.bit(column)))
    rows, columns = (_narrow(s, body.dtype) for s in factors)
    if rows is None or columns is None or any(not emitter.mask(rows) & emitter.bit(r) for r in sheets):
        return None
    whole = body.dtype is dtypes.int32
    if not (emitter.target.has_words_of_bytes if whole else emitter.target.has_words_of_bfloat16):
        return None
    parts = 4 if whole else 2
    for r in ranges:
        extent = loops.extent(r)
        depth = extent // parts
        for other in ranges:
            depth *= 1 if other is r else loops.extent(other)
        if extent % parts or extent // parts < 16 or 2 * emitter.target.vector_bytes * depth > PACK:
            continue
        group = make(Range(next(axes)), number(extent // parts))
        x = _word(loops, rows, r, group, parts)
        y = _word(loops, columns, r, group, parts) or _joined(columns, r, group, parts)
        if x is not None:
            return _made(
                loops,
                axes,
                place,
                fold,
                row,
                column,
                (x, y),
                [group if q is r else q for q in ranges],
                (rows.dtype, columns.dtype),
            )
    return None


def _narrow(factor: Node, wide: DType) -> Node | None:
    """What a factor is a wider form of, if words hold it."""
    if not isinstance(factor.op, Cast):
        return None
    (x,) = factor.src
    fits = x.dtype is dtypes.bfloat16 if wide is dtypes.float32 else x.dtype in (dtypes.int8, dtypes.uint8)
    return x if fits and wide in (dtypes.float32, dtypes.int32) else None


def _word(loops: Loops, value: Node, r: Node, group: Node, parts: int) -> Node | None:
    """A word of neighbours along a range, if they lie together in memory."""
    if not isinstance(value.op, Load) or len(value.src) != 2 or value.op.epoch:
        return None
    index = loops.emitter.index
    pointer, place = value.src
    if not isinstance(pointer.op, Param):
        return None
    constant, terms = index.affine(place)
    others = [(t, c // parts) for t, c in terms.items() if t is not r]
    uneven = any(c % parts for t, c in terms.items() if t is not r) or constant % parts
    if terms.get(r) != 1 or uneven or any(loops.emitter.mask(t) & loops.emitter.bit(r) for t, _ in others):
        return None
    words = make(Param(pointer.op.slot, dtypes.uint32, pointer.op.group))
    return load(words, index.sum([(group, 1), *others], constant // parts))


def _joined(value: Node, r: Node, group: Node, parts: int) -> Node:
    """A word put together from values along a range."""
    total: Node | None = None
    bits = 32 // parts
    for k in range(parts):
        (part,) = substitute((value,), {r: add(mul(group, number(parts)), number(k))})
        raw = cast(bitcast(part, dtypes.uint16 if bits == 16 else dtypes.uint8), dtypes.uint32)
        moved = shl(raw, const(dtypes.uint32, bits * k)) if k else raw
        total = moved if total is None else or_(total, moved)
    assert total is not None
    return total


def _made(
    loops: Loops,
    axes: itertools.count[int],
    place: Place,
    fold: Node,
    row: Node,
    column: Node,
    factors: tuple[Node, Node],
    ranges: list[Node],
    of: tuple[DType, DType],
) -> Words:
    """The store with its sum by words. The first of two factors has bytes without a sign: the other's if need be."""
    x, y = factors
    zero = const(fold.dtype, 0)
    signed = of[0] is dtypes.int8
    weight = 0
    if fold.dtype is dtypes.float32:
        body = make(Dot(dtypes.bfloat16), y, x, zero)
    else:
        if of[0] is of[1]:
            weight, y = -128 if signed else 128, xor(y, SIGNS)
        body = make(Dot(dtypes.int8), *((y, x) if signed else (x, y)), zero)
    total = make(fold.op, body, *ranges)
    sums: tuple[Node, Node] | None = None
    if weight:
        scratch = make(Local(next(axes), dtypes.int32, loops.extent(row)))
        sums = scratch, make(fold.op, make(Dot(dtypes.int8), *((ONES, x) if signed else (x, ONES)), zero), *ranges)
        total = add(total, mul(load(scratch, row), const(dtypes.int32, weight)))
    (value,) = substitute((place.value,), {fold: total})
    return Words(loops, axes, Place(place.pointer, place.index, value), row, column, sums)
