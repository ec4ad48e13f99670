"""Positions of extremes in one pass: in each lane the best so far, and where it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import make, substitute
from intaglio.lower.binding import Binding
from intaglio.lower.index import number
from intaglio.ops.elementwise import MAXIMUM, MINIMUM, Eq, Ne, Or, Where, add, and_, cast, eq, le, ne, not_, or_, where
from intaglio.ops.memory import const, iota
from intaglio.ops.movement import expand
from intaglio.ops.reduce import Across, Fold

if TYPE_CHECKING:
    from intaglio.ir.node import Node
    from intaglio.lower.binding import Instance
    from intaglio.lower.emit import Emitter

ACCUMULATORS: Final = 4  # vectors that are compared independently


@dataclass(frozen=True, slots=True)
class Position:
    """The least place along a range where a value equals its extreme over the range, or is NaN."""

    value: Node
    best: Node  # the fold that gives the extreme
    along: Node
    kind: str  # of the extreme: max or min


def position_of(fold: Node) -> Position | None:
    """min over r of (x(r) == best, or x(r) is NaN ? r : n), with best the extreme of x over a range of its own."""
    body, *ranges = fold.src
    if not isinstance(fold.op, Fold) or fold.op.kind != "min" or len(ranges) != 1 or not isinstance(body.op, Where):
        return None
    hit, place, _ = body.src
    (along,) = ranges
    if place is not along:
        return None
    odd: Node | None = None
    if isinstance(hit.op, Or):
        hit, odd = hit.src if isinstance(hit.src[0].op, Eq) else hit.src[::-1]
    if not isinstance(hit.op, Eq):
        return None
    value, best = hit.src if isinstance(hit.src[1].op, Fold) else hit.src[::-1]
    if not isinstance(best.op, Fold) or best.op.kind not in ("max", "min") or len(best.src) != 2:
        return None
    if odd is None if value.dtype.is_float else odd is not None:
        return None
    if odd is not None and not (isinstance(odd.op, Ne) and odd.src == (value, value)):
        return None
    same = substitute((best.src[0],), {best.src[1]: along})[0] is value and best.src[1].src == along.src
    return Position(value, best, along, best.op.kind) if same else None


def emit_position(
    emitter: Emitter, position: Position, worst: Node, instances: list[Instance]
) -> list[tuple[Node, Node]] | None:
    """For each instance (the position, the extreme itself) by vectors, from the worst value on.

    None where they would not pay.
    """
    value, along = position.value, position.along
    extent, rest = emitter.index.affine(along.src[0])
    dtype = value.dtype
    lanes = emitter.target.vector_bytes // max(dtype.itemsize, 4)
    if lanes < 2 or rest or emitter.index.varies(extent) or not 2 * lanes <= extent < 1 << 31 or dtype.is_bool:
        return None
    kind = dtypes.int32 if dtype.itemsize <= 4 else dtypes.int64
    count = ACCUMULATORS
    while count > 1 and extent < lanes * count:
        count //= 2
    step = lanes * count
    outside = len(emitter.frames) - 1
    start = emitter.put(outside, expand(worst, (lanes,)))
    steps = emitter.put(outside, cast(emitter.put(outside, add(iota(lanes), number(0))), kind))

    def places(first: Node) -> Node:
        """The places of the lanes of a vector."""
        level = len(emitter.frames) - 1
        base = first if kind is dtypes.int64 else emitter.put(level, cast(first, kind))
        return emitter.put(level, add(emitter.put(level, expand(base, (lanes,))), steps))

    def take(carried: list[Node], vectors: int, binding: Binding) -> list[Node]:
        """Some vectors compared with the best so far."""
        level = len(emitter.frames) - 1
        bests, found = carried[: len(carried) // 2], carried[len(carried) // 2 :]
        each = [(k, u, {**instance, along: u}) for k, instance in enumerate(instances) for u in range(vectors)]
        for (k, u, _), x in zip(each, emitter.emit_all(value, [one for *_, one in each]), strict=True):
            slot = k * count + u % count
            x = x if x.shape else emitter.put(level, expand(x, (lanes,)))
            best = bests[slot]
            worse = le(x, best) if position.kind == "max" else le(best, x)
            better = emitter.put(level, not_(emitter.put(level, worse)))
            if dtype.is_float:
                better = emitter.put(level, and_(better, emitter.put(level, eq(best, best))))
            tail = emitter.tail(along, {along: u})
            if tail is not None:
                better = emitter.put(level, and_(better, tail))
            bests[slot] = emitter.put(level, where(better, x, best))
            found[slot] = emitter.put(level, where(better, places(emitter.first(binding, u)), found[slot]))
        return [*bests, *found]

    def run(begin: int, stop: int, vectors: int, carried: list[Node], *, masked: bool) -> list[Node]:
        """A loop of so many vectors at once, or the last ones."""
        bound = number(extent) if masked else None
        bindings: list[Binding] = []

        def bind(frame: int, counter: Node) -> tuple[Node, Binding]:
            bindings.append(Binding(frame, counter, vectors, lanes, bound))
            return along, bindings[0]

        once = masked or stop - begin == step
        return emitter.loop(
            number(begin), number(stop), step, carried, lambda _, c: take(c, vectors, bindings[0]), bind, once=once
        )

    carried = [start] * (count * len(instances)) + [places(number(u * lanes)) for u in range(count)] * len(instances)
    whole = extent // step * step
    if whole:
        carried = run(0, whole, count, carried, masked=False)
    if whole < extent:
        carried = run(whole, extent, -(-(extent - whole) // lanes), carried, masked=True)
    bests, found = carried[: len(carried) // 2], carried[len(carried) // 2 :]
    starts = range(0, len(bests), count)
    return [_decide(emitter, position, bests[k : k + count], found[k : k + count]) for k in starts]


def _decide(emitter: Emitter, position: Position, bests: list[Node], found: list[Node]) -> tuple[Node, Node]:
    """The first of the places where the best of the bests was found."""
    level = len(emitter.frames) - 1

    def put(node: Node) -> Node:
        return emitter.put(level, node)

    top = bests[0]
    for other in bests[1:]:
        top = put(make(MAXIMUM if position.kind == "max" else MINIMUM, top, other))
    extreme = put(make(Across(position.kind), top))
    everywhere = put(expand(extreme, top.shape))
    kind = found[0].dtype
    never = put(expand(const(kind, kind.max), top.shape))
    first: Node | None = None
    for best, place in zip(bests, found, strict=True):
        hit = put(eq(best, everywhere))
        if best.dtype.is_float:
            hit = put(or_(hit, put(ne(best, best))))
        here = put(where(hit, place, never))
        first = here if first is None else put(make(MINIMUM, first, here))
    assert first is not None
    place = put(make(Across("min"), first))
    return (place if kind is dtypes.int64 else put(cast(place, dtypes.int64))), extreme
