"""Values that are one op each away from memory: what they are computed from, found for all of them at once.

A loop over values in Python takes microseconds for each, as long as a small kernel. So nothing here is done value by
value: each column (inputs, buffers, views, numbers) is made by one call. Where a value is computed from anything else,
the walk of `storage/still.py` finds it.
"""

from __future__ import annotations

from array import array
from itertools import chain, count
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from intaglio.ops.memory import Read
from intaglio.storage import checks
from intaglio.storage.still import codes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.ir.node import Node, Op
    from intaglio.ir.view import View
    from intaglio.ops.memory import BufferRef
    from intaglio.storage.journal import AnyEntry

SHALLOW: Final = 0  # what keys begin with: a walk's begins with a code, below 0
READS: Final = {Read}

_src: Final[Callable[[Node], tuple[Node, ...]]] = attrgetter("src")
_op: Final[Callable[[Node], Op]] = attrgetter("op")
_place: Final[Callable[[Node], object]] = attrgetter("place")
_read: Final[Callable[[Node], tuple[BufferRef | None, View, list[AnyEntry]]]] = attrgetter(
    "op.storage.ref", "op.view", "op.storage.log"
)


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
    inputs = [*map(_src, roots)]
    sources = [*chain.from_iterable(inputs)]
    if {*map(type, map(_op, sources))} != READS or not all(inputs) or len(checks.pending):
        return None
    leaves = dict.fromkeys(sources)
    refs, views, logs = zip(*map(_read, leaves), strict=True)
    if any(logs) or any(map(_place, leaves)) or any(map(_place, roots)) or len({*refs}) < len(refs):
        return None
    if {*[ref.device if ref is not None else None for ref in refs]} != {device}:
        return None
    numbers = dict(zip(leaves, count()))
    starts, seen = zip(*[codes.places.get(view) or codes.place(view) for view in views], strict=True)
    ops = [codes.known.get(op) or codes.of(op) for op in map(_op, roots)]
    columns = (SHALLOW, codes.of(device)), seen, ops, map(len, inputs), map(numbers.__getitem__, sources)
    return Shallow(refs, starts, array("q", chain.from_iterable(columns)).tobytes())
