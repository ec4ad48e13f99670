"""The stores of a kernel that run together for some places at a time, and scratch for what they have at those."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intaglio.ir.node import make, substitute, walk
from intaglio.lower.blocks import Member
from intaglio.lower.index import number
from intaglio.lower.loops import Place
from intaglio.ops.loop import Range
from intaglio.ops.memory import Load, Local, load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node, Shape
    from intaglio.lower.ranges import Scalarize
    from intaglio.lower.values import Values


def members_of(
    values: Values,
    stores: Sequence[Node],
    own: tuple[Node, ...],
    starts: tuple[Node, ...],
    *,
    scalarize: Callable[[], Scalarize],
    room: Callable[[DType, Shape], int],
) -> list[Member]:
    """The stores at a place of their first axes; what is of all places in a Local is in scratch of its own instead.

    Args:
        own: The indices of the place.
        starts: Those of the first place that scratch has room for.
        scalarize: Gives the expressions for a store.
        room: How many elements of a dtype scratch has, by the shape of what is at one place.
    """
    index = values.index
    scratch: dict[Node, tuple[Node, Node, int]] = {}  # by what is of all places: that of some, its first place, epoch
    members: list[Member] = []

    def in_scratch(node: Node) -> Node:
        held, base, epoch = scratch[node.src[0]]
        return load(held, index.sum([(node.src[1], 1), (base, -1)]), *node.src[2:], epoch=epoch)

    for store in stores:
        scalar = scalarize()
        shape = store.src[0].shape[len(own) :]
        rest = [scalar.range(n) if n != 1 else number(0) for n in shape]
        place = values.place(store, (*own, *rest), scalar)
        loads = [n for n in walk((place.value,)) if isinstance(n.op, Load) and n.src[0] in scratch]
        (value,) = substitute((place.value,), {n: in_scratch(n) for n in loads})
        pointer, position = place.pointer, place.index
        if isinstance(pointer.op, Local):
            _, base = values.target(store.src[0], (*starts, *(number(0) for _ in rest)), scalar)
            held = make(Local(next(values.axes), pointer.op.of, room(pointer.op.of, shape)))
            scratch[pointer] = held, base, 1 + len(members)
            pointer, position = held, index.sum([(position, 1), (base, -1)])
        members.append(Member(Place(pointer, position, value), [r for r in rest if isinstance(r.op, Range)]))
    return members
