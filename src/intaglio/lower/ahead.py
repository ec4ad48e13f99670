"""Products of few rows, and reductions, by matrices that come from memory: which of their loads are asked for ahead.

A processor by itself looks ahead as far as some hundred instructions, and along rows that it has followed for a while.
What is read once, and is more than the caches hold, is asked for to go past them, so that they keep what they have.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, toposort, walk
from intaglio.lower.emit import Ahead
from intaglio.lower.index import number
from intaglio.lower.positions import position_of
from intaglio.ops.elementwise import Elementwise, maximum, minimum
from intaglio.ops.memory import Load
from intaglio.ops.reduce import Fold

if TYPE_CHECKING:
    from intaglio.lower.loops import Loops, Place, Turn

SOON: Final = 1 << 9  # bytes before it is read that is asked for what is read once: the first cache keeps it till then
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


class Once:
    """Reductions of more than the third cache holds, along memory: their loads of what nothing else reads.

    What they read first goes through the caches, half as much as the third one holds, and is there for who reads it
    next. The rest goes past them, so that they keep that, and what the program around needs.
    """

    def __init__(self, loops: Loops, places: list[Place], ranges: list[Node]) -> None:
        """Of all stores of a kernel, none of whose values is a vector, and the ranges of the loops around them."""
        self._loops: Final = loops
        self._ranges: Final = ranges
        self._reads: Final = self._found(places)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._reads)

    def nest(self, body: Turn, start: Node | None = None, stop: Node | None = None) -> None:
        """The loops; `start` and `stop` bound the outermost."""
        emitter, first = self._loops.emitter, self._ranges[0]
        level = len(emitter.frames) - 1
        turn = sum(read.dtype.itemsize * self._size(read) for read in self._reads) // self._loops.extent(first)
        kept = number(emitter.target.level3 // 2 // turn)
        stop = first.src[0] if stop is None else stop
        if emitter.target.level3 // 2 >= turn:
            self._loops.nest(self._ranges, body, start, emitter.put(level, minimum(stop, kept)))
        emitter.ahead.update({read: Ahead(None, SOON // read.dtype.itemsize, once=True) for read in self._reads})
        start = kept if start is None else emitter.put(level, maximum(start, kept))
        self._loops.nest(self._ranges, body, start, stop)
        for read in self._reads:
            del emitter.ahead[read]

    def _found(self, places: list[Place]) -> list[Node]:
        """The loads of which each pointer has one, that is another in each turn."""
        emitter = self._loops.emitter
        folds = [n for n in walk([p.value for p in places]) if isinstance(n.op, Fold)]
        known = {p.best for p in map(position_of, folds) if p is not None}  # each is found with its position
        nodes = toposort([p.value for p in places], enter=lambda n: n not in known)
        loads = [n for n in nodes if isinstance(n.op, Load)]
        pointers = [n.src[0] for n in loads]
        around = sum(emitter.bit(r) for r in self._ranges)
        found: dict[Node, None] = {}
        for fold in folds:
            for n in walk(fold.src[:1]) if fold not in known else ():
                once = n in loads and pointers.count(n.src[0]) == 1 and not around & ~emitter.mask(n)
                _, terms = emitter.index.affine(n.src[1]) if once else (0, {})
                along = any(terms.get(r) == 1 for r in fold.src[1:])
                if along and n.dtype.itemsize * self._size(n) > emitter.target.level3:
                    found[n] = None
        return list(found)

    def _size(self, read: Node) -> int:
        """How many elements a load reads in all loops; 0 where that is not known."""
        emitter = self._loops.emitter
        extents = [self._loops.extent(r) for r, bit in emitter.bits.items() if emitter.mask(read) & bit]
        return 0 if any(map(emitter.index.varies, extents)) else math.prod(extents)


def _computed(body: Node) -> list[Node]:
    """What is computed of loads."""
    nodes = toposort((body,), enter=lambda n: not isinstance(n.op, Load))
    return [n for n in nodes if isinstance(n.op, Elementwise)]
