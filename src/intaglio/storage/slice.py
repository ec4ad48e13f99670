"""The slice of the journals that some values need: entries, closed over what their payloads read, and who looks on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ir.node import drain, toposort
from intaglio.ops.loop import Assign
from intaglio.ops.memory import Buffer, Read
from intaglio.schedule.program import ReadAt
from intaglio.storage import checks
from intaglio.storage.counts import (
    REFERENCES_OF_A_SLICE,
    REFERENCES_OF_A_TABLE,
    expressions_of,
    only_within,
    references_to,
)
from intaglio.storage.journal import Elements, Entry, GatherEntry, LoopEntry, Segment, first_of
from intaglio.storage.readers import living, overwritten
from intaglio.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from intaglio.ir.node import Node
    from intaglio.ops.memory import BufferRef
    from intaglio.storage.checks import Check
    from intaglio.storage.journal import AnyEntry

LEAVES: Final = (Read, Buffer, ReadAt, Assign)  # ops that look at bytes

ROUNDS: Final = 4  # how often storages that somebody reads after all are left out of the private ones


class Slice:
    """Which entries are needed: for each storage the last stamp, closed over what their payloads read."""

    def __init__(self, storages: Sequence[Storage], nodes: Sequence[Node], given_up: Sequence[Node]) -> None:
        """Of what is wanted. `given_up`: the nodes of which nobody will ask what they were computed from."""
        self.wanted: Final = storages
        self.nodes: Final = nodes
        self.given_up: Final = given_up
        self.own: Final[set[Node]] = set()  # reads that nobody outside the slice will ask for
        self.lost: Final[dict[Node, None]] = {}  # others, of bytes that the slice overwrites
        self.private: Final[set[Storage]] = set()  # storages that nobody outside the slice can reach, without bytes
        self.stamps: dict[Storage, int] = {}
        self._work: list[tuple[Storage, int]] = []
        self._seen: set[Node] = set()
        self.bases: set[Storage] = set()  # whose versions 0 are yet to be computed
        self._is_checking: Final = len(checks.pending) > 0
        self.checks: list[tuple[Node, Check, tuple[Storage, Entry] | None]] = []
        for storage in storages:
            storage.close()
            self._need(storage, storage.sequence)
        for node in nodes:
            if node.place is None:
                self._follow(node)
        self._taken: dict[Storage, int] = {}
        self._touched: set[Storage] = set()  # whose readers are not yet looked for
        while self._work:
            storage, stamp = self._work.pop()
            self._enter(storage, stamp)
            if not self._work:
                self._readers()
        self.release()

    def _need(self, storage: Storage, stamp: int) -> None:
        """Need a storage as of a stamp."""
        if storage.ref is not None and not storage.log:
            return  # all that it holds is in memory
        if self.stamps.get(storage, -1) < stamp:
            self.stamps[storage] = stamp
            self._work.append((storage, stamp))
        if storage.base is not None and storage not in self.bases:
            self.bases.add(storage)
            self._follow(storage.base)

    def _follow(self, root: Node, owner: tuple[Storage, Entry] | None = None) -> None:
        """Need all that a node reads; note positions that are to be checked."""
        seen = self._seen
        stack = [root]
        while stack:
            node = stack[-1]
            if node in seen:
                stack.pop()
                continue
            op, src, place = node.op, node.src, node.place
            if src and place is None:
                inputs = [source for source in src if source not in seen]
                if inputs:
                    inputs.reverse()
                    stack += inputs
                    continue
            stack.pop()
            seen.add(node)
            if place is not None:
                continue
            if isinstance(op, Read):
                assert isinstance(op.storage, Storage)
                self._need(op.storage, op.stamp)
            if self._is_checking and (check := checks.pending.get(node)) is not None:
                self.checks.append((node, check, owner))

    def _enter(self, storage: Storage, stamp: int) -> None:
        """Need all that the entries up to a stamp read."""
        if stamp < self.stamps[storage]:
            return  # a later one is asked for as well
        start = self._taken.get(storage, 0)
        log = storage.log
        place = start
        while place < len(log) and first_of(log[place]) <= stamp:
            entry = log[place]
            self._touched.add(storage)
            match entry:
                case Entry(value=value, indices=indices):
                    self._follow(value, (storage, entry))
                    for index in indices:
                        self._follow(index, (storage, entry))
                case Elements():
                    part = entry.until(stamp)
                    for source in part.sources():
                        if source is not storage:
                            self._need(source, min(part.sequence, source.sequence))
                    if entry.sequence > stamp:
                        break
                case GatherEntry(reads=reads):
                    for read in reads:
                        self._follow(read)
                case Segment() | LoopEntry():
                    pass
            place += 1
        self._taken[storage] = place

    def _readers(self) -> None:
        """Join pending elements that read what the slice overwrites, as it was before: they run with it."""
        found: dict[Storage, dict[Storage, int]] = {}
        for source in self._touched:
            for storage in list(source.readers or ()):
                found.setdefault(storage, {})[source] = self.stamps[source]
        self._touched.clear()
        for storage, stamps in found.items():
            if not storage.log:
                continue
            others = [stamp for source, stamp in stamps.items() if source is not storage]
            needed = min(storage.sequence, max(others, default=-1))
            for entry in storage.log:
                if isinstance(entry, Elements):
                    needed = max(needed, entry.last_reader(stamps))
            self._need(storage, needed)

    def close(self) -> None:
        """Close the open segments (here, since a loop's variable would be a reference more to be counted)."""
        for storage in self.stamps:
            storage.close()

    def find_own(self) -> None:
        """Find the reads that only the slice holds."""
        drain()
        self.release()
        private = self._unreachable()
        for _ in range(ROUNDS if private else 0):
            own = only_within(self.values() + _bases(private), self.given_up)
            seen = {storage for storage in private if not _reads_of(storage) <= own}
            if not seen:
                self.own.update(own)
                self.private.update(private)
                return
            private -= seen
        self.own.update(only_within(self.values(), self.given_up))
        self.own.update(only_within(self.unseen(self.own), self.given_up))

    def _unreachable(self) -> set[Storage]:
        """The storages without bytes that only the slice's tables, pending expressions and reads of theirs refer to."""
        wanted = set(self.wanted)
        found = [
            storage
            for storage in self.stamps
            if storage.ref is None and storage.plain and not (storage.path or storage.followers or storage in wanted)
            if self.stamps.keys() >= {*(storage.readers or ())}
        ]
        if not found:
            return set()
        references = expressions_of(found, self.stamps)
        later = {
            source
            for storage, stamp in self.stamps.items()
            if storage.sequence > stamp
            for skeleton in storage.skeletons or ()
            for source in skeleton.storages
        }  # which elements that are not asked for may read
        private: set[Storage] = set()
        while found:
            storage = found.pop()
            known = REFERENCES_OF_A_SLICE if storage in self.bases else REFERENCES_OF_A_TABLE
            if references_to(storage) - known - references.get(id(storage), 0) == len(_reads_of(storage)):
                private.add(storage)
        return private - later

    def find_lost(self) -> None:
        """Find the reads that others hold, of bytes that the slice overwrites."""
        for storage, stamp in self.stamps.items():
            if storage.log:
                held = (node for node in living(storage) if node not in self.own)
                self.lost.update(dict.fromkeys(overwritten(storage, stamp, held)))

    def release(self) -> None:
        """Let go of the nodes that were followed."""
        self._seen = set()

    def founding(self, without: AbstractSet[Storage]) -> list[Node]:
        """The reads in versions 0 but of some storages: they are computed before what uses those is."""
        bases = [storage.base for storage in self.bases - without if storage.base is not None]
        return [node for node in computed(bases) if isinstance(node.op, Read)]

    def log(self, storage: Storage) -> list[AnyEntry]:
        """The entries of one storage."""
        return [entry for entry in storage.log if first_of(entry) <= self.stamps[storage]]

    def values(self) -> list[Node]:
        """What the entries of the slice are computed from."""
        entries = [entry for _, entry in self.entries() if isinstance(entry, Entry)]
        return [node for entry in entries for node in (entry.value, *entry.indices)]

    def unseen(self, own: set[Node]) -> list[Node]:
        """The versions 0 of storages that nothing but the slice knows, whose reads are among some."""
        return [
            storage.base
            for storage in self.bases
            if storage.base is not None
            and not (storage.log or storage.readers)
            and references_to(storage) - REFERENCES_OF_A_SLICE == len(reads := _reads_of(storage))
            and reads <= own
        ]

    def entries(self) -> list[tuple[Storage, AnyEntry]]:
        """The entries of the slice, in program order."""
        found: list[tuple[Storage, AnyEntry]] = []
        for storage, stamp in self.stamps.items():
            for entry in storage.log:
                if first_of(entry) > stamp:
                    break
                found.append((storage, entry.until(stamp) if isinstance(entry, Elements) else entry))
        found.sort(key=lambda pair: first_of(pair[1]))
        return found


def whole_home(node: Node) -> BufferRef | None:
    """The buffer that is a node's value, row-major, and nothing else; if there is one."""
    if node.place is None:
        return None
    ref, view = node.place
    return ref if view.is_contiguous and view.nbytes == ref.nbytes else None


def computed(roots: Iterable[Node]) -> list[Node]:
    """All nodes of some values but those whose values are kept, inputs before users."""
    found = toposort(roots, enter=lambda node: node.place is None)
    return [node for node in found if node.place is None]


def is_constant(root: Node) -> bool:
    """Whether a value depends on no bytes: it is one node on all devices, and can always be computed again."""
    if root.place is not None or isinstance(root.op, LEAVES):
        return False
    seen = {root}
    stack = [root]
    while stack:
        for source in stack.pop().src:
            if source.place is not None or isinstance(source.op, LEAVES):
                return False  # mostly that is seen at once
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return True


def _bases(storages: Iterable[Storage]) -> list[Node]:
    """The versions 0 of some storages."""
    return [storage.base for storage in storages if storage.base is not None]


def _reads_of(storage: Storage) -> set[Node]:
    """The reads of a storage that are alive."""
    return set(storage.living_reads())
