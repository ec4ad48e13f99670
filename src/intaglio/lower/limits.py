"""Where along the columns of some rows comparisons are decided: of a causal mask, before and past its diagonal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Node, substitute, toposort
from intaglio.ir.rewrite import rewrite
from intaglio.lower.emit import Cut, Emitter
from intaglio.lower.index import number
from intaglio.ops.elementwise import Le, Lt, floor_div, maximum, mul, sub
from intaglio.ops.memory import const
from intaglio.ops.reduce import Fold
from intaglio.rules.choices import choices, logic
from intaglio.rules.floats import casts, floats

if TYPE_CHECKING:
    from intaglio.lower.index import Index

KNOWN: Final = choices + logic + floats + casts  # a mask may be made of numbers


@dataclass(frozen=True, slots=True)
class Compared:
    """Rows whose columns are compared: their range and how many there are, and the bits of what all of them share."""

    row: Node
    height: int
    shared: int


def cut_of(emitter: Emitter, value: Node, column: Node, rows: Compared, unit: int) -> Cut | None:
    """Where along the columns a value is simpler for all of some rows, in whole units, by the first such comparison.

    Comparisons in its folds are not its own.
    """
    low: Node | None = None
    high: Node | None = None
    before: dict[Node, Node] = {}
    beyond: dict[Node, Node] = {}
    for node in toposort((value,), enter=lambda n: not isinstance(n.op, Fold)):
        ends = _ends(emitter, node, column, rows)
        if ends is None:
            continue
        first, last, holds = ends
        first, last = _whole(emitter.index, first, unit, 0), _whole(emitter.index, last, unit, unit - 1)
        if low is None:
            low, high = first, last
        if (low, high) == (first, last):
            before[node], beyond[node] = const(dtypes.bool, holds), const(dtypes.bool, not holds)
    if low is None or high is None:
        return None
    return Cut(low, high, _known(value, before), _known(value, beyond))


def _ends(emitter: Emitter, node: Node, column: Node, rows: Compared) -> tuple[Node, Node, bool] | None:
    """(before where it is the same for all rows, from where on it is the opposite, which it is before)."""
    bit = emitter.bit(column)
    if not isinstance(node.op, (Lt, Le)) or node.src[0].dtype is not dtypes.int64 or not emitter.mask(node) & bit:
        return None
    x, y = node.src
    index = emitter.index
    shift, terms = index.affine(sub(y, x))
    step, slope = terms.get(column, 0), terms.get(rows.row, 0)
    others = [(t, c) for t, c in terms.items() if t is not column and t is not rows.row]
    if abs(step) != 1 or any(emitter.mask(t) & ~rows.shared for t, _ in others):
        return None
    shift -= isinstance(node.op, Lt)  # it holds where step * column + slope * row + others + shift >= 0
    least, most = sorted(((rows.height - 1) * slope, 0))
    if step < 0:
        return index.sum(others, shift + least + 1), index.sum(others, shift + most + 1), True
    others = [(t, -c) for t, c in others]
    return index.sum(others, -shift - most), index.sum(others, -shift - least), False


def _whole(index: Index, place: Node, unit: int, shift: int) -> Node:
    """A place, shifted, in whole units; not below 0."""
    return mul(floor_div(maximum(index.add(place, number(shift)), number(0)), number(unit)), number(unit))


def _known(value: Node, answers: dict[Node, Node]) -> Node:
    """A value with the answers of some comparisons."""
    return rewrite(list(substitute((value,), answers)), KNOWN)[0]
