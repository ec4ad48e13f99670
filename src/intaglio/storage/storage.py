"""Storages: the mutable runs of bytes that tensors share, each with the log of its pending writes."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import OverlapError, ReadOnlyError, ShapeError
from intaglio.ir.node import Node, make
from intaglio.ir.view import View
from intaglio.ops.memory import BufferRef, Read
from intaglio.storage.journal import AnyEntry, ElementEntry, Entry, GatherEntry, LoopEntry, Segment, next_sequence

if TYPE_CHECKING:
    from intaglio.core.dtypes import DType
    from intaglio.storage.reroll import Sequential
    from intaglio.storage.skeleton import Hole, Skeleton

RECENT: Final = 8  # views whose last read is remembered, so that equal reads are one node
pending: Final[weakref.WeakSet[Storage]] = weakref.WeakSet()  # storages with a log that is not empty


class Storage:
    """One mutable run of bytes on a device.

    `base` is version 0 while it is a computed value not yet in memory; `ref` names the bytes once they are. With
    neither, the contents are undefined (and read as zeros). Entries of `log` are pending, in program order.
    """

    __slots__ = (
        "__weakref__",
        "base",
        "device",
        "history",
        "live",
        "log",
        "nbytes",
        "open",
        "origin",
        "pinned",
        "read_only",
        "recent",
        "ref",
        "sequence",
        "skeletons",
        "sweep",
    )

    def __init__(
        self,
        nbytes: int,
        device: str,
        *,
        base: Node | None = None,
        ref: BufferRef | None = None,
        read_only: bool = False,
    ) -> None:
        self.nbytes: Final = nbytes
        self.device: Final = device
        self.base: Node | None = base
        self.ref: BufferRef | None = ref
        self.read_only: bool = read_only
        self.pinned: bool = False
        self.origin: weakref.ref[Node] | None = None  # the computed value that the bytes are, until they are written
        self.history: object | None = None
        self.log: list[AnyEntry] = []
        self.open: Segment | None = None
        self.sequence: int = 0
        self.live: list[weakref.ref[Node]] = []
        self.sweep: int = 64
        self.recent: dict[View, weakref.ref[Node]] = {}
        self.skeletons: set[Skeleton] = set()

    def read(self, view: View) -> Node:
        """The value of a view as of now: one node for as long as no write that overlaps the view comes between."""
        self.open = None
        found = self.recent.get(view)
        if found is not None:
            node = found()
            if node is not None:
                return node
        node = make(Read(self, view, self.sequence))
        reference = weakref.ref(node)
        if len(self.recent) >= RECENT:
            self.recent.clear()
        self.recent[view] = reference
        self.live.append(reference)
        if len(self.live) > self.sweep:
            self.live = [r for r in self.live if r() is not None]
            self.sweep = max(64, 2 * len(self.live))
        return node

    def touch(self) -> None:
        """Begin a new moment: the bytes may have been changed from outside."""
        self.recent.clear()
        self.sequence = next_sequence()

    def read_past(self, view: View, stamp: int) -> Node:
        """The value of a view as of an earlier stamp, whose bytes are still there or pending."""
        if stamp == self.sequence:
            return self.read(view)
        node = make(Read(self, view, stamp))
        self.live.append(weakref.ref(node))
        return node

    def write(self, view: View, value: Node, site: tuple[str, int] | None = None) -> None:
        """Append the write of a value of the view's shape and dtype."""
        if value.shape != view.shape:
            raise ShapeError(f"write: value and target must have one shape; value {value.shape}, target {view.shape}.")
        self._append(view, Entry(0, view, value, site=site))

    def write_at(
        self,
        view: View,
        indices: tuple[Node, ...],
        value: Node,
        combine: str = "set",
        site: tuple[str, int] | None = None,
    ) -> None:
        """Append the write of values at computed positions of the view's leading axes (checked, not negative)."""
        self._append(view, Entry(0, view, value, indices, combine, site))

    def _append(self, view: View, entry: Entry) -> None:
        """Check the target and append."""
        self.check_writable(view)
        if entry.value.size == 0 or view.size == 0:
            return
        self.open = None
        entry.sequence = self._stamp()
        self._forget(view)
        self.log.append(entry)

    def write_element(self, dtype: DType, offset: int, skeleton: Skeleton, holes: tuple[Hole, ...]) -> None:
        """Append the write of a scalar expression to one element."""
        self.open = None
        sequence = self._stamp()
        if self.recent:
            self._forget(View(dtype, (), (), offset))
        self.skeletons.add(skeleton)
        self.log.append(ElementEntry(sequence, dtype, offset, skeleton, holes))

    def write_loop(self, loop: Sequential) -> None:
        """Append a loop of writes to this storage, which reads no other."""
        view = View.contiguous(dtypes.uint8, (self.nbytes,))
        self.open = None
        self._forget(view)
        self.log.append(LoopEntry(self._stamp(), view, loop))

    def write_gathered(self, view: View, reads: list[Node]) -> None:
        """Append a write of what many reads see, along the view's first axis."""
        self.open = None
        self._forget(view)
        self.log.append(GatherEntry(self._stamp(), view, reads))

    def segment(self, view: View) -> Segment:
        """A fresh open segment for numbers written through `view`; it closes at the next read or other write."""
        self.check_writable(view)
        dtype = view.dtype
        floating = dtype.is_float
        lowest, highest = (0, -1) if floating or dtype.is_bool else (dtype.min, dtype.max)
        made = Segment(self._stamp(), view, {}, lowest, highest, floating)
        self._forget(view)
        self.log.append(made)
        self.open = made
        return made

    def check_writable(self, view: View) -> None:
        """Raise where a write through the view is an error."""
        if self.read_only:
            raise ReadOnlyError("write: the tensor must be writable; it shares read-only memory. Write to a .clone()?")
        if view.has_internal_overlap():
            raise OverlapError(
                "write: each position of the target must have bytes of its own; the view "
                f"of shape {view.shape} with strides {view.strides} (bytes) repeats some. Write to a .clone()?"
            )

    def _stamp(self) -> int:
        """The number of the write that is being appended."""
        if not self.log:
            pending.add(self)
        self.sequence = sequence = next_sequence()
        return sequence

    def _forget(self, view: View) -> None:
        """Drop the remembered reads that the coming write overlaps."""
        for known in list(self.recent):
            if known.overlaps(view):
                del self.recent[known]
