"""Products of few rows, and reductions, by matrices that come from memory: which of their loads are asked for ahead.

A processor by itself looks ahead as far as some hundred instructions, and along rows that it has followed for a while.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, toposort, walk
from intaglio.lower.emit import Ahead
from intaglio.lower.positions import position_of
from intaglio.ops.elementwise import Elementwise, Mul
from intaglio.ops.memory import Load
from intaglio.ops.reduce import Fold

if TYPE_CHECKING:
    from intaglio.lower.emit import Emitter
    from intaglio.lower.loops import Loops, Place

SOON: Final = 128  # elements along memory before it is read that a line is asked for


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
    return reads if size > emitter.target.level2 and loops.extent(along) * itemsize < emitter.target.followed else []


def asked_along(loops: Loops, places: list[Place], ranges: list[Node], moved: int) -> dict[Node, Ahead]:
    """The loads along memory that ask ahead, and for what: each the only one of its pointer, elsewhere in each turn.

    Where the third cache holds all that a kernel moves, they do not: it costs a tenth there, and gains a fifth beyond.
    But matrices that are multiplied by a row are mostly some of many, which come from memory: those do, if the second
    cache does not hold them.

    Args:
        places: All stores of a kernel, none of whose values is a vector.
        ranges: Those of the loops around them.
        moved: How many bytes the kernel reads and writes.
    """
    emitter = loops.emitter
    folds = [n for n in walk([p.value for p in places]) if isinstance(n.op, Fold)]
    known = {p.best for p in map(position_of, folds) if p is not None}  # each is found with its position
    nodes = toposort([p.value for p in places], enter=lambda n: n not in known)
    loads = {n for n in nodes if isinstance(n.op, Load)}
    counts = Counter(n.src[0] for n in loads)
    around = sum(emitter.bit(r) for r in ranges)
    found: dict[Node, Ahead] = {}
    for fold in folds:
        far = moved > emitter.target.level3 or _is_by_row(emitter, fold, around)
        for n in walk(fold.src[:1]) if far and fold not in known else ():
            single = n in loads and counts[n.src[0]] == 1 and not around & ~emitter.mask(n)
            _, terms = emitter.index.affine(n.src[1]) if single else (0, {})
            along = any(terms.get(r) == 1 for r in fold.src[1:])
            if along and n.dtype.itemsize * _size(loops, n) > emitter.target.level2:
                found[n] = Ahead(None, SOON)
    return found


def _is_by_row(emitter: Emitter, fold: Node, around: int) -> bool:
    """Whether a fold is of products of which one factor is the same in each turn of some loop around."""
    body = fold.src[0]
    return isinstance(body.op, Mul) and any(around & ~emitter.mask(factor) for factor in body.src)


def _size(loops: Loops, read: Node) -> int:
    """How many elements a load reads in all loops; 0 where that is not known."""
    emitter = loops.emitter
    extents = [loops.extent(r) for r, bit in emitter.bits.items() if emitter.mask(read) & bit]
    return 0 if any(map(emitter.index.varies, extents)) else math.prod(extents)


def _computed(body: Node) -> list[Node]:
    """What is computed of loads."""
    nodes = toposort((body,), enter=lambda n: not isinstance(n.op, Load))
    return [n for n in nodes if isinstance(n.op, Elementwise)]
