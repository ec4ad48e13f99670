"""What of a nest runs in vectors: the range, how wide, how many at once, and the order of the loops around."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ir.node import toposort, walk
from intaglio.lower.emit import STRIDED, usual
from intaglio.lower.loops import has_fold
from intaglio.ops.memory import Load
from intaglio.ops.reduce import Fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.ir.node import Node
    from intaglio.lower.emit import Emitter
    from intaglio.lower.loops import Loops, Place

UNROLL: Final = 2  # vectors at once in elementwise loops
VECTORS: Final = (1, 2, 4, 8, 16)  # as many may be tried
SHORT: Final = 24  # nodes of an expression of which as many vectors are computed at once as registers hold
LONG: Final = 60  # nodes from which an expression is computed for one vector at a time, as it is soon compiled
LONGEST: Final = 400  # nodes up to which a long expression of many elements is computed for some vectors at a time
MANY: Final = 1 << 22  # elements of work from which a kernel's time counts more than its compilation's


def vector_range(loops: Loops, places: Sequence[Place], ranges: list[Node]) -> Node | None:
    """The range that becomes a vector; another one may be tried where there is no fold, whose order that sets."""
    emitter = loops.emitter
    model = _usual_range(emitter, places, ranges)
    if model is None or has_fold(places):
        return model
    lanes = _widest(emitter, places)
    extents = [emitter.index.affine(r.src[0]) for r in ranges]
    others = [k for k, (extent, rest) in enumerate(extents) if not rest and extent >= lanes]
    return ranges[loops.decide.of("vector", ranges.index(model), others)]


def lanes_of(loops: Loops, places: Sequence[Place]) -> int:
    """How many lanes the vectors of a nest have; half of the usual may do, where no fold is in vectors as well."""
    lanes = _widest(loops.emitter, places)
    return loops.decide.of("lanes", lanes, () if lanes < 4 or has_fold(places) else (lanes // 2,))


def vectors_at_once(loops: Loops, places: Sequence[Place], v: Node, work: int) -> int:
    """How many vectors at once."""
    return loops.decide.of("vectors", _usual_at_once(loops.emitter, places, v, work), VECTORS)


def order_around(loops: Loops, outer: list[Node]) -> list[Node]:
    """The loops around the vectors, from the outermost in."""
    model = tuple(range(len(outer)))
    swaps = [(*model[:k], k + 1, k, *model[k + 2 :]) for k in model[:-1]]
    return [outer[k] for k in loops.decide.of("order", model, swaps)]


def _usual_range(emitter: Emitter, places: Sequence[Place], ranges: list[Node]) -> Node | None:
    """As the model says: one along which stores and loads are of neighbours."""
    if not emitter.target.vector_bytes:
        return None
    best: Node | None = None
    most = 0
    least = max(2, min(_widest(emitter, places), 4))
    for r in ranges:
        extent, rest = emitter.index.affine(r.src[0])
        if rest or extent < least:
            continue
        score = sum(_score(emitter, place, r) for place in places)
        if score > 0 and score >= most:
            best, most = r, score
    return best


def _score(emitter: Emitter, place: Place, r: Node) -> int:
    """How many of a store's accesses are of neighbours along a range, by weight: more often inside of a fold.

    What is read apart once for each fold counts for nothing: the fold has many terms.
    """
    bit, step_of = emitter.bit(r), emitter.index.step
    score = 4 if step_of(place.index, r) == 1 else -6
    often = {n for f in walk((place.value,)) if isinstance(f.op, Fold) for n in walk(f.src)}
    for n in walk((place.value,)):
        if not isinstance(n.op, Load) or not emitter.mask(n.src[1]) & bit:
            continue
        at = n.src[1]
        nested = any(isinstance(s.op, Load) for s in walk((at,)))
        near = len(n.src) == 2 and 2 <= emitter.stride(at, r) <= STRIDED
        weight = 8 if n in often else 1
        if step_of(at, r) == 1:
            score += weight
        elif not nested and not near and (n in often or not often):
            score -= 2 * weight
    return score


def _widest(emitter: Emitter, places: Sequence[Place]) -> int:
    """How many lanes suit the widest number of a nest."""
    return min(emitter.lanes_of(p.value) for p in places)


def _usual_at_once(emitter: Emitter, places: Sequence[Place], v: Node, work: int) -> int:
    """As the model says: many in sums of rows out of memory, of which each turn then reads a long piece."""
    values, target = [p.value for p in places], emitter.target
    size = len(usual(values))
    bit = emitter.bit(v)
    rows = any(isinstance(n.op, Fold) and emitter.mask(n) & bit for value in values for n in walk((value,)))
    far = work * values[0].dtype.itemsize > 2 * target.level2
    if rows and far and size < SHORT and len(places) == 1:
        return target.vector_registers // 2
    if work < MANY:
        return UNROLL if len(toposort(values)) < LONG else 1
    return UNROLL if size < LONG else 2 * UNROLL if size < LONGEST else 1  # steps of one vector wait for each other
