"""Histories: the writes of a storage as versions, so that gradients flow through them and the views that read them."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.ir.view import View
from intaglio.storage.journal import Elements, next_sequence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node
    from intaglio.storage.skeleton import Hole, Skeleton
    from intaglio.storage.storage import Storage


@dataclass(slots=True)
class Record:
    """One write: where, and the value if gradients flow to it (else what it covers gets none).

    Where it is of other elements than the history's, it may be of some of them: those that a mask of the view's shape
    has.
    """

    sequence: int
    view: View
    value: Node | None
    indices: tuple[Node, ...] = ()
    mask: Node | None = None


Past: TypeAlias = Record | Elements


class Tracking:
    """Whether this process has tracked anything: as long as it has not, no operation looks at what its operands are."""

    __slots__ = ("begun",)

    def __init__(self) -> None:
        self.begun: bool = False


tracking: Final = Tracking()  # an object: an attribute of a class takes several times as long to find


@dataclass(eq=False, slots=True, weakref_slot=True)
class History:
    """What a tracked storage was: version 0, and the writes since. A leaf accumulates; others pass on.

    `began` is a number between those of the writes (of any storage) before and after it began. Scalar expressions that
    were written to single elements are rows. Rows hold no reads: of what they read, `kept` are the reads whose bytes
    have been overwritten since. Its elements are of one dtype, and the first of them begins after the bytes of `rest`.
    """

    dtype: DType
    base: Node | None
    began: int
    leaf: bool = False
    rest: int = 0
    freed: bool = False  # whether tracked writes or a tracked base were let go by a backward sweep
    records: list[Past] = field(default_factory=list)  # in order
    kept: dict[Node, None] = field(default_factory=dict)

    def own(self, view: View) -> View | None:
        """A view of its elements as one of their flat cotangent; None if the view is of others."""
        if view.dtype is not self.dtype or not is_even(view, self.rest):
            return None
        return View(view.dtype, view.shape, view.strides, view.offset - self.rest) if self.rest else view

    def add_element(self, skeleton: Skeleton, holes: tuple[Hole, ...], offset: int, sequence: int) -> None:
        """Note the write of a tracked scalar expression to one element."""
        row = (*holes, skeleton, offset, sequence)
        last = self.records[-1] if self.records else None
        if isinstance(last, Elements):
            again = last.rows[-3] is skeleton
            last.rows += row
            if again:
                return
        else:
            self.records.append(Elements(self.dtype, sequence, [*row]))
        for source in skeleton.storages:
            followers = source.followers
            if followers is None:
                followers = source.followers = weakref.WeakSet()
            followers.add(self)

    def between(self, start: int, stop: int) -> Iterator[tuple[Past, int | None]]:
        """The writes after one number and up to another, each with the number of the write before it."""
        place = bisect_right(self.records, start, key=lambda record: record.sequence)
        for number in range(place, len(self.records)):
            record = self.records[number]
            before = self.records[number - 1].sequence if number else None
            if isinstance(record, Record):
                if record.sequence > stop:
                    return
                yield record, before
                continue
            for piece in record.cut((start, stop)):
                if start < piece.first and piece.sequence <= stop:
                    yield piece, before

    def newest(self, stamp: int) -> int:
        """The number of the last write up to a stamp, 0 if there is none."""
        place = bisect_right(self.records, stamp, key=lambda record: record.sequence)
        if place < len(self.records):
            record = self.records[place]
            if isinstance(record, Elements) and record.first <= stamp:
                sequences = record.sequences()
                return sequences[bisect_right(sequences, stamp) - 1]
        return self.records[place - 1].sequence if place else 0


def history_of(storage: Storage) -> History | None:
    """The history of a storage, if gradients flow through it."""
    found = storage.history
    return found if isinstance(found, History) else None


def is_even(view: View, rest: int) -> bool:
    """Whether the elements of a view lie whole elements apart, from a number of bytes on."""
    size = view.dtype.itemsize
    apart = any(step % size for extent, step in zip(view.shape, view.strides, strict=True) if extent > 1)
    return not apart and not (view.offset - rest) % size


def track(storage: Storage, dtype: DType, *, leaf: bool = False, base: Node | None = None, offset: int = 0) -> History:
    """Begin the history of a storage, of elements like the one at an offset."""
    found = history_of(storage)
    if found is None:
        tracking.begun = True
        found = History(dtype, base, next_sequence(), leaf, offset % dtype.itemsize)
        storage.history = found
        storage.close()
    elif leaf:
        found.leaf = True
    return found
