"""What pending work holds in memory: the measure of the bound on bytes.

An entry counts `ENTRY` bytes and a number of a segment `NUMBER` (a slot of its dictionary, its position, itself). Of
buffers, those count that would go if the work were done: of values that only payloads read (a host array that was
written, a table of positions, a copy that was taken for an old reader). A buffer that a tensor holds is not pending's.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from intaglio.ops.memory import Read
from intaglio.storage.journal import Entry
from intaglio.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from intaglio.ir.node import Node

ENTRY: Final = 512  # with its view and the node that is made for it
NUMBER: Final = 128


def payloads(storage: Storage) -> list[Node]:
    """What the pending entries of a storage are to write, and where."""
    return [node for entry in storage.log if isinstance(entry, Entry) for node in (entry.value, *entry.indices)]


def held(roots: Iterable[Node], seen: set[Node]) -> int:
    """The bytes of buffers that values keep alive, without what `seen` has (to which they are added)."""
    leaves, total = _leaves(roots, seen)
    for k in range(len(leaves)):
        readers = {*leaves[k].living_reads()}
        if sys.getrefcount(leaves[k]) - _OVERHEAD <= len(readers):
            total += leaves[k].nbytes
    return total


def _leaves(roots: Iterable[Node], seen: set[Node]) -> tuple[list[Storage], int]:
    """(the storages in memory that values read, each once; the bytes of values that are in buffers of their own)."""
    found: dict[int, Storage] = {}
    total = 0
    stack = [root for root in roots if root not in seen]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.place is not None:
            total += node.place[0].nbytes
            continue
        match node.op:
            case Read(storage=Storage() as storage):
                if storage.ref is not None:
                    found[id(storage)] = storage
                elif storage.base is not None:
                    stack.append(storage.base)
            case _:
                stack.extend(node.src)
    return list(found.values()), total


def _overhead() -> int:
    """The references that counting itself makes."""
    leaves = [object()]
    return sys.getrefcount(leaves[0])


_OVERHEAD: Final = _overhead()
