"""Products of few rows, and reductions, by matrices that come from memory: which of their loads are asked for ahead.

A processor by itself looks ahead as far as some hundred instructions, and along rows that it has followed for a while.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, toposort, walk
from intaglio.ops.elementwise import Elementwise
from intaglio.ops.memory import Load

if TYPE_CHECKING:
    from intaglio.lower.loops import Loops

FOLLOWED: Final = 1 << 14  # bytes of a row from which a processor by itself looks far enough ahead in it


def asked_ahead(loops: Loops, fold: Node, column: Node, row: Node | None, along: Node) -> list[Node]:
    """The loads of a fold's matrix, if they are to be asked for ahead.

    Args:
        column: The range of results that only the matrix knows.
        row: That of the other factor of a product, if it has some.
        along: The range along which the matrix lies together.
    """
    emitter = loops.emitter
    body, *ranges = fold.src
    known, summed = emitter.bit(column), sum(emitter.bit(r) for r in ranges)
    loads = [n for n in walk((body,)) if isinstance(n.op, Load)]
    reads = [n for n in loads if emitter.mask(n) & known and emitter.mask(n) & summed]
    if row is not None or any(n is not body and emitter.mask(n) & known for n in _computed(body)):
        return reads  # more is done with them than take them: what a processor looks ahead at are few lines
    itemsize = max((n.dtype.itemsize for n in reads), default=0)
    size = itemsize * math.prod(loops.extent(r) for r in (column, *ranges))
    return reads if size > emitter.target.level2 and loops.extent(along) * itemsize < FOLLOWED else []


def _computed(body: Node) -> list[Node]:
    """What is computed of loads."""
    nodes = toposort((body,), enter=lambda n: not isinstance(n.op, Load))
    return [n for n in nodes if isinstance(n.op, Elementwise)]
