"""Sums of exponentials below the top of their row, found in a chain of stores.

exp(x - max x) is, but for a factor of its row, exp(x - m) for any other m. So sums that are linear in it can be taken
over some columns at a time: below the largest number so far, and scaled when a larger one comes. This finds where that
may be done; no op says softmax or attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Node, substitute, toposort
from intaglio.ops.elementwise import Detach, Div, Elementwise, Exp, Mul, Sub, div
from intaglio.ops.memory import Window
from intaglio.ops.movement import Expand, Reshape, expand, reshape
from intaglio.ops.reduce import Reduce, reduce

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDE: Final = (dtypes.float32, dtypes.float64)  # precise enough for sums that are scaled again and again


@dataclass(frozen=True, slots=True)
class Exponentials:
    """What the last but one of some stores is the exponential of, and the sums that the last one takes of it.

    Where they are exponentials divided by their sum, the sums are of those that are not, and divided in the end.
    """

    exponent: Node  # without what is subtracted: the largest of its row
    sums: tuple[Node, ...]
    last: Node  # what is stored in the end


def exponentials(targets: Sequence[Node], values: Sequence[Node], lead: int) -> Exponentials | None:
    """What stores compute by exponentials of their rows, if all that the last one needs of a row are such sums.

    Args:
        targets: Where all values but the last go, each as a window on all of it.
        values: What is stored. Those but the last are matrices of as many columns.
        lead: The axes of sheets and rows.
    """
    *made, last = values
    if len(made) < 2 or any(v.rank != lead + 1 or v.shape != made[0].shape or v.dtype not in WIDE for v in made):
        return None
    *others, weights = made
    divided = isinstance(weights.op, Div) and _is_of_row("sum", weights.src[1], weights.src[0], lead)
    if divided:
        weights = weights.src[0]
    if not isinstance(weights.op, Exp) or not isinstance(weights.src[0].op, Sub):
        return None
    exponent, top = weights.src[0].src
    if not _is_of_row("max", top, exponent, lead) or not all(
        _reads_own_places(v, targets) for v in (*others, exponent)
    ):
        return None
    sums = _sums(last, targets, lead)
    apart = toposort((last,), enter=lambda n: n not in sums)
    if not sums or _reads(apart, targets):
        return None
    if divided:
        total = reduce("sum", targets[-1], (lead,))
        (last,) = substitute((last,), {n: div(n, _spread(total, n.shape)) for n in sums})
        sums = *(n for n in sums if n is not total), total
    return Exponentials(exponent, sums, last)


def _spread(row: Node, shape: tuple[int, ...]) -> Node:
    """A number of each row, along the axes after the rows'."""
    return expand(reshape(row, (*row.shape, *((1,) * (len(shape) - row.rank)))), shape)


def _reads(nodes: Sequence[Node], targets: Sequence[Node]) -> bool:
    """Whether some nodes are windows on what was made before."""
    pointers = [t.src[0] for t in targets]
    return any(isinstance(n.op, Window) and n.src[0] in pointers for n in nodes)


def _is_of_row(kind: str, value: Node, x: Node, lead: int) -> bool:
    """Whether a value is the sum or the largest number of each row of x, for all of its columns."""
    while isinstance(value.op, (Detach, Expand, Reshape)):
        (source,) = value.src
        if isinstance(value.op, Reshape) and value.shape != (*source.shape, 1):
            return False
        value = source
    return isinstance(value.op, Reduce) and value.op == Reduce(kind, (lead,)) and value.src[0] is x


def _reads_own_places(value: Node, targets: Sequence[Node]) -> bool:
    """Whether a value needs of what was made before it only what is at its own place: nothing moves that."""
    uses: set[Node] = set()
    for node in toposort((value,)):
        if node in targets:
            uses.add(node)
        elif any(s in uses for s in node.src):
            if not isinstance(node.op, (Elementwise, Detach)):
                return False
            uses.add(node)
        elif _reads((node,), targets):
            return False
    return True


def _sums(value: Node, targets: Sequence[Node], lead: int) -> tuple[Node, ...]:
    """The sums along the columns of what was made last by itself, or times what does not know it."""
    found: list[Node] = []
    for node in toposort((value,)):
        if not isinstance(node.op, Reduce) or node.op.kind != "sum" or node.op.axes != (node.src[0].rank - 1,):
            continue
        (body,) = node.src
        factors = body.src if isinstance(body.op, Mul) else (body,)
        others = [f for f in factors if not _is_spread(f, targets[-1], lead)]
        if len(others) == len(factors) - 1 and not _reads(toposort(others), targets):
            found.append(node)
    return tuple(found)


def _is_spread(value: Node, weights: Node, lead: int) -> bool:
    """Whether a value is the weights, or has them along its first axes and its last."""
    if isinstance(value.op, Expand):
        (value,) = value.src
    if isinstance(value.op, Reshape):
        (source,) = value.src
        ones = value.rank - lead - 1
        if value.shape != (*source.shape[:lead], *((1,) * ones), source.shape[-1]):
            return False
        value = source
    return value is weights
