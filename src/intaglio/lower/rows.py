"""Stores that run together for some rows at a time: their blocks, and scratch for the rows of one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, make, substitute, walk
from intaglio.lower.blocks import Blocks, Member, Sheets, block_rows, written_over
from intaglio.lower.index import number
from intaglio.lower.loops import Place
from intaglio.lower.rescale import Rescaled, Stores, are_long, row_block
from intaglio.ops.loop import Range
from intaglio.ops.memory import Load, Local, load
from intaglio.ops.rescaling import exponentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.lower.nests import Nests
    from intaglio.lower.ranges import Scalarize
    from intaglio.lower.values import Values
    from intaglio.ops.rescaling import Exponentials


class ByRows:
    """The stores of one `Rows` being lowered.

    Attributes:
        over: Once run, the scratch that takes the bytes of other scratch: that of each.
    """

    def __init__(self, nests: Nests, values: Values, stores: Sequence[Node], lead: int) -> None:
        """Read off the rows.

        Args:
            lead: How many axes the rows have: sheets, and in the last of them the rows of one.
        """
        self.nests: Final = nests
        self.values: Final = values
        self.stores: Final = stores
        self.lead: Final = lead
        *sheets, rows = stores[-1].src[0].shape[:lead]
        self.sheets: Final = tuple(sheets)
        self.rows: Final = rows
        self.inner: Final = [s.src[0].shape[lead:] for s in stores]  # the shapes of a row of each
        self.over: Final[dict[Node, Node]] = {}

    @property
    def sizes(self) -> list[int]:
        """The extents by which a kernel is named."""
        return [*self.sheets, self.rows, *(n for shape in self.inner for n in shape)]

    def run(self, *, split: bool) -> None:
        """The loops. `split`: they are all that their kernel does, so threads may share them."""
        makers, values = self.stores[:-1], [n.src[1] for n in self.stores]
        found = exponentials([n.src[0] for n in makers], values, self.lead)
        if found is not None and are_long(found, self.nests.emitter.target):
            self._rescaled(found, split=split)
        else:
            self._whole(split=split)

    def _rescaled(self, found: Exponentials, *, split: bool) -> None:
        """Blocks of rows whose columns go by in blocks as well."""
        nests, values = self.nests, self.values
        scalar = values.scalarize()
        height = row_block(found, math.prod(self.sheets), self.rows, nests.emitter.target)
        blocks = self._blocks(scalar, height)
        made = Stores(self.stores, found, scalar, values)
        Rescaled(nests.loops, values.axes, blocks, made, nest=nests.inside, column=nests.vector_range).run(split=split)

    def _whole(self, *, split: bool) -> None:
        """Blocks of whole rows, of which more fit where scratch takes the bytes of other scratch."""
        nests, index, level2 = self.nests, self.values.index, self.nests.emitter.target.level2
        lines = [math.prod(n) * s.src[0].dtype.itemsize for n, s in zip(self.inner, self.stores[:-1], strict=False)]
        members, blocks = self._members(block_rows(self.rows, sum(lines), level2))
        over = written_over(members, blocks.row, index)
        height = block_rows(self.rows, sum(lines) - sum(lines[k] for k in over), level2)
        members, blocks = self._members(height)
        self.over.update((members[a].place.pointer, members[b].place.pointer) for a, b in over.items())
        axes = self.values.axes
        Blocks(nests.loops, axes, blocks, members, nest=nests.inside, column=nests.vector_range).run(split=split)

    def _blocks(self, scalar: Scalarize, height: int) -> Sheets:
        """The ranges of sheets and of blocks of their rows."""
        index = self.values.index
        extents = math.prod(self.sheets), self.rows - height + 1, height
        sheet, first, row = (scalar.range(n) for n in extents)
        own = *index.unflatten(sheet, self.sheets), index.add(first, row)
        return Sheets(sheet, first, row, self.rows, own, (*own[:-1], first))

    def _members(self, height: int) -> tuple[list[Member], Sheets]:
        """The stores, with scratch for a block of so many rows; and where the blocks are."""
        values = self.values
        scalar = values.scalarize()
        blocks = self._blocks(scalar, height)
        scratch: dict[Node, tuple[Node, Node, int]] = {}  # by what is of all rows: that of some, its first place, epoch
        members: list[Member] = []
        for store, shape in zip(self.stores, self.inner, strict=True):
            rest = [scalar.range(n) if n != 1 else number(0) for n in shape]
            place = values.place(store, (*blocks.own, *rest), scalar)
            loads = [n for n in walk((place.value,)) if isinstance(n.op, Load) and n.src[0] in scratch]
            (value,) = substitute((place.value,), {n: self._in_scratch(n, *scratch[n.src[0]]) for n in loads})
            pointer, index = place.pointer, place.index
            if isinstance(pointer.op, Local):
                starts = *blocks.starts, *(number(0) for _ in rest)
                _, base = values.target(store.src[0], starts, scalar)
                held = make(Local(next(values.axes), pointer.op.of, height * math.prod(shape)))
                scratch[pointer] = held, base, 1 + len(members)
                pointer, index = held, values.index.sum([(index, 1), (base, -1)])
            members.append(Member(Place(pointer, index, value), [r for r in rest if isinstance(r.op, Range)]))
        return members, blocks

    def _in_scratch(self, node: Node, held: Node, base: Node, epoch: int) -> Node:
        """A load of what is known of all rows, from where it is kept of some."""
        return load(held, self.values.index.sum([(node.src[1], 1), (base, -1)]), *node.src[2:], epoch=epoch)
