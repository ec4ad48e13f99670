"""Stores of few rows that run together for one sheet at a time: each as in a kernel of its own, scratch in between."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.lower.binding import Binding
from intaglio.lower.blocks import written_over
from intaglio.lower.columns import by_reductions
from intaglio.lower.index import number
from intaglio.lower.loops import CHUNK, CHUNKS
from intaglio.lower.members import members_of
from intaglio.ops.scratch import SHEET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node, Shape
    from intaglio.lower.blocks import Member
    from intaglio.lower.nests import Nests
    from intaglio.lower.values import Values


class BySheets:
    """The stores of one `Rows` of sheets being lowered.

    Attributes:
        over: Once run, the scratch that takes the bytes of other scratch: that of each.
    """

    def __init__(self, nests: Nests, values: Values, stores: Sequence[Node], lead: int) -> None:
        """Read off the sheets.

        Args:
            lead: How many axes lead to a sheet.
        """
        self.nests: Final = nests
        self.values: Final = values
        self.stores: Final = stores
        self.sheets: Final = stores[-1].src[0].shape[:lead]
        self.inner: Final = [s.src[0].shape[lead:] for s in stores]  # the shapes of a sheet of each
        self.over: Final[dict[Node, Node]] = {}

    @property
    def sizes(self) -> list[int]:
        """The extents by which a kernel is named."""
        return [math.prod(self.sheets), *(n for shape in self.inner for n in shape if n != 1)]

    def run(self, *, split: bool) -> None:
        """The loops. `split`: they are all that their kernel does, so threads may share them."""
        nests, emitter = self.nests, self.nests.emitter
        total = math.prod(self.sheets)
        sheet = self.values.scalarize().range(total)
        emitter.pinned |= emitter.bit(sheet)
        members = self._members(sheet)
        over = written_over(members, sheet, self.values.index)
        self.over.update((members[a].place.pointer, members[b].place.pointer) for a, b in over.items())
        begin, end = self._chunk(sheet, members) if split and emitter.target.threads > 1 else (number(0), sheet.src[0])

        def one(_: Node, carried: list[Node]) -> list[Node]:
            for member in members:
                for places, ranges in by_reductions(emitter, [member.place], member.ranges):
                    nests.inside(places, ranges)
            return carried

        around, nests.turns = nests.turns, total
        emitter.loop(begin, end, 1, (), one, lambda f, c: (sheet, Binding(f, c)))
        nests.turns = around

    def _chunk(self, sheet: Node, members: list[Member]) -> tuple[Node, Node]:
        """The sheets that one call runs: all where there is little to do, one where that varies."""
        nests, total = self.nests, math.prod(self.sheets)
        work = total * sum(nests.work([m.place], m.ranges) for m in members)
        if self.values.index.varies(total) or total == 1 or work < 2 * CHUNK:
            return number(0), sheet.src[0]
        if self.values.index.varies(work):
            return nests.loops.chunk_of(total, -(-total // CHUNKS))
        return nests.loops.chunk(total, work, 1)

    def _members(self, sheet: Node) -> list[Member]:
        """The stores, with scratch for one sheet."""
        own = tuple(self.values.index.unflatten(sheet, self.sheets))
        return members_of(self.values, self.stores, own, own, scalarize=self.values.scalarize, room=self._room)

    def _room(self, dtype: DType, shape: Shape) -> int:
        """How many elements the scratch of a sheet has: where they vary, as many as may be."""
        size = math.prod(shape)
        return SHEET // dtype.itemsize if self.values.index.varies(size) else size
