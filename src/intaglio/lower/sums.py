"""Sums in blocks of blocks: their errors grow with the levels of those, and not with the number of values.

An accumulator takes few values from zero, then joins an outer one, which takes few of those. The order of a sum follows
from its extents alone, and is the same whether they are known before the kernel runs or not: a level that a short sum
does not need adds one value to zero.
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


def is_blocked(kind: str, body: Node) -> bool:
    """Whether a reduction is a sum that rounds."""
    return kind == "sum" and body.dtype.is_float and not isinstance(body.op, Dot)


def is_weighted(body: Node, masks: tuple[int, ...], column: int) -> bool:
    """Whether a body is what a product of matrices sums: of its factors, one is the same for all columns.

    Such sums are in the order of the kernels for products, whatever the number of rows.

    Args:
        masks: The ranges that its factors depend on.
        column: The bit of the range of columns.
    """
    return isinstance(body.op, Mul) and all(masks) and any(not mask & column for mask in masks)


def spans_along(index: Index, first: int, r: Node) -> list[int]:
    """How much of a range the sums of each level take, from the outermost in; `first`: the innermost."""
    extent, rest = index.affine(r.src[0])
    spans = [first * (block // SPAN) for block in reversed(BLOCKS)]
    return spans if rest or index.varies(extent) else [span for span in spans if span < extent]


def spans_of(index: Index, ranges: list[Node]) -> list[int]:
    """Those of the first of some ranges in nested loops: what the others take is a block of its own if it is much."""
    inner = 1
    for r in ranges[1:]:
        extent, rest = index.affine(r.src[0])
        inner = SPAN + 1 if rest or index.exceeds(extent, SPAN) else min(inner * extent, SPAN + 1)
    return spans_along(index, max(1, SPAN // max(inner, 1)), ranges[0])
