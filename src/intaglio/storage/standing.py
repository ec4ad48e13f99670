"""Values that are computed as they stand, since nothing is pending: from what is wanted to a plan."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from intaglio.engine import realize as engine
from intaglio.engine.plan import Plans
from intaglio.ir.view import View
from intaglio.ops.memory import BufferRef
from intaglio.schedule.program import Output
from intaglio.storage.shallow import shallow
from intaglio.storage.slice import whole_home
from intaglio.storage.still import Still

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from intaglio.engine.plan import Plan
    from intaglio.ir.node import Node
    from intaglio.schedule.program import Program
    from intaglio.storage.storage import Storage

MANY: Final = 4  # values from which it is shorter to look at all at once than at one after the other
plans: Final = Plans()
_place: Final[Callable[[Node], object]] = attrgetter("place")


class Standing(NamedTuple):
    """Values that are computed as they stand.

    Attributes:
        plan: What computes them; None where all are in memory.
        homes: The storages that nobody has written, and the buffers that they will be in.
        outputs: The buffer of each node.
    """

    plan: Plan | None
    homes: dict[Storage, BufferRef]
    outputs: list[BufferRef]


def standing(storages: Sequence[Storage], nodes: Sequence[Node]) -> Standing | None:
    """How storages and nodes are computed where nothing is pending; None where something is."""
    unwritten: dict[Storage, Node] = {}
    for storage in storages:
        storage.close()
        if storage.log or (storage.ref is None and storage.base is None):
            return None
        if storage.ref is None and storage.base is not None:
            unwritten[storage] = storage.base
    if not unwritten and not any(map(_place, nodes)):
        found = _computed(nodes, {})
        return None if found is None else Standing(found[0], {}, found[1])
    places = [None if node.place is None else whole_home(node) for node in nodes]
    roots = [*unwritten.values(), *[node for node, place in zip(nodes, places, strict=True) if place is None]]
    found = _computed(roots, unwritten)
    if found is None:
        return None
    plan, made = found
    fresh = iter(made)
    homes = {storage: next(fresh) for storage in unwritten}
    return Standing(plan, homes, [next(fresh) if place is None else place for place in places])


def _computed(roots: Sequence[Node], unwritten: dict[Storage, Node]) -> tuple[Plan | None, list[BufferRef]] | None:
    """What computes some values, first those of storages, and their buffers; None where something is pending."""
    if not roots:
        return None, []
    device = engine.default_device()
    if len(roots) >= MANY and not unwritten:
        near = shallow(roots, device)
        if near is not None:
            made = _names(roots, device)

            def program() -> Program:
                still = Still()
                still.follow(roots, unwritten)
                return still.program(_outputs(made, roots))

            starts = [*near.starts, *[0] * len(made)]
            return plans.recall(near.key, [*near.refs, *made], starts, [], program), made
    still = Still()
    if not still.follow(roots, unwritten):
        return None
    owners = [storage.device for storage in unwritten]
    if {device, *owners, *[ref.device for ref in still.refs]} == {device}:
        made = [BufferRef(node.nbytes, device) for node in roots]
        key: Hashable = still.key(roots, device)
    else:
        devices = [*owners, *[still.device_of(node) or device for node in roots[len(owners) :]]]
        made = [BufferRef(node.nbytes, device) for node, device in zip(roots, devices, strict=True)]
        key = still.key(roots, (*[ref.device for ref in still.refs], *devices))
    starts = still.starts + [0] * len(made)
    refs = [*still.refs, *still.parts, *made]
    return plans.recall(key, refs, starts, still.literals, lambda: still.program(_outputs(made, roots))), made


def _names(values: Sequence[Node], device: str) -> list[BufferRef]:
    """Buffers for many values on one device: those in a row are mostly of one size."""
    made: list[BufferRef] = []
    dtype, shape, nbytes = None, None, 0
    for node in values:
        if node.shape != shape or node.dtype is not dtype:
            dtype, shape, nbytes = node.dtype, node.shape, node.nbytes
        made.append(BufferRef(nbytes, device))
    return made


def _outputs(refs: Sequence[BufferRef], values: Sequence[Node]) -> list[Output]:
    """Values as outputs of a program."""
    views = [View.contiguous(node.dtype, node.shape) for node in values]
    return [Output(*each) for each in zip(refs, views, values, strict=True)]
