"""What a fold computes of a row at some cost, and the stores of that row need again: kept, and so computed once.

softmax(x): of the exponentials the sum is taken, and then each of them is stored by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, make, substitute, toposort, walk
from intaglio.lower.columns import HEAVY
from intaglio.lower.loops import Place
from intaglio.ops.elementwise import Elementwise
from intaglio.ops.memory import Local, Param, load
from intaglio.ops.reduce import Fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.core.dtypes import DType
    from intaglio.lower.emit import Emitter
    from intaglio.lower.values import Values

SCRATCH: Final = 1 << 16  # bytes of scratch at most


def keep_rows(emitter: Emitter, values: Values, places: list[Place], v: Node) -> list[Place]:
    """The stores along a range, with a load of what is kept of a fold over a range like it."""
    extent = emitter.index.affine(v.src[0])
    top = _outside([p.value for p in places])
    needed = set(top)
    for fold in top:
        if not isinstance(fold.op, Fold) or len(fold.src) != 2 or emitter.mask(fold) & emitter.bit(v):
            continue
        if emitter.index.affine(fold.src[1].src[0]) == extent:
            made = _keep(emitter, values, places, v, fold, needed)
            if made is not None:
                return made
    return places


def _keep(
    emitter: Emitter, values: Values, places: list[Place], v: Node, fold: Node, needed: set[Node]
) -> list[Place] | None:
    """The stores with the last heavy step of a fold's body that they need kept for a row; None if there is none."""
    body, r = fold.src
    bit = emitter.bit(r)
    steps = [
        n for n in _outside([body]) if isinstance(n.op, Elementwise) and n.dtype.is_float and emitter.mask(n) & bit
    ]
    for node, twin in zip(reversed(steps), reversed(substitute(steps, {r: v})), strict=True):
        if twin not in needed:
            continue
        cost = sum(isinstance(n.op, Elementwise) for n in walk((node,)) if emitter.mask(n) & bit)
        row = _row(emitter, values, places, fold, node.dtype, v) if cost >= HEAVY else None
        if row is None:
            return None
        pointer, place, epoch = row
        made = substitute([p.value for p in places], {twin: load(pointer, place, epoch=epoch)})
        if fold not in _outside(made):
            return None
        emitter.kept[body] = node, substitute((place,), {v: r})[0], pointer
        return [Place(p.pointer, p.index, value) for p, value in zip(places, made, strict=True)]
    return None


def _row(
    emitter: Emitter, values: Values, places: list[Place], fold: Node, dtype: DType, v: Node
) -> tuple[Node, Node, int] | None:
    """Where the values of a fold's row are kept: (pointer, index, epoch of its loads).

    That is scratch, or the row that is stored to in the end, where the length of a row is known when it runs.
    """
    extent, _ = emitter.index.affine(v.src[0])
    if extent * dtype.itemsize <= SCRATCH:
        return make(Local(next(values.axes), dtype, extent)), v, 0
    place = places[0]
    own = place.pointer.op
    if not emitter.index.varies(extent) or len(places) > 1 or not isinstance(own, Param) or own.of is not dtype:
        return None
    rows = emitter.mask(place.index) & ~emitter.bit(v)
    read = any(isinstance(n.op, Param) and n.op.group == own.group for n in walk((place.value,)))
    return None if read or rows & ~emitter.mask(fold) else (place.pointer, place.index, values.statement)


def _outside(roots: Sequence[Node]) -> list[Node]:
    """What expressions need outside of their folds, and those."""
    return toposort(roots, enter=lambda n: not isinstance(n.op, Fold))
