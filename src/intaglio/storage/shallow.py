"""Values that are one op each away from memory: what they are computed from, in one short loop.

Such a loop takes a third of a microsecond for each value, where the walk of `storage/still.py`, which finds whatever
else values are computed from, takes more than a small kernel. Calls are what costs, and objects; lines hardly do: one
call that makes a column of an attribute of many objects takes as long as four lines for each of them.
"""

from __future__ import annotations

from array import array
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from intaglio.ops.memory import Read
from intaglio.storage import checks
from intaglio.storage.still import codes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.ir.node import Node
    from intaglio.ops.memory import BufferRef
    from intaglio.storage.storage import Storage

SHALLOW: Final = 0  # what keys begin with: a walk's begins with a code, below 0


class Shallow(NamedTuple):
    """What some values are computed from.

    Attributes:
        refs: The buffers that are read, in order of first use.
        starts: For each, the byte from which the structure sees it.
        key: What programs of one structure have in common.
    """

    refs: Sequence[BufferRef]
    starts: Sequence[int]
    key: bytes


def shallow(roots: Sequence[Node], device: str) -> Shallow | None:
    """What some values are computed from, if each is one op of reads of buffers, all on one device, seen as one view.

    None where one is not, or where a read is pending.
    """
    if len(checks.pending):
        return None
    known, places = codes.known, codes.places
    refs: list[BufferRef] = []
    starts: list[int] = []
    views: list[int] = []  # the codes of the views of them
    ops: list[int] = []  # for each value its code, and how many inputs it has
    start, code, last = 0, 0, None  # neighbours mostly see one view, and to look one up takes as long as all else
    for root in roots:
        src = root.src
        if not src or root.place is not None:
            return None
        for leaf in src:
            op = leaf.op
            if type(op) is not Read or leaf.place is not None:
                return None
            storage: Storage = op.storage  # pyright: ignore[reportAssignmentType] -- as every read's
            if (ref := storage.ref) is None or storage.log or ref.device != device:
                return None
            if op.view is not last:
                last, (start, code) = op.view, places.get(op.view) or codes.place(op.view)
            refs.append(ref)
            starts.append(start)
            views.append(code)
        ops += known.get(root.op) or codes.of(root.op), len(src)
    key = [SHALLOW, codes.of(device), *views, *ops]
    if len({*refs}) < len(refs):
        found = dict(zip(refs, starts, strict=True))
        if len({*zip(refs, starts, views, strict=True)}) > len(found):
            return None
        numbers = dict(zip(found, count()))
        key += map(numbers.__getitem__, refs)
        refs, starts = [*found], [*found.values()]
    return Shallow(refs, starts, array("q", key).tobytes())
