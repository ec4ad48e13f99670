"""Storages: the mutable runs of bytes that tensors share, each with the log of its pending writes."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import OverlapError, ReadOnlyError, ShapeError
from intaglio.core.locks import Level, across_forks
from intaglio.engine import realize as engine
from intaglio.ir.view import View
from intaglio.ops.memory import BufferRef, read
from intaglio.storage.journal import (
    AnyEntry,
    Elements,
    Entry,
    GatherEntry,
    LoopEntry,
    Numbers,
    Pen,
    Segment,
    first_of,
    next_sequence,
)
from intaglio.storage.skeleton import number_skeleton

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node
    from intaglio.storage.reroll import Sequential
    from intaglio.storage.skeleton import Hole, Skeleton

SHORT: Final = 32  # numbers up to which a segment is rolled with the expressions around it
PENS: Final = 64  # views that have a pen at a time: a bound, since loops make a view for each row
SWEEP: Final = 16  # reads of a storage from which dead ones are looked for: those that live are asked for at each flush
RECENT: Final = 8  # views whose last read is remembered, so that equal reads are one node
pending: Final[weakref.WeakSet[Storage]] = weakref.WeakSet()  # storages with a log that is not empty
_sweeping: Final = across_forks(threading.Lock(), Level.LEAF)  # held while dead reads are dropped


class Glance:
    """The current value of a view, for the handle that asked for it: none any more once a write overlaps the view."""

    __slots__ = ("__weakref__", "node")

    def __init__(self, node: Node) -> None:
        self.node: Node | None = node


class Reads:
    """The reads of a storage, in their nodes' and handles' lives. Threads may add some at once.

    Attributes:
        recent: The last views that were read, so that equal reads are one node.
        glances: What handles keep of those.
        live: All reads, some of them dead. It grows at its end, and shrinks before that when it is looked through.
        sweep: How many `live` may have until it is looked through for dead ones.
    """

    __slots__ = ("glances", "live", "recent", "sweep")

    def __init__(self) -> None:
        self.recent: Final[dict[View, weakref.ref[Node]]] = {}
        self.glances: Final[dict[View, weakref.ref[Glance]]] = {}
        self.live: Final[list[weakref.ref[Node]]] = []
        self.sweep: int = SWEEP

    def add(self, node: Node) -> weakref.ref[Node]:
        """Note a read."""
        reference = weakref.ref(node)
        self.live.append(reference)
        if len(self.live) > self.sweep:
            self._forget_dead()
        return reference

    def _forget_dead(self) -> None:
        """Drop dead reads; what is added meanwhile comes after those that are looked at, and stays."""
        if not _sweeping.acquire(blocking=False):  # another thread is at it, or this one, below
            return
        try:
            seen = [*self.live]
            self.live[: len(seen)] = [r for r in seen if r() is not None]
            self.sweep = max(SWEEP, 2 * len(self.live))
        finally:
            _sweeping.release()

    def drop(self, view: View) -> None:
        """Forget a recent one: first from where it is found, since another thread may just have found it."""
        self.recent.pop(view, None)
        known = self.glances.pop(view, None)
        glance = known() if known is not None else None
        if glance is not None:
            glance.node = None

    def clear(self) -> None:
        """Forget all recent ones."""
        self.recent.clear()
        for view in list(self.glances):
            self.drop(view)


class Storage:
    """One mutable run of bytes on a device.

    `base` is version 0 while it is a computed value not yet in memory; `ref` names the bytes once they are. With
    neither, the contents are undefined (and read as zeros). Entries of `log` are pending, in program order. The
    bytes of a `pinned` storage are shared with the outside: reads are taken and writes applied before the statement
    returns.
    """

    # What most storages never have stands in the class: a flush makes one for each of its results. What loops over
    # elements ask for is each object's own, which is found in a third of the time.
    read_only: bool = False
    path: str | None = None  # of the file that the bytes are, if they are one
    pinned: bool = False
    origin: weakref.ref[Node] | None = None  # the computed value that the bytes are, until they are written
    followers: weakref.WeakSet[object] | None = None  # the histories with rows that read it
    readers: weakref.WeakSet[Storage] | None = None  # those with pending elements that are computed from this
    pens: list[Pen] | None = None  # the ways into the open segment
    tape: Elements | None = None  # the last entry of the log, where more elements may join it
    taped: int = 0  # how many writes of elements are pending
    last: Segment | None = None  # the newest segment, open or not
    numbers: int = 0  # how many numbers those before it hold
    extremes: tuple[int, View, int, int] | tuple[int, View, int, int, int, int, int] | None = None  # as of a stamp, the
    # lowest and highest number of a view; one that is left out, and what they are without it
    skeletons: set[Skeleton] | None = None  # of the pending writes of elements
    _history: object | None = None

    def __init__(
        self,
        nbytes: int,
        device: str,
        base: Node | None = None,
        ref: BufferRef | None = None,
    ) -> None:
        self.nbytes: Final = nbytes
        self.device: Final = device
        self.base: Node | None = base
        self.ref: BufferRef | None = ref
        self.plain: bool = True  # neither tracked nor pinned: single elements take the fast paths
        self.log: list[AnyEntry] = []
        self.open: Segment | None = None
        self.sequence: int = 0
        self.reads: Reads | None = None  # once there are any

    @property
    def history(self) -> object | None:
        """What gradients need of its past, if it is tracked."""
        return self._history

    @history.setter
    def history(self, history: object | None) -> None:
        self._history = history
        self.plain = history is None and not self.pinned

    def pin(self) -> None:
        """Note that the bytes are shared with the outside from now on."""
        self.close()
        self.pinned = True
        self.plain = False
        self.touch()

    @property
    def stays(self) -> bool:
        """Whether the bytes may not move to another buffer."""
        return self.pinned or self.path is not None

    def read(self, view: View) -> Node:
        """The value of a view as of now: one node for as long as no write that overlaps the view comes between."""
        if self.open is not None:
            self.close()
        reads = self.reads or self._begin_reads()
        recent = reads.recent
        found = recent.get(view)
        if found is not None:
            node = found()
            if node is not None:
                return node
        node = read(self, view, self.sequence)
        if len(recent) >= RECENT:
            reads.clear()
        recent[view] = reads.add(node)
        return node

    def _begin_reads(self) -> Reads:
        """Note reads from now on: two threads may make the first at once."""
        with engine.lock:
            if self.reads is None:
                self.reads = Reads()
            return self.reads

    def living_reads(self) -> list[Node]:
        """The reads of it that are alive."""
        if self.reads is None:
            return []
        return [node for reference in [*self.reads.live] if (node := reference()) is not None]

    def glance(self, view: View) -> Glance:
        """The value of a view as of now, to be asked for again through what this gives."""
        node = self.read(view)
        reads = self.reads or self._begin_reads()
        known = reads.glances.get(view)
        glance = known() if known is not None else None
        if glance is None or glance.node is not node:
            glance = Glance(node)
            reads.glances[view] = weakref.ref(glance)
            if view not in reads.recent:  # a write of another thread came between
                glance.node = None
        return glance

    def touch(self) -> None:
        """Begin a new moment: the bytes may have been changed from outside."""
        self._forget_all()
        self.sequence = next_sequence()

    def read_past(self, view: View, stamp: int) -> Node:
        """The value of a view as of an earlier stamp, whose bytes are still there or pending."""
        if stamp == self.sequence:
            return self.read(view)
        node = read(self, view, stamp)
        (self.reads or self._begin_reads()).add(node)
        return node

    def write(self, view: View, value: Node, site: tuple[str, int] | None = None, name: str = "write") -> None:
        """Append the write of a value of the view's shape and dtype, for a named op."""
        if value.shape != view.shape:
            raise ShapeError(
                f"{name}: value and target must have one shape; value {value.shape}, target {view.shape}. Reshape one?"
            )
        self._append(view, Entry(0, view, value, (), "set", site), name)

    def write_at(
        self,
        view: View,
        indices: tuple[Node, ...],
        value: Node,
        combine: str = "set",
        site: tuple[str, int] | None = None,
        name: str = "write",
    ) -> None:
        """Append the write of values at computed positions of the view's leading axes (checked, not negative)."""
        self._append(view, Entry(0, view, value, indices, combine, site), name)

    def _append(self, view: View, entry: Entry, name: str) -> None:
        """Check the target and append, for a named op."""
        self.check_writable(view, name)
        if 0 in view.shape or 0 in entry.value.shape:
            return
        with engine.lock:  # a flush in another thread takes all writes up to some number
            if self.open is not None:
                self.close()
            self.tape = None
            entry.sequence = self._stamp()
            self._forget(view)
            self.log.append(entry)

    def write_element(self, dtype: DType, offset: int, skeleton: Skeleton, holes: tuple[Hole, ...]) -> None:
        """Append the write of a scalar expression to one element."""
        if self.reads is not None and self.reads.recent:
            self._forget(View(dtype, (), (), offset))
        self.taped += 1
        self.sequence = sequence = next_sequence()
        row = (*holes, skeleton, offset, sequence)
        tape = self.tape
        if tape is not None and tape.dtype is dtype:
            again = tape.rows[-3] is skeleton
            tape.rows += row  # between looking for the tape and this nothing is called, so that no thread takes over
            if again:
                return
        else:
            with engine.lock:
                self.close()
                sequence = self._stamp()
                self.tape = Elements(dtype, sequence, [*holes, skeleton, offset, sequence])
                self.log.append(self.tape)
        if self.skeletons is None or skeleton not in self.skeletons:
            with engine.lock:
                self._pend(skeleton)
                for source in skeleton.storages:
                    if source.readers is None:
                        source.readers = weakref.WeakSet()
                    source.readers.add(self)

    def _pend(self, skeleton: Skeleton) -> None:
        """Note what pending writes of elements are computed by."""
        if self.skeletons is None:
            self.skeletons = set()
        self.skeletons.add(skeleton)

    def write_loop(self, loop: Sequential) -> None:
        """Append a loop of writes to this storage, which reads no other."""
        self._append_rolled(LoopEntry(0, View.contiguous(dtypes.uint8, (self.nbytes,)), loop))

    def write_gathered(self, view: View, reads: list[Node]) -> None:
        """Append a write of what many reads see, along the view's first axis."""
        self._append_rolled(GatherEntry(0, view, reads))

    def _append_rolled(self, entry: LoopEntry | GatherEntry) -> None:
        """Append."""
        with engine.lock:
            self.close()
            self.tape = None
            entry.sequence = self._stamp()
            self._forget(entry.view)
            self.log.append(entry)

    def retire(self, stamp: int) -> None:
        """Let go of the writes up to a stamp, which have been made."""
        self.tape = None  # whoever adds an element from now on adds it to another entry
        log = self.log
        count = 0
        while count < len(log) and log[count].sequence <= stamp:
            count += 1
        del log[:count]
        if not log:
            self.taped = 0
            if self.skeletons is not None:
                for source in {source for skeleton in self.skeletons for source in skeleton.storages}:
                    if source.readers is not None:
                        source.readers.discard(self)
                self.skeletons = None
            pending.discard(self)
        elif isinstance(log[0], Elements) and first_of(log[0]) <= stamp:
            log[0].drop(stamp)
        if self.last is not None:
            segments = [entry for entry in log if isinstance(entry, Segment)]
            self.last = segments.pop() if segments else None
            self.numbers = sum(len(segment.numbers) for segment in segments)
        else:
            self.numbers = 0

    def drop(self, place: int) -> None:
        """Let go of a write that is not the last of the log, as if it had never been asked for."""
        entry = self.log.pop(place)
        if isinstance(entry, Elements):
            self.taped -= len(entry.ends())
        elif isinstance(entry, Segment) and entry is not self.last:
            self.numbers -= len(entry.numbers)
        elif isinstance(entry, Segment):
            before = (known for k in range(place - 1, -1, -1) if isinstance(known := self.log[k], Segment))
            self.last = next(before, None)
            self.numbers -= len(self.last.numbers) if self.last is not None else 0

    def write_number(self, view: View, place: int, value: float, limit: int) -> Pen:
        """Write a number that fits to one place of a view, counted in elements; gives the way to write further ones.

        It goes into the open segment, or a fresh one, which is open until the next read or other write, or until it has
        `limit` numbers. A segment has its first number when it joins the log, where another thread may find it at once.
        """
        self.check_writable(view, "setitem")
        with engine.lock:
            segment = self.open
            if segment is None or segment.dtype is not view.dtype:
                segment = self._open_segment(view, limit)
            segment.join(view)
            self._forget(view)
            pen = Pen.of(view, segment.numbers)
            pens = self.pens
            if pens is not None and len(pens) == PENS:
                self._close_pens()
                pens = None
            if pens is None:
                pens = self.pens = []
            pens.append(pen)
            segment.numbers[place] = value
            if segment is not self.last:
                self.last = segment
                self.log.append(segment)
            if self.open is not segment:  # the number was the last that fits, or another thread reads
                pen.close()
            return pen

    def _open_segment(self, view: View, limit: int) -> Segment:
        """A fresh segment, not yet in the log."""
        self.close()
        self.tape = None
        if self.last is not None:
            self.numbers += len(self.last.numbers)
        small = self.nbytes < limit * view.dtype.itemsize
        numbers: dict[int, int | float | bool] = {} if small else Numbers(limit, _closing(self))
        self.open = Segment.through(self._stamp(), view, numbers)
        return self.open

    def close(self) -> None:
        """Close the open segment: numbers written from now on are later writes."""
        segment = self.open
        if segment is not None:
            self.open = None
            self._close_pens()
            if len(segment.numbers) <= SHORT:
                self._as_elements(segment)

    def _as_elements(self, segment: Segment) -> None:
        """Put a closed short segment among the elements: so all that a loop writes, numbers or not, is rolled."""
        with engine.lock:
            if not self.log or self.log[-1] is not segment:
                return  # a flush in another thread has taken it
            del self.log[-1]
            self.last = None  # `numbers` counts those before it
            skeleton, item = number_skeleton(segment.dtype), segment.dtype.itemsize
            rows: list[Any] = []
            for place, number in segment.numbers.items():
                self.sequence = next_sequence() if rows else segment.sequence
                rows += number, skeleton, place * item, self.sequence
            self.taped += len(segment.numbers)
            self._pend(skeleton)
            before = self.log[-1] if self.log else None
            if isinstance(before, Elements) and before.dtype is segment.dtype:
                before.rows += rows
                self.tape = before
            else:
                self.tape = Elements(segment.dtype, segment.sequence, rows)
                self.log.append(self.tape)

    def _close_pens(self) -> None:
        """Have those who write numbers ask again."""
        pens, self.pens = self.pens, None
        for pen in pens or ():
            pen.close()

    def check_writable(self, view: View, name: str) -> None:
        """Raise where a named op's write through the view is an error."""
        if self.read_only or self.device == "NPY":
            raise self._unwritable(name)
        if view.has_internal_overlap():
            raise OverlapError(
                f"{name}: each position of the target must have bytes of its own; the view "
                f"of shape {view.shape} with strides {view.strides} (bytes) repeats some. Write to a .clone()?"
            )

    def _unwritable(self, name: str) -> ReadOnlyError:
        """The error of a named op that would write bytes that are not to be written."""
        if self.device == "NPY":
            what = 'it is on host arrays. Move it first, with .to("CPU")?'
        elif self.path is not None:
            what = f'{self.path} is open read-only. Write to a copy, .to("CPU")?'
        else:
            what = "it shares read-only memory. Write to a .clone()?"
        return ReadOnlyError(f"{name}: the tensor must be writable; {what}")

    def _stamp(self) -> int:
        """The number of the write that is being appended."""
        if not self.log:
            pending.add(self)
        self.sequence = sequence = next_sequence()
        return sequence

    def _forget(self, view: View) -> None:
        """Drop the remembered reads that the coming write overlaps."""
        reads = self.reads
        if reads is not None:
            for known, node in list(reads.recent.items()):
                if node() is None or known.overlaps(view):
                    reads.drop(known)

    def _forget_all(self) -> None:
        """Drop all remembered reads."""
        if self.reads is not None:
            self.reads.clear()


def _closing(storage: Storage) -> Callable[[], None]:
    """What closes the open segment of a storage, without keeping it alive."""
    reference = weakref.ref(storage)

    def close() -> None:
        found = reference()
        if found is not None:
            found.close()

    return close
