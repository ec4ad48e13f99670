"""Values with writes pending: what they are computed from, by the walk of `storage/still.py`, and through the journal.

Where all that is needed of the journal are writes of larger values, each by itself, the walk describes the history in
full: which values are written where, in which order, and as of which write each read sees its storage. Two histories of
one key differ only in which buffers, numbers and starts they have. So what one was made into serves the other.
"""

from __future__ import annotations

import itertools
import sys
from array import array
from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from intaglio.ir.view import View
from intaglio.ops.memory import Read
from intaglio.schedule.sizes import PAIRS
from intaglio.schedule.structure import cut
from intaglio.storage.counts import REFERENCES_OF_A_NODE, references_to
from intaglio.storage.families import Member
from intaglio.storage.journal import AnyEntry, Entry
from intaglio.storage.readers import overwritten
from intaglio.storage.still import PendingError, Still, codes
from intaglio.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Hashable, Mapping, Sequence

    from intaglio.ir.node import Node
    from intaglio.ops.memory import BufferRef

MOST: Final = 1024  # writes up to which they are known
EACH: Final = 256  # and those to one storage: more are mostly those of a loop, which is rolled

_sequence: Final[Callable[[AnyEntry], int]] = attrgetter("sequence")
_device: Final[Callable[[BufferRef | Storage], str]] = attrgetter("device")


class Written(Still):
    """What some values are computed from, as long as only writes of larger values turn out to be pending.

    Attributes:
        storages: Those with a history, in order of first use, with their numbers: with pending writes, or asked for and
            without bytes.
        entries: Once followed, the writes that are needed, in program order, each after the number of its storage.
    """

    def __init__(self) -> None:
        super().__init__()
        self.storages: Final[dict[Storage, int]] = {}
        self.entries: list[tuple[int, Entry]] = []
        self._taken: Final[list[int]] = []  # for each storage, how many of its writes are needed
        self._work: list[Node] = []  # what those write, and versions 0
        # reads of these storages: the number of the value, that of the storage, the writes that they see, the view
        self._reads: Final[list[tuple[int, int, int, View]]] = []

    def follow_all(self, wanted: Sequence[Storage], roots: Sequence[Node]) -> bool:
        """Walk through what storages and values need; whether it is known in full."""
        try:
            for storage in wanted:
                if storage.log or storage.ref is None:
                    self._need(storage, storage.sequence)
            self.walk(roots, self.storages)
            while self._work:
                work, self._work = self._work, []
                self.walk(work, self.storages)
            self._finish()
        except PendingError:
            return False
        return True

    @property
    def homeless(self) -> list[Storage]:
        """The storages that have no bytes yet and are to have some."""
        return [storage for storage in self.storages if storage.ref is None]

    @property
    def homes(self) -> list[BufferRef]:
        """The buffers of those that have."""
        return [storage.ref for storage in self.storages if storage.ref is not None]

    @property
    def devices(self) -> set[str]:
        """Where all of it is."""
        return {*map(_device, self.refs), *map(_device, self.homes), *map(_device, self.storages)}

    def stamps(self) -> list[tuple[Storage, int]]:
        """The storages that are written, each with the number of the last write that is needed."""
        taken = zip(self.storages, self._taken, strict=True)
        return [(storage, storage.log[count - 1].sequence) for storage, count in taken if count]

    def _base(self, node: Node, storage: Storage, view: View, unwritten: Container[Storage]) -> Node | None:
        """What a read of a storage without bytes is a view of; one of a storage with a history is numbered."""
        if not storage.log and storage not in unwritten:
            return super()._base(node, storage, view, unwritten)
        op = node.op
        assert isinstance(op, Read)
        number, seen = self._need(storage, op.stamp)
        self._reads.append((len(self.order), number, seen, view))
        self._key.extend((codes.of((Written, view)), number, seen))
        self.order[node] = len(self.order)
        return None

    def _need(self, storage: Storage, stamp: int) -> tuple[int, int]:
        """Need the writes to a storage up to a stamp; gives the storage's number, and how many writes these are.

        Raises: PendingError if there are others than of larger values, or too many.
        """
        number = self.storages.get(storage)
        if number is None:
            number = self._begin(storage)
        log = storage.log
        seen = bisect_right(log, stamp, key=_sequence)
        if seen > EACH:
            raise PendingError
        for entry in log[self._taken[number] : seen]:
            assert isinstance(entry, Entry)
            self._work += (entry.value, *entry.indices)
            self.entries.append((number, entry))
        self._taken[number] = max(seen, self._taken[number])
        if len(self.entries) > MOST:
            raise PendingError
        return number, seen

    def _begin(self, storage: Storage) -> int:
        """Number a storage.

        Raises: PendingError if more is pending than writes of larger values, or elements are computed from it.
        """
        others = any(entry.__class__ is not Entry for entry in storage.log)
        if others or storage.open is not None or storage.readers or storage.followers:
            raise PendingError
        if storage.ref is None:
            if storage.base is not None:
                self._work.append(storage.base)
            elif not storage.log:
                raise PendingError
        self._taken.append(0)
        number = self.storages[storage] = len(self.storages)
        return number

    def _finish(self) -> None:
        """Bring the writes in order.

        Raises: PendingError if a storage without bytes is only read as it was before all writes, if its bytes are those
            of something else, or if the value that they were is still in use.
        """
        self.entries.sort(key=lambda pair: pair[1].sequence)
        for storage, count in zip(self.storages, self._taken, strict=True):
            if storage.ref is None and storage.log and not count:
                raise PendingError
            origin = storage.origin() if storage.origin is not None else None
            if storage.ref in self.refs or (count and origin is not None and origin.place is not None):
                raise PendingError

    def key(self, outputs: Sequence[Node], devices: Hashable) -> bytes:
        """What histories have in common that are made into one program, if the same reads are kept."""
        if self._shared:
            self._join()
        key, order = self._key, self.order
        for storage, taken in zip(self.storages, self._taken, strict=True):
            base = storage.base if storage.ref is None else None
            key += codes.of((Storage, storage.nbytes, storage.ref is None, storage.stays, base is None)), taken
            if base is not None:
                key.append(order[base])
        for number, entry in self.entries:
            key += codes.of((Entry, entry.view, entry.combine)), number, order[entry.value]
            key += map(order.__getitem__, entry.indices)
        key.append(codes.of((Written, devices)))
        key += map(order.__getitem__, outputs)
        key.append(codes.of(Written))
        return array("q", key).tobytes()

    def member(self, made: Sequence[Node], lost: Sequence[int]) -> Member | None:
        """The history taken apart, its key once made; None where it has too many pairs of views for any size.

        What is seen of values without bytes of their own is left whole: movement is made of it, by other integers.

        Args:
            made: The values that buffers are made of, beside versions 0.
            lost: The numbers of those that are kept for others.
        """
        uses = self._uses()
        if uses is None:
            return None
        meets, places = uses
        skeleton: list[int] = []
        integers: list[int] = []

        def add(code: int) -> None:
            rest, own = codes.apart(code)
            skeleton.append(rest)
            integers.extend(own)

        whole = {*self._codes.values()}
        for code in self._key:
            if code < 0 and code not in whole:
                add(code)
            else:
                skeleton.append(code)
        skeleton += lost
        skeleton += [codes.of(base.shape) for base in self.views.values()]
        bases = [storage.base for storage in self.homeless if storage.base is not None]
        for node in (*bases, *made):
            add(codes.of(View.contiguous(node.dtype, node.shape)))
            integers.append(node.nbytes)
        views: dict[int, list[View]] = {}
        for _, view, place in self._seen:
            views.setdefault(self._key[place + 1], []).append(view)
        integers += [cut(views[number])[1] for number in sorted(views)]
        integers += [number for place in places for number in place]
        rests = [start for storage, (start, _) in zip(self.storages, places, strict=True) if storage.ref is not None]
        return Member(array("q", skeleton).tobytes(), integers, meets, rests)

    def _uses(self) -> tuple[list[bool], list[tuple[int, int]]] | None:
        """For pairs of writes and reads whether they meet; for storages, the byte and the number of those seen.

        None where there are too many pairs.
        """
        written: list[list[View]] = [[] for _ in self.storages]
        read: list[list[View]] = [[] for _ in self.storages]
        for number, entry in self.entries:
            written[number].append(entry.view)
        for _, number, _, view in self._reads:
            read[number].append(view)
        if sum(len(targets) * len(views) for targets, views in zip(written, read, strict=True)) > PAIRS:
            return None
        meets: list[bool] = []
        places: list[tuple[int, int]] = []
        for storage, targets, views in zip(self.storages, written, read, strict=True):
            meets += [target.overlaps(view) for view in views for target in targets]
            whole = storage.ref is None or (targets and views)
            places.append((0, storage.nbytes) if whole else cut(targets or views))
        return meets, places

    def is_read_elsewhere(self) -> bool:
        """Whether a read that is not of the walk sees bytes that are overwritten.

        Scalar expressions that tensors hold must be nodes.
        """
        for storage, stamp in self.stamps():
            others = [node for node in storage.living_reads() if node.place is None and node not in self.order]
            if overwritten(storage, stamp, others):
                return True
        return False

    @property
    def is_read_before(self) -> bool:
        """Whether a read of the walk sees a storage as it was before some write."""
        return any(seen < self._taken[number] for _, number, seen, _ in self._reads)

    def overwritten(self) -> list[int]:
        """The numbers of the reads whose bytes are overwritten, which follow from the key."""
        order = [*self.order]
        reads: dict[int, list[Node]] = {}
        for value, number, seen, _ in self._reads:
            if seen < self._taken[number]:
                reads.setdefault(number, []).append(order[value])
        found: list[int] = []
        for number, (storage, count) in enumerate(zip(self.storages, self._taken, strict=True)):
            if number in reads:
                stamp = storage.log[count - 1].sequence
                found += [self.order[node] for node in overwritten(storage, stamp, reads[number])]
        return sorted(found)

    def lost(self, old: Sequence[int], given_up: Collection[Node]) -> list[int]:
        """Those of some reads that somebody outside the walk may still ask for.

        Args:
            given_up: The values of which nobody will ask what they were computed from.
        """
        held = self._held(given_up) if old else ()
        return [value for value in old if held[value]]

    def _held(self, given_up: Collection[Node]) -> list[bool]:
        """For each value, whether somebody outside the walk may ask for it, or for what is computed from it.

        Decided by reference counts, as in `storage/counts.py`.
        """
        order, views = self.order, self.views
        below = self._below()
        expected = self._references(below)
        nodes = [*order, *below]
        goals = set(given_up)
        held = [False] * len(nodes)
        for storage in {node.op.storage for node in views if isinstance(node.op, Read)}:
            assert isinstance(storage, Storage)
            assert storage.base is not None
            seen = all(node in order for node in storage.living_reads())
            held[order[storage.base]] = not seen or _others(storage) > REFERENCES_OF_A_STORAGE
        for number in range(len(nodes)):
            if nodes[number] not in goals and sys.getrefcount(nodes[number]) > expected[number]:
                held[number] = True
        work = [number for number, is_held in enumerate(held) if is_held]
        while work:
            node = nodes[work.pop()]
            for source in _sources(node, views) if node not in goals else ():
                number = order[source] if source in order else below[source]
                if not held[number]:
                    held[number] = True
                    work.append(number)
        return held

    def _below(self) -> dict[Node, int]:
        """What only values that lie in memory were computed from, numbered after the values of the walk."""
        order = self.order
        below: dict[Node, int] = {}
        stack = [node for node in order if node.place is not None]
        while stack:
            for source in stack.pop().src:
                if source not in order and source not in below:
                    below[source] = len(order) + len(below)
                    stack.append(source)
        return below

    def _references(self, below: Mapping[Node, int]) -> list[int]:
        """The references to each value that the walk accounts for, and to each of those below it."""
        order, views = self.order, self.views
        expected = [REFERENCES_OF_A_NODE] * (len(order) + len(below))
        for node in itertools.chain(order, below):
            if node in views:
                expected[order[node]] += 2  # as keys
            for source in _sources(node, views):
                expected[order[source] if source in order else below[source]] += 1
        for _, entry in self.entries:
            for value in (entry.value, *entry.indices):
                expected[order[value]] += 1
        read = {node.op.storage for node in views if isinstance(node.op, Read)}
        for storage in (*read, *self.homeless):
            assert isinstance(storage, Storage)
            if storage.base is not None:
                expected[order[storage.base]] += 1
        return expected


def _sources(node: Node, views: Mapping[Node, Node]) -> tuple[Node, ...]:
    """What a value is computed from, or was."""
    base = views.get(node)
    return node.src if base is None else (base,)


def _others(storage: Storage) -> int:
    """The references to a storage beside those of its reads; those that counting makes are among them."""
    return references_to(storage) - len(storage.living_reads())


def _overhead() -> int:
    """What `_others` says of a storage that nothing else holds but the set which it is asked for from."""
    return max(_others(storage) for storage in {Storage(0, "CPU")})


REFERENCES_OF_A_STORAGE: Final = _overhead()
