"""Trimming: pending writes whose bytes later ones overwrite before anybody reads them are dropped, and never made.

One sweep over the writes that a flush needs, newest first. A write that goes takes its payload with it, and so the
reads that only this payload held: by the time the sweep comes to what they read, nobody asks for it any more. So it is
references that say who reads (CPython's: a node dies with its last one), and all readers are alike: payloads that are
kept, tensors, gradients' histories, programs that have not run.
"""

from __future__ import annotations

import itertools
import weakref
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import drain
from intaglio.ir.view import View
from intaglio.ops.memory import Read
from intaglio.storage.history import History
from intaglio.storage.journal import AnyEntry, Elements, Entry, LoopEntry, Segment, first_of
from intaglio.storage.kept import reads_of_rows
from intaglio.storage.storage import pending
from intaglio.storage.writes import offsets_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node
    from intaglio.storage.storage import Storage

    Runs: TypeAlias = list[tuple[int, int]]  # the first byte of each, and the one past its last

FEW: Final = 64  # runs of bytes up to which a region is known run by run; reads since a view up to which it is known
VIEWS: Final = 4  # views of more runs that are known


def doubtful(stamps: Mapping[Storage, int]) -> weakref.WeakKeyDictionary[Storage, int]:
    """The storages, of some with their stamps, in which a write may overwrite another one, or version 0."""
    found: weakref.WeakKeyDictionary[Storage, int] = weakref.WeakKeyDictionary()
    for storage, stamp in stamps.items():
        first = 0 if _has_version(storage) else 1
        if len(storage.log) > first and storage.log[first].sequence <= stamp:
            found[storage] = stamp
    return found


def trim(stamps: Mapping[Storage, int]) -> bool:
    """Drop the writes to some storages, up to a stamp of each, that nobody will see; whether there were any.

    All positions that the writes up to the stamps use have been checked. The caller holds no payload. If it holds no
    storage either that is not held elsewhere, one that goes with a payload takes its own writes with it.
    """
    drain()
    dropped = False
    sweeps = _sweeps(stamps)
    order = [(number, place) for place, sweep in enumerate(sweeps) for number in sweep.numbers]
    order.sort(reverse=True)
    for _, place in order:
        if sweeps[place].step():
            drain()
            dropped = True
    return dropped


def _has_version(storage: Storage) -> bool:
    """Whether version 0 of a storage is still to be computed."""
    return storage.base is not None and storage.ref is None


# -- one storage


@dataclass(eq=False, slots=True)
class _Reader:
    """Somebody who reads bytes of a storage as they are at each of some moments, for as long as `owner` lives."""

    first: int
    last: int
    bytes: View | Runs
    owner: weakref.ref[Node] | weakref.ref[Elements] | weakref.ref[History]

    def region(self) -> Region:
        """The bytes."""
        return _of_view(self.bytes) if isinstance(self.bytes, View) else _of_runs(self.bytes)


class _Sweep:
    """The sweep over one storage: the readers of the moments that it has yet to come to, and what nobody reads."""

    def __init__(self, storage: Storage, stamp: int, readers: list[_Reader]) -> None:
        self._storage: Final = weakref.ref(storage)
        self._stamp: Final = stamp
        self._readers: Final = sorted(readers, key=lambda reader: reader.last)
        self._open: list[_Reader] = []  # those that read at the moment which the sweep has come to, and earlier ones
        self._unseen: Final = Unseen()
        self.numbers: Final = [entry.sequence for entry in storage.log if entry.sequence <= stamp]
        self._left: int = len(self.numbers)

    def step(self) -> bool:
        """Decide on the write before the last that was decided on; whether something was dropped."""
        storage = self._storage()
        if storage is None:
            return False
        self._left -= 1
        dropped = self._drop(storage, self._left)
        if self._left or not _has_version(storage):
            return dropped
        self._look(0, 0, None)
        if self._unseen.has(_of_runs([(0, storage.nbytes)])):
            storage.base = None
            dropped = True
        return dropped

    def _drop(self, storage: Storage, place: int) -> bool:
        """Drop a write if nobody sees it, else note what it overwrites."""
        found = entry = storage.log[place]
        if isinstance(entry, Elements) and entry is storage.tape:
            entry = entry.until(self._stamp)  # another thread may add to them
        self._look(first_of(entry), entry.sequence, found)
        region = _target(entry)
        if self._unseen.has(region):
            storage.drop(place)
            return True
        if isinstance(entry, LoopEntry):
            self._unseen.clear()  # what it reads is no node's
        elif not isinstance(entry, Entry) or (not entry.indices and entry.combine == "set"):
            self._unseen.add(region)
            self._see(self._open)
        return False

    def _look(self, first: int, last: int, entry: AnyEntry | None) -> None:
        """Come to the moments after the writes `first` to `last`, which are decided on together: to those of an entry.

        What the entry itself reads counts once it is kept.
        """
        self._open = [reader for reader in self._open if reader.first < last]
        found: list[_Reader] = []
        while self._readers and self._readers[-1].last >= first:
            found.append(self._readers.pop())
        self._see(reader for reader in found if entry is None or reader.owner() is not entry)
        self._open += [reader for reader in found if reader.first < last]

    def _see(self, readers: Iterable[_Reader]) -> None:
        """Somebody reads."""
        for reader in readers:
            if reader.owner() is not None:
                self._unseen.remove(reader.region())


def _sweeps(stamps: Mapping[Storage, int]) -> list[_Sweep]:
    """A sweep of each storage."""
    readers = _elements(stamps)
    return [
        _Sweep(storage, stamp, _nodes(storage) + _histories(storage) + readers.get(storage, []))
        for storage, stamp in stamps.items()
    ]


def _nodes(storage: Storage) -> list[_Reader]:
    """The reads of a storage that live."""
    found: list[_Reader] = []
    for reference in [*storage.reads.live] if storage.reads is not None else ():
        node = reference()
        if node is not None and node.place is None and isinstance(node.op, Read):
            found.append(_Reader(node.op.stamp, node.op.stamp, node.op.view, reference))
    return found


def _histories(storage: Storage) -> list[_Reader]:
    """What rows of histories read of a storage: gradients will ask for it."""
    found: list[_Reader] = []
    for history in storage.followers or ():
        assert isinstance(history, History)
        for dtype, offsets, stamps in reads_of_rows(history, storage):
            run = int(offsets.min()), int(offsets.max()) + dtype.itemsize
            found.append(_Reader(int(stamps.min()), int(stamps.max()), [run], weakref.ref(history)))
    return found


def _elements(storages: Mapping[Storage, int]) -> dict[Storage, list[_Reader]]:
    """What pending elements read of some storages: as one reader all that one expression reads, within its bounds."""
    found: dict[Storage, list[_Reader]] = {}
    for owner in list(pending):
        if any(source in storages for skeleton in owner.skeletons or () for source in skeleton.storages):
            for entry in owner.log:
                if isinstance(entry, Elements):
                    owned = entry if entry is not owner.tape else entry.until(owner.sequence)  # which may still grow
                    for source, first, last, run in _reads(owned):
                        if source in storages:
                            found.setdefault(source, []).append(_Reader(first, last, [run], weakref.ref(entry)))
    return found


def _reads(entry: Elements) -> Iterable[tuple[Storage, int, int, tuple[int, int]]]:
    """What elements read: the storage, the first and last moment, and the bounds of the bytes."""
    for skeleton, _, _, columns in entry.by_skeleton():
        for step, hole in skeleton.pattern().reads:
            offsets, stamps = columns[hole], columns[hole + 1]
            source = step.storage
            run = int(min(offsets)), int(max(offsets)) + step.dtype.itemsize
            yield source, int(min(stamps)), int(max(stamps)), run


# -- bytes


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes: runs in order and apart, if they are few; their bounds in any case; the view that they are, if they are.

    Without runs, bounds and view are all that is known of them.
    """

    low: int
    high: int
    runs: Runs | None
    view: View | None = None


class Unseen:
    """The bytes that are overwritten before anybody reads them.

    They are kept as runs, in order and apart, and as views of more runs than are counted. What is not known exactly is
    left out: then a write is made that might have been dropped.
    """

    def __init__(self) -> None:
        self._starts: Final[list[int]] = []
        self._ends: Final[list[int]] = []
        self._views: list[tuple[View, list[View]]] = []  # each with what was read since

    def has(self, region: Region) -> bool:
        """Whether all bytes of a region are among them."""
        if all(map(self._has, region.runs if region.runs is not None else [(region.low, region.high)])):
            return True
        view = region.view
        return view is not None and any(
            known.covers(view) and view not in reads and not any(read.overlaps(view) for read in reads)
            for known, reads in self._views
        )

    def _has(self, run: tuple[int, int]) -> bool:
        """Whether one run is within one of them."""
        place = bisect_right(self._starts, run[0]) - 1
        return place >= 0 and run[1] <= self._ends[place]

    def add(self, region: Region) -> None:
        """They are overwritten."""
        for low, high in region.runs or ():
            first, last = bisect_left(self._ends, low), bisect_right(self._starts, high)
            if first < last:
                low, high = min(low, self._starts[first]), max(high, self._ends[last - 1])
            self._starts[first:last] = [low]
            self._ends[first:last] = [high]
        if region.runs is None and region.view is not None:
            others = [known for known in self._views if known[0] != region.view]
            self._views = [*others[1 - VIEWS :], (region.view, [])]

    def remove(self, region: Region) -> None:
        """Somebody reads them (and what is between them, where they are not known run by run)."""
        if region.low == region.high:
            return
        for low, high in region.runs if region.runs is not None else [(region.low, region.high)]:
            first, last = bisect_right(self._ends, low), bisect_left(self._starts, high)
            if first < last:
                rest = [(self._starts[first], low), (high, self._ends[last - 1])]
                kept = [(start, end) for start, end in rest if start < end]
                self._starts[first:last] = [start for start, _ in kept]
                self._ends[first:last] = [end for _, end in kept]
        if self._views:
            read = region.view or View.contiguous(dtypes.uint8, (region.high - region.low,), region.low)
            for _, reads in self._views:
                reads.append(read)
            self._views = [known for known in self._views if len(known[1]) <= FEW]

    def clear(self) -> None:
        """Somebody reads everything."""
        self._starts.clear()
        self._ends.clear()
        self._views.clear()


def _target(entry: AnyEntry) -> Region:
    """The bytes that a write may write."""
    match entry:
        case Elements():
            return _of_elements(np.array(entry.offsets(), np.int64), entry.dtype)
        case Segment(view=view, dtype=dtype, numbers=numbers) if len(numbers) < view.size:
            return _of_elements(offsets_of(dtype, numbers), dtype)
        case _:
            return _of_view(entry.view)


def _of_view(view: View) -> Region:
    """The bytes of a view."""
    low, high = view.byte_bounds()
    if view.nbytes == high - low:  # one run; of a view that repeats bytes, at most what lies between
        return Region(low, high, [(low, high)], view)
    dtype, shape, strides, offset = view.canonical()
    size = dtype.itemsize
    if strides and strides[-1] == size:
        size *= shape[-1]
        shape, strides = shape[:-1], strides[:-1]
    count = 1
    for extent in shape:
        count *= extent
    if count > FEW:
        return Region(low, high, None, view)
    places = itertools.product(*(range(0, extent * step, step) for extent, step in zip(shape, strides, strict=True)))
    starts = sorted(offset + sum(steps) for steps in places)
    return Region(low, high, [(start, start + size) for start in starts], view)


def _of_elements(offsets: NDArray[np.int64], dtype: DType) -> Region:
    """The bytes of elements."""
    offsets = np.sort(offsets)
    gaps = np.flatnonzero(np.diff(offsets) > dtype.itemsize)
    low, high = int(offsets[0]), int(offsets[-1]) + dtype.itemsize
    if len(gaps) >= FEW:
        return Region(low, high, None)
    starts = [low, *offsets[gaps + 1].tolist()]
    ends = [*(offsets[gaps] + dtype.itemsize).tolist(), high]
    return Region(low, high, list(zip(starts, ends, strict=True)))


def _of_runs(runs: Runs) -> Region:
    """Some runs."""
    return Region(runs[0][0], runs[-1][1], runs)
