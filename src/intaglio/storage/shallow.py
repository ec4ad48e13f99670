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

    from intaglio.ir.node import Node
    from intaglio.ops.memory import BufferRef
    from intaglio.storage.journal import AnyEntry
    from intaglio.storage.storage import Storage

SHALLOW: Final = 0  # what keys begin with: a walk's begins with a code, below 0
_log: Final[Callable[[Storage], list[AnyEntry]]] = attrgetter("log")
_place: Final[Callable[[Node], object]] = attrgetter("place")


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
    inputs = [root.src for root in roots]
    sources = [*chain.from_iterable(inputs)]
    leaves = dict.fromkeys(sources)
    reads = [op for leaf in leaves if isinstance(op := leaf.op, Read)]
    if len(reads) < len(leaves) or not all(inputs) or len(checks.pending):
        return None
    storages: list[Storage] = [read.storage for read in reads]  # pyright: ignore[reportAssignmentType] -- as all are
    refs = [ref for storage in storages if (ref := storage.ref) is not None]
    if len({*refs}) < len(leaves) or {*[ref.device for ref in refs]} != {device}:
        return None
    if any(map(_log, storages)) or any(map(_place, leaves)) or any(map(_place, roots)):
        return None
    numbers = dict(zip(leaves, count()))
    starts, seen = zip(*[codes.places.get(read.view) or codes.place(read.view) for read in reads], strict=True)
    ops = [codes.known.get(root.op) or codes.of(root.op) for root in roots]
    key = [SHALLOW, codes.of(device), *seen, *ops, *map(len, inputs), *map(numbers.__getitem__, sources)]
    return Shallow(refs, starts, array("q", key).tobytes())
