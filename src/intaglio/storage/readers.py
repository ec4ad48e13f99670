"""Old readers: which reads see bytes that later writes overwrite, and which only look old."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import numpy as np

from intaglio.core.dtypes import dtypes
from intaglio.ir.view import View
from intaglio.ops.memory import Read
from intaglio.storage.columns import integers
from intaglio.storage.journal import AnyEntry, Elements, first_of
from intaglio.storage.writes import Item

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node
    from intaglio.storage.columns import Integers
    from intaglio.storage.storage import Storage

    Target: TypeAlias = View | Elements  # what a write that is not rolled (or many of single elements) writes to
    Numbered: TypeAlias = tuple[Storage, int, Item | Target]  # with the number of the write (of the last one)

LARGEST_TIMES: Final = 1 << 25  # bytes of a storage up to which it is noted when each was last written
FEW: Final = 64  # pairs of a read and a write up to which each pair is compared, without a map of the bytes


def living(storage: Storage) -> list[Node]:
    """The reads of a storage that somebody holds, and whose values are not kept."""
    return [node for node in storage.living_reads() if node.place is None]


def overwritten(storage: Storage, stamp: int, reads: Iterable[Node]) -> list[Node]:
    """Those of some reads whose bytes a pending write after theirs, up to `stamp`, overwrites."""
    reads = [node for node in reads if _stamp(node) < stamp]
    if not reads:
        return []
    moments = sorted({*map(_stamp, reads), stamp})
    log = [entry for entry in storage.log if first_of(entry) <= stamp]
    pieces = [e for entry in log for e in (entry.cut(moments) if isinstance(entry, Elements) else (entry,))]
    return stale(storage.nbytes, [(e.sequence, target(e)) for e in pieces if e.sequence <= stamp], reads)


def stale(nbytes: int, writes: Sequence[tuple[int, Target]], reads: list[Node]) -> list[Node]:
    """The reads of a storage of so many bytes that a later one of its writes overlaps, newest first.

    Args:
        writes: Numbers and targets, in order; no stamp of a read is between those of elements that come as one.
    """
    reads = sorted(reads, key=_stamp, reverse=True)
    oldest = _stamp(reads[-1])
    writes = [write for write in reversed(writes) if write[0] > oldest]
    if len(reads) * len(writes) <= FEW:
        return [
            node
            for node in reads
            if any(number > _stamp(node) and target.overlaps(_view(node)) for number, target in writes)
        ]
    written = bytearray(nbytes)
    found: list[Node] = []
    place = 0
    for node in reads:
        while place < len(writes) and writes[place][0] > _stamp(node):
            _mark(written, writes[place][1])
            place += 1
        if _is_marked(written, _view(node)):
            found.append(node)
    return found


def outdated(writes: Sequence[Numbered]) -> set[Storage]:
    """The storages of which some rolled write reads a moment older than a write before it.

    Args:
        writes: In order: the storage, the number, and the item or target.
    """
    read: set[object] = set()
    for kind in {what.kind for _, _, what in writes if isinstance(what, Item)}:
        read.update(step.storage for step, _ in kind.reads)
    for _, _, what in writes:
        if isinstance(what, Elements):
            read |= what.sources()
    gathered: dict[object, list[int]] = {}
    for storage, number, what in writes:
        if storage in read:
            gathered.setdefault(storage, []).extend(what.sequences() if isinstance(what, Elements) else (number,))
    found: set[object] = set()
    for _, number, what in writes if gathered else ():
        if isinstance(what, Item):
            for step, hole in what.kind.reads:
                numbers = gathered.get(step.storage, ())
                place = bisect_left(numbers, number)
                if place and numbers[place - 1] > what.holes[hole + 1]:
                    found.add(step.storage)
        elif isinstance(what, Elements) and not what.sources().isdisjoint(gathered):
            found |= _outdated(what, gathered)
    return cast("set[Storage]", found)  # reads hold storages


def _outdated(elements: Elements, gathered: dict[object, list[int]]) -> set[object]:
    """The storages of which some element is computed from a moment older than a write before it."""
    found: set[object] = set()
    for skeleton, sequences, _, columns in elements.by_skeleton():
        for step, hole in skeleton.pattern().reads:
            if step.storage in gathered:
                numbers, own, stamps = map(integers, (gathered[step.storage], sequences, columns[hole + 1]))
                assert numbers is not None
                assert own is not None
                assert stamps is not None
                places = np.searchsorted(numbers, own) - 1
                if ((places >= 0) & (numbers[places] > stamps)).any():
                    found.add(step.storage)
    return found


def renew(writes: Sequence[Numbered], older: set[Storage]) -> dict[Storage, set[int]]:
    """Give each read of a rolled write the newest stamp that sees the same bytes as its own.

    Reads whose bytes are overwritten before the write that uses them keep theirs.

    Args:
        writes: In order: the storage, the number, and the item or target. Elements touch none of `older`.
        older: What `outdated` finds.
    Returns: The stamps of the reads that kept theirs, by storage.
    """
    every = {source: Times(source.nbytes) if source.nbytes <= LARGEST_TIMES else None for source in older}
    kept: dict[Storage, set[int]] = {storage: set() for storage in older}
    last: dict[Storage, int] = {}
    for storage, number, what in writes if older else ():
        if isinstance(what, Item):
            for step, hole in what.kind.reads:
                source = step.storage
                newest, stamp = last.get(source, -1), int(what.holes[hole + 1])
                if source not in older or stamp >= newest:
                    continue
                times = every[source]
                view = View(step.dtype, step.shape, step.strides, int(what.holes[hole]))
                if times is not None and times.newest(view) <= stamp:
                    what.renewed = what.recorded
                    what.holes = (*what.holes[: hole + 1], newest, *what.holes[hole + 2 :])
                else:
                    kept[source].add(stamp)
        times = every.get(storage)
        if times is not None and not isinstance(what, Elements):
            times.write(what.view if isinstance(what, Item) else what, number)
        last[storage] = number
    return kept


class Times:
    """For each byte of a storage, the number of its last write."""

    def __init__(self, nbytes: int) -> None:
        self._last: Final = np.full(nbytes, -1, np.int64)

    def write(self, view: View, number: int) -> None:
        """Note a write."""
        self._of(view)[...] = number

    def write_elements(self, dtype: DType, offsets: Integers, numbers: Integers) -> None:
        """Note writes of single elements, in order."""
        for byte in range(dtype.itemsize):
            self._last[offsets + byte] = numbers

    def newest_of(self, dtype: DType, offsets: Integers) -> Integers:
        """The last write of any byte of each of some elements."""
        return np.max([self._last[offsets + byte] for byte in range(dtype.itemsize)], axis=0)

    def newest(self, view: View) -> int:
        """The last write of any byte of a view."""
        return int(self._of(view).max(initial=-1))

    def _of(self, view: View) -> NDArray[np.int64]:
        """The numbers of a view's bytes."""
        shape, strides = (*view.shape, view.dtype.itemsize), (*view.strides, 1)
        return np.ndarray(shape, np.int64, self._last, 8 * view.offset, tuple(8 * s for s in strides))


def _stamp(node: Node) -> int:
    """The stamp of a read."""
    assert isinstance(node.op, Read)
    return node.op.stamp


def _view(node: Node) -> View:
    """The view that a read reads."""
    assert isinstance(node.op, Read)
    return node.op.view


def target(entry: AnyEntry) -> Target:
    """What an entry writes to."""
    return entry if isinstance(entry, Elements) else entry.view


def _mark(written: bytearray, view: Target) -> None:
    """Mark the bytes of a view, or of elements."""
    if isinstance(view, Elements):
        places = np.array(view.offsets())
        for byte in range(view.dtype.itemsize):
            np.frombuffer(written, np.uint8)[places + byte] = 1
    elif view.shape:
        _bytes_of(view, written)[...] = 1
    else:
        written[view.offset : view.offset + view.dtype.itemsize] = b"\1" * view.dtype.itemsize


def _is_marked(written: bytearray, view: View) -> bool:
    """Whether some byte of a view is marked."""
    if view.shape:
        return bool(_bytes_of(view, written).any())
    return 1 in written[view.offset : view.offset + view.dtype.itemsize]


def _bytes_of(view: View, written: bytearray) -> NDArray[np.uint8]:
    """A view's part of a map of bytes."""
    item = view.dtype.itemsize
    kind = dtypes.uint8.numpy
    return np.ndarray((*view.shape, item), kind, written, view.offset, (*view.strides, 1))
