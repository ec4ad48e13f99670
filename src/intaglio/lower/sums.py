"""Sums in blocks of blocks: their errors grow with the levels of those, and not with the number of values.

An accumulator takes some values from zero, then joins an outer one, which takes some of those. The order of a sum
follows from its extents alone, and is the same whether they are known before the kernel runs or not: a level that a
short sum does not need adds one value to zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ops.elementwise import Mul
from intaglio.ops.reduce import Dot

if TYPE_CHECKING:
    from intaglio.ir.node import Node
    from intaglio.lower.index import Index

BLOCKS: Final = (8, 64, 1 << 10, 1 << 15)  # values in a block of each level: the smallest blocks round most often
SPAN: Final = BLOCKS[0]
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
