"""Sums in blocks of blocks: their errors grow with the levels of those, and not with the number of values.

An accumulator takes some values from zero, then joins an outer one, which takes some of those. The order of a sum
follows from its extents alone, and is the same whether they are known before the kernel runs or not: a level that a
short sum does not need adds one value to zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Node, make
from intaglio.lower.index import number
from intaglio.ops.elementwise import Mul, add, cast, eq, le, sub, where
from intaglio.ops.loop import Shuffle
from intaglio.ops.memory import const
from intaglio.ops.reduce import COMBINES, Across, Dot

if TYPE_CHECKING:
    from intaglio.lower.emit import Emitter
    from intaglio.lower.index import Index

BLOCKS: Final = (8, 64, 1 << 9, 1 << 12, 1 << 15)  # values in a block of each level
SPAN: Final = BLOCKS[0]
MANY: Final = 1 << 9  # values from which a row's last additions are precise: of fewer they take too much of the time
TERMS: Final = (1 << 8, 1 << 12, 1 << 16)  # the same of products of matrices, whose accumulators fill the registers


def blocks_of(kind: str, body: Node) -> tuple[int, ...]:
    """How many values the blocks of each level of a reduction take, from the smallest: none if it does not round."""
    if kind != "sum" or not body.dtype.is_float:
        return ()
    if isinstance(body.op, Dot):
        parts = body.dtype.itemsize // body.op.of.itemsize
        return tuple(terms // parts for terms in TERMS)
    return BLOCKS


def blocks_across(kind: str, body: Node, masks: tuple[int, ...], column: int) -> tuple[int, ...]:
    """The same, of a reduction for each of some columns.

    What a product of matrices sums (of its factors, one is the same for all columns) is in the order of the kernels for
    products, whatever the number of rows.

    Args:
        masks: The ranges that the body's factors depend on.
        column: The bit of the range of columns.
    """
    found = blocks_of(kind, body)
    weighted = isinstance(body.op, Mul) and all(masks) and any(not mask & column for mask in masks)
    return TERMS if found and weighted else found


def spans_along(index: Index, first: int, r: Node, blocks: tuple[int, ...]) -> list[int]:
    """How much of a range the sums of each level take, from the outermost in; `first`: the innermost."""
    extent, rest = index.affine(r.src[0])
    spans = [first * (block // blocks[0]) for block in reversed(blocks)]
    return spans if rest or index.varies(extent) else [span for span in spans if span < extent]


def spans_of(index: Index, ranges: list[Node], blocks: tuple[int, ...]) -> list[int]:
    """Those of the first of some ranges in nested loops: what the others take is a block of its own if it is much."""
    least = blocks[0] if blocks else 1
    inner = 1
    for r in ranges[1:]:
        extent, rest = index.affine(r.src[0])
        inner = least + 1 if rest or index.exceeds(extent, least) else min(inner * extent, least + 1)
    return spans_along(index, max(1, least // max(inner, 1)), ranges[0], blocks)


def across(emitter: Emitter, level: int, kind: str, vectors: list[Node], r: Node, *, single: bool) -> Node:
    """The lanes of some vectors taken together: what a reduction along a range comes to.

    Half of the error of a sum of positive numbers comes of its last addition, a quarter of the two before it, and so
    on. Those of many numbers, and of a `single` sum, are worth the time to lose less.
    """
    extent = emitter.index.affine(r.src[0])[0]
    if kind != "sum" or not vectors[0].dtype.is_float or not (single or extent >= MANY):
        return _plain(emitter, level, kind, vectors)
    if single or not emitter.index.varies(extent):
        return _precise(emitter, level, kind, vectors)
    many = emitter.put(level, le(number(MANY), r.src[0]))
    either = _precise(emitter, level, kind, vectors), _plain(emitter, level, kind, vectors)
    return emitter.put(level, where(many, *either))


def _plain(emitter: Emitter, level: int, kind: str, vectors: list[Node]) -> Node:
    """Halves joined, in the precision of the lanes."""
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [emitter.put(level, make(COMBINES[kind].op, a, b)) for a, b in pairs]
    return emitter.put(level, make(Across(kind), vectors[0]))


def _precise(emitter: Emitter, level: int, kind: str, vectors: list[Node]) -> Node:
    """The same sum rounded about once: of float32 in double precision, of float64 with what each addition loses."""
    if vectors[0].dtype is dtypes.float64:
        return _compensated(emitter, level, vectors)
    wide = [emitter.put(level, cast(v, dtypes.float64)) for v in vectors]
    return emitter.put(level, cast(_plain(emitter, level, kind, wide), vectors[0].dtype))


def _compensated(emitter: Emitter, level: int, vectors: list[Node]) -> Node:
    """The sum of some vectors' lanes, rounded about once: what each addition loses is added up as well."""

    def put(node: Node) -> Node:
        return emitter.put(level, node)

    def half(vector: Node, first: int) -> Node:
        count = vector.shape[0] // 2
        return put(make(Shuffle(tuple(range(first * count, (first + 1) * count))), vector, vector))

    def joined(a: tuple[Node, Node | None], b: tuple[Node, Node | None]) -> tuple[Node, Node | None]:
        (x, lost_x), (y, lost_y) = a, b
        total = put(add(x, y))
        other = put(sub(total, x))  # y, and what was lost of it
        lost = put(add(put(sub(x, put(sub(total, other)))), put(sub(y, other))))
        for before in (lost_x, lost_y):
            lost = lost if before is None else put(add(lost, before))
        return total, lost

    sums: list[tuple[Node, Node | None]] = [(v, None) for v in vectors]
    while len(sums) > 1:
        sums = [joined(a, b) for a, b in zip(sums[::2], sums[1::2], strict=True)]
    ((total, lost),) = sums
    while total.shape[0] > 1:
        low, high = ((half(total, k), None if lost is None else half(lost, k)) for k in range(2))
        total, lost = joined(low, high)
    total, lost = (n if n is None else put(make(Across("sum"), n)) for n in (total, lost))
    assert total is not None
    if lost is None:
        return total
    finite = put(eq(put(sub(lost, lost)), const(lost.dtype, 0)))  # it is not where the total is infinite
    return put(where(finite, put(add(total, lost)), total))
