"""Values on the way to what is read that are stored as well, since values like them had to be computed again.

What a tensor holds is computed where it is used, and mostly nobody asks for it again (`y` in `y = x * 2`,
`y.sum().item()`). But of a loop that reads something in each turn, and carries a value along (`v = v * 0.9 + g`,
`p -= v`), each turn would compute the value from the start, by kernels of its own. So who meets a value for the second
time, on the way to others, remembers what kind it was; from then on those of its kind that somebody holds are stored.

This is looked at where a flush is not known by a key: those are the ones that compile, or are about to.
"""

from __future__ import annotations

import sys
from math import prod
from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.ops.elementwise import Detach
from intaglio.ops.memory import Read, Window
from intaglio.ops.movement import Movement
from intaglio.storage.counts import REFERENCES_OF_A_NODE
from intaglio.storage.journal import Entry
from intaglio.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node, Op

KINDS: Final = 1024  # remembered at a time
MOST: Final = 256  # writes to one storage whose values are looked at: more are those of all turns of a loop
SMALL: Final = 1 << 20  # bytes that are stored however few they are computed from
SEEN_THROUGH: Final = (Movement, Detach, Window)  # values that are others, seen otherwise
Kind: TypeAlias = "tuple[type[Op], DType, tuple[int, ...]]"


class Recomputed:
    """The kinds of values that were computed again. Used under the engine's lock."""

    def __init__(self) -> None:
        self._kinds: Final[set[Kind]] = set()

    def to_store(self, storages: Sequence[Storage], nodes: Sequence[Node]) -> tuple[list[Node], bool]:
        """The values, other than what is wanted, that a flush is to store for those who hold them.

        And whether gradients may follow them: whether some are known to follow what they are computed from.

        Args:
            storages: Those that are brought up to date.
            nodes: The values that are wanted.
        """
        walk = _Walk(storages, nodes)
        for kind in walk.again:
            if len(self._kinds) >= KINDS:
                self._kinds.clear()
            self._kinds.add(kind)
        return walk.held(self._kinds) if self._kinds else [], walk.followed

    def clear(self) -> None:
        """Forget all kinds."""
        self._kinds.clear()


class _Walk:
    """What some storages and values are computed from, met from above; each value is noted as met.

    Attributes:
        again: The kinds of those that were met before.
        followed: Whether gradients follow something that they are computed from.
    """

    def __init__(self, storages: Sequence[Storage], nodes: Sequence[Node]) -> None:
        self.again: Final[set[Kind]] = set()
        self.followed: bool = False
        self._wanted: Final = nodes
        self._expected: Final[dict[Node, int]] = {}  # the references to each that the walk accounts for
        self._storages: Final[dict[Storage, int]] = {}  # the last write to each that is needed
        self._work: Final[list[Storage]] = []
        self._inputs: Final[set[int]] = set()  # tuples of them that were met: two values may have one
        self._below: list[Node] = []  # what values are computed from that were met before
        for storage in storages:
            self._need(storage, storage.sequence)
        self._enter([*nodes], first=True)
        while self._work or self._below:
            while self._work:
                self._enter(self._values(self._work.pop()), first=True)
            below, self._below = self._below, []
            self._enter(below, first=False)

    def _need(self, storage: Storage, stamp: int) -> None:
        """Need what a storage is computed from, up to a write."""
        if self._storages.get(storage, -1) < stamp:
            self._storages[storage] = stamp
            self._work.append(storage)

    def _values(self, storage: Storage) -> list[Node]:
        """What a storage is computed from."""
        found = [] if storage.ref is not None or storage.base is None else [storage.base]
        for entry in storage.log if len(storage.log) <= MOST else ():
            if isinstance(entry, Entry) and entry.sequence <= self._storages[storage]:
                found += (entry.value, *entry.indices)
        for value in found:
            self._expected[value] = self._expected.get(value, REFERENCES_OF_A_NODE) + 1
        return found

    def _enter(self, stack: list[Node], *, first: bool) -> None:
        """Meet values, and what they are computed from. `first`: whether nothing above them was met before."""
        while stack:
            node = stack.pop()
            if node.place is not None:
                continue
            op = node.op
            if isinstance(op, Read):
                assert isinstance(op.storage, Storage)
                self.followed = self.followed or op.storage.history is not None
                self._need(op.storage, op.stamp)
                continue
            if not node.src or id(node.src) in self._inputs:
                continue
            self._inputs.add(id(node.src))
            self._expected.setdefault(node, REFERENCES_OF_A_NODE)
            for source in node.src:
                self._expected[source] = self._expected.get(source, REFERENCES_OF_A_NODE) + 1
            if first and node.met and not isinstance(op, SEEN_THROUGH):
                self.again.add(_kind(node))
                self._below += node.src
            else:
                node.met = True
                stack += node.src

    def held(self, kinds: set[Kind]) -> list[Node]:
        """The values of some kinds that somebody else may ask for, and that are worth their memory."""
        expected = self._expected
        found = [node for node in expected if sys.getrefcount(node) > expected[node]]
        wanted = {*self._wanted}
        return [node for node in found if _kind(node) in kinds and node not in wanted and _is_worth(node)]


def _kind(node: Node) -> Kind:
    """What values are alike by."""
    return type(node.op), node.dtype, node.shape


def _is_worth(value: Node) -> bool:
    """Whether a value is computed from bytes, by more than movement, and is no larger than those, or small."""
    if value.place is not None or isinstance(value.op, (Read, *SEEN_THROUGH)):
        return False
    nbytes = prod(value.shape) * value.dtype.itemsize
    read = 0
    seen: set[int] = set()
    stack = [value]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.place is not None:
            read += node.place[1].nbytes
        elif isinstance(node.op, Read):
            read += node.nbytes
        else:
            stack += node.src
        if read and nbytes <= max(read, SMALL):
            return True
    return False


recomputed: Final = Recomputed()
