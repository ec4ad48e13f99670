"""Journal entries: the pending writes of a storage, ordered across storages by one counter."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from intaglio.ir.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node
    from intaglio.storage.reroll import Sequential
    from intaglio.storage.skeleton import Hole, Skeleton
    from intaglio.storage.storage import Storage
    from intaglio.storage.writes import Item

ROOM: Final = 16  # the distance of the numbers of writes: those between are for copies of what a write overwrites
next_sequence: Final = itertools.count(ROOM, ROOM).__next__


class Numbers(dict[int, "int | float | bool"]):
    """The numbers of a segment that may grow past the bound on bytes: it says so once there are `limit` of them."""

    __slots__ = ("_full", "_limit")

    def __init__(self, limit: int, full: Callable[[], None]) -> None:
        super().__init__()
        self._limit: Final = limit
        self._full: Final = full

    def __setitem__(self, position: int, number: float) -> None:
        super().__setitem__(position, number)
        if len(self) >= self._limit:
            self._full()


@dataclass(slots=True)
class Segment:
    """A run of numbers written to single elements of one dtype, with nothing read between: place -> number.

    Places are counted in elements from the storage's first, so that all its views share them. Later numbers for one
    place replace earlier ones.
    """

    sequence: int
    dtype: DType
    numbers: dict[int, int | float | bool]
    only: View | None  # what all of them are written through, if it is one view
    low: int  # bytes that they are in
    high: int

    @classmethod
    def through(cls, sequence: int, view: View, numbers: dict[int, int | float | bool]) -> Segment:
        """A segment of numbers written through a view."""
        return cls(sequence, view.dtype, numbers, view, *view.byte_bounds())

    @property
    def view(self) -> View:
        """What all places are in: the only view written through, or the elements from the first to the last."""
        if self.only is not None:
            return self.only
        return View.contiguous(self.dtype, ((self.high - self.low) // self.dtype.itemsize,), self.low)

    def join(self, view: View) -> None:
        """Have room for numbers written through another view of the dtype."""
        if view != self.only:
            self.only = None
            low, high = view.byte_bounds()
            self.low, self.high = min(low, self.low), max(high, self.high)


@dataclass(slots=True)
class Pen:
    """The way of one view into an open segment, which handles keep: all that the write of one number asks of them.

    The place of an element is `start` and, for each position of an axis, what the axis steps by. Views of one axis and
    of two have theirs by name, so that writes in loops need no loop over the axes.
    """

    numbers: dict[int, int | float | bool]
    length: int  # how many positions the only axis of the view has; 0 for another rank
    rows: int  # how many the axes of a view of two have; 0 for another rank
    columns: int
    start: int
    step: int
    inner: int
    direct: bool  # whether `start` is 0 and the last axis steps by 1, as in a whole storage
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    lowest: int  # integers from here to `highest` fit, without asking the dtype
    highest: int
    floating: bool  # whether floats may be written as they are

    @classmethod
    def of(cls, view: View, numbers: dict[int, int | float | bool]) -> Pen:
        """The way of a view into the numbers of an open segment."""
        dtype, shape, strides, offset = view
        start, steps = offset // dtype.itemsize, tuple(stride // dtype.itemsize for stride in strides)
        length = shape[0] if len(shape) == 1 else 0
        rows, columns = shape if len(shape) == 2 else (0, 0)
        step, inner = (*steps, 0, 0)[:2]
        direct = start == 0 and steps[-1:] == (1,)
        low, high = plain_range(dtype)
        return cls(numbers, length, rows, columns, start, step, inner, direct, shape, steps, low, high, dtype.is_float)

    def close(self) -> None:
        """Have no positions and let go of the numbers: who kept the pen writes no more with it."""
        self.length = self.rows = 0
        self.shape = ()
        self.numbers = {}


INTEGERS: Final = frozenset({int, *(np.dtype(code).type for code in np.typecodes["AllInteger"])})  # name a position


def element_at(index: Any, shape: tuple[int, ...], steps: tuple[int, ...], place: int) -> int | None:
    """Where the one element lies that integers name, from the place of the first and each axis's step.

    None where they name more than an element, or are out of range.
    """
    parts: tuple[Any, ...] = index if index.__class__ is tuple else (index,)
    if len(parts) != len(shape):
        return None
    for part, n, step in zip(parts, shape, steps):  # noqa: B905 -- of one length; asking takes longer than adding
        if type(part) not in INTEGERS:
            return None
        i = int(part)
        if i < 0:
            i += n
        if not 0 <= i < n:
            return None
        place += i * step
    return place


DIGIT: Final = (1 << 30) - 1  # CPython compares integers of one digit at once, and longer ones ten times as slowly


def plain_range(dtype: DType) -> tuple[int, int]:
    """The first and last of the integers that fit a dtype without further question (none for bool)."""
    if dtype.is_bool:
        return 0, -1
    if dtype.is_float:
        return -DIGIT, DIGIT
    return int(max(dtype.min, -DIGIT)), int(min(dtype.max, DIGIT))


@dataclass(slots=True)
class Entry:
    """One write of a node to a view, or, with indices, to computed positions of the view's leading axes."""

    sequence: int
    view: View
    value: Node
    indices: tuple[Node, ...] = ()
    combine: str = "set"
    site: tuple[str, int] | None = None


@dataclass(eq=False, slots=True, weakref_slot=True)
class Elements:
    """Scalar expressions written to single elements, one after the other with no other write to the storage between.

    They lie in one flat list, a row each: the holes, the skeleton, the byte offset and the number of the write. So a
    write makes no object that the garbage collector must look at, and like rows are analysed by columns. A row is added
    by one step of the interpreter, which no other thread can see half done.
    """

    dtype: DType
    first: int  # the number of the first write
    rows: list[Any]  # holes, skeletons, offsets and numbers

    @property
    def sequence(self) -> int:
        """The number of the last write."""
        return self.rows[-1]

    def ends(self) -> Sequence[int]:
        """Where each row ends."""
        rows = self.rows
        skeleton: Skeleton = rows[-3]
        width = skeleton.width + REST
        if len(rows) % width == 0 and rows[width - REST :: width].count(skeleton) == len(rows) // width:
            return range(width, len(rows) + 1, width)  # by induction from the last, all rows are of its skeleton
        found: list[int] = []
        end = len(rows)
        while end:
            found.append(end)
            end -= rows[end - REST].width + REST
        found.reverse()
        return found

    def sources(self) -> set[Storage]:
        """The storages that the expressions read."""
        ends = self.ends()
        skeletons: set[Skeleton] = {self.rows[end - REST] for end in (ends[-1:] if isinstance(ends, range) else ends)}
        return {source for skeleton in skeletons for source in skeleton.storages}

    def cut(self, stamps: Sequence[int]) -> list[Elements]:
        """The same writes in pieces, none with writes both up to one of the stamps (ascending) and past it."""
        inside = stamps[bisect_left(stamps, self.first) : bisect_left(stamps, self.sequence)]
        if not inside:
            return [self]
        ends = self.ends()
        sequences = self.sequences()
        bounds = sorted({0, len(self.rows), *(ends[bisect_right(sequences, stamp) - 1] for stamp in inside)})
        pieces = [self.rows[start:stop] for start, stop in itertools.pairwise(bounds)]
        firsts = [self.first, *(sequences[bisect_right(sequences, piece[-1])] for piece in pieces[:-1])]
        return [Elements(self.dtype, first, rows) for first, rows in zip(firsts, pieces, strict=True)]

    def sequences(self) -> list[int]:
        """The number of each write."""
        return self._column(1)

    def offsets(self) -> list[int]:
        """The byte offset of each write."""
        return self._column(2)

    def _column(self, place: int) -> list[int]:
        """What stands so many places before the end of each row."""
        ends = self.ends()
        if isinstance(ends, range):
            return self.rows[ends.step - place : ends[-1] : ends.step]
        return [self.rows[end - place] for end in ends]

    def overlaps(self, view: View) -> bool:
        """Whether one of the writes overlaps a view."""
        low, high = view.byte_bounds()
        low -= self.dtype.itemsize
        return any(View(self.dtype, (), (), at).overlaps(view) for at in self.offsets() if low < at < high)

    def until(self, stamp: int) -> Elements:
        """The writes up to a stamp, apart from the log, to which others may still be added."""
        return Elements(self.dtype, self.first, [*self.rows]).cut((stamp,))[0]

    def last_reader(self, stamps: Mapping[Storage, int]) -> int:
        """The number of the last write past a storage's stamp that reads that storage as it was before; else -1."""
        found = -1
        if self.sequence <= min(stamps.values()):
            return found
        for skeleton, sequences, _, columns in self.by_skeleton():
            for step, hole in skeleton.pattern().reads:
                stamp = stamps.get(step.storage)
                if stamp is None:
                    continue
                for place in range(len(sequences) - 1, bisect_right(sequences, max(stamp, found)) - 1, -1):
                    if columns[hole + 1][place] < stamp:
                        found = sequences[place]
                        break
        return found

    def drop(self, stamp: int) -> None:
        """Let go of the writes up to a stamp, which is one before the last."""
        _, rest = Elements(self.dtype, self.first, [*self.rows]).cut((stamp,))
        self.first = rest.first
        del self.rows[: len(self.rows) - len(rest.rows)]

    def by_skeleton(self) -> list[tuple[Skeleton, list[int], list[int], list[list[Hole]]]]:
        """The writes of each skeleton, in order: their numbers, offsets and holes by column."""
        ends = self.ends()
        if isinstance(ends, range):
            return [_columns(self.rows, ends.step)]
        found: dict[Skeleton, list[Any]] = {}
        start = 0
        for end in ends:
            row = self.rows[start:end]
            found.setdefault(row[-REST], []).extend(row)
            start = end
        return [_columns(rows, skeleton.width + REST) for skeleton, rows in found.items()]


REST: Final = 3  # what a row has after its holes


def _columns(rows: list[Any], width: int) -> tuple[Skeleton, list[int], list[int], list[list[Hole]]]:
    """Rows of one skeleton by column."""
    holes = [rows[hole::width] for hole in range(width - REST)]
    return rows[-3], rows[width - 1 :: width], rows[width - 2 :: width], holes


@dataclass(slots=True)
class LoopEntry:
    """A sequential loop of writes to one storage that is rolled already, and reads that storage alone."""

    sequence: int
    view: View  # all of the storage
    loop: Sequential


@dataclass(slots=True)
class GatherEntry:
    """A write of what many reads of one shape see, one after the other."""

    sequence: int
    view: View  # their number, then their shape
    reads: list[Node]


AnyEntry: TypeAlias = Segment | Entry | Elements | LoopEntry | GatherEntry


def first_of(entry: AnyEntry | Item) -> int:
    """The number of an entry's first write."""
    return entry.first if isinstance(entry, Elements) else entry.sequence
