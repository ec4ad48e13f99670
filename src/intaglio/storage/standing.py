"""Values that are computed as they stand, since nothing is pending: from what is wanted to a plan."""

from __future__ import annotations

from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.engine.devices import usual_name
from intaglio.engine.plan import Plans
from intaglio.ir.view import View
from intaglio.ops.memory import BufferRef
from intaglio.schedule.program import Output
from intaglio.storage.shallow import shallow
from intaglio.storage.slice import whole_home
from intaglio.storage.still import PendingError, Still

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.core.config import Config
    from intaglio.engine.plan import Plan
    from intaglio.ir.node import Node
    from intaglio.storage.storage import Storage

MANY: Final = 4  # values from which it is shorter to look at all at once than at one after the other
plans: Final = Plans()
Standing: TypeAlias = "tuple[Plan | None, dict[Storage, BufferRef], list[BufferRef]]"
"""What computes some values (None where all are in memory), the buffers that unwritten storages will be in, and those
of the nodes."""
_place: Final[Callable[[Node], object]] = attrgetter("place")
_device: Final[Callable[[Storage | BufferRef], object]] = attrgetter("device")


class Unknown:
    """That no plan is known for what is to be computed, and that none was made."""


UNKNOWN: Final = Unknown()


def standing(
    storages: Sequence[Storage], nodes: Sequence[Node], settings: Config, *, anew: bool = True
) -> Standing | Unknown | None:
    """How storages and nodes are computed where nothing is pending; None where something is.

    Args:
        anew: Whether a plan is made where none is known.
    """
    if not storages and not any(map(_place, nodes)):
        found = _computed(nodes, {}, settings, anew=anew)
        return (found[0], {}, found[1]) if isinstance(found, tuple) else found
    unwritten: dict[Storage, Node] = {}
    for storage in storages:
        storage.close()
        if storage.log or (storage.ref is None and storage.base is None):
            return None
        if storage.ref is None and storage.base is not None:
            unwritten[storage] = storage.base
    places = [None if node.place is None else whole_home(node) for node in nodes]
    roots = [*unwritten.values(), *[node for node, place in zip(nodes, places, strict=True) if place is None]]
    found = _computed(roots, unwritten, settings, anew=anew)
    if not isinstance(found, tuple):
        return found
    plan, made = found
    fresh = iter(made)
    homes = {storage: next(fresh) for storage in unwritten}
    return plan, homes, [next(fresh) if place is None else place for place in places]


def _computed(
    roots: Sequence[Node], unwritten: dict[Storage, Node], settings: Config, *, anew: bool
) -> tuple[Plan | None, list[BufferRef]] | Unknown | None:
    """What computes some values, first those of storages, and their buffers; None where something is pending."""
    if not roots:
        return None, []
    device = usual_name(settings.device)
    if len(roots) >= MANY and not unwritten:
        near = shallow(roots, device)
        if near is not None:
            made = _names(roots, device)
            refs, starts = [*near.refs, *made], [*near.starts, *[0] * len(made)]
            plan = plans.recall(near.key, refs, starts, [], settings)
            if plan is None:
                if not anew:
                    return UNKNOWN
                still = Still()
                still.walk(roots, unwritten)
                plan = plans.learn(near.key, refs, starts, [], still.program(_outputs(made, roots)))
            return plan, made
    still = Still()
    try:
        still.walk(roots, unwritten)
    except PendingError:
        return None
    if {device, *map(_device, unwritten), *map(_device, still.refs)} == {device}:
        made = _names(roots, device)
        key = still.key(roots, device)
    else:
        owners = [storage.device for storage in unwritten]
        devices = [*owners, *[still.device_of(node) or device for node in roots[len(owners) :]]]
        made = [BufferRef(node.nbytes, device) for node, device in zip(roots, devices, strict=True)]
        key = still.key(roots, (*[ref.device for ref in still.refs], *devices))
    starts = still.starts + [0] * len(made)
    refs, literals = [*still.refs, *still.parts, *made], still.literals
    plan = plans.recall(key, refs, starts, literals, settings)
    if plan is None and not anew:
        return UNKNOWN
    return plan or plans.learn(key, refs, starts, literals, still.program(_outputs(made, roots))), made


def _names(values: Sequence[Node], device: str) -> list[BufferRef]:
    """Buffers for values on one device: those in a row are mostly of one size."""
    made: list[BufferRef] = []
    dtype, shape, nbytes = None, None, 0
    for node in values:
        if node.shape != shape or node.dtype is not dtype:
            dtype, shape = node.dtype, node.shape
            nbytes = prod(shape) * dtype.itemsize
        made.append(BufferRef(nbytes, device))
    return made


def _outputs(refs: Sequence[BufferRef], values: Sequence[Node]) -> list[Output]:
    """Values as outputs of a program."""
    views = [View.contiguous(node.dtype, node.shape) for node in values]
    return [Output(*each) for each in zip(refs, views, values, strict=True)]
