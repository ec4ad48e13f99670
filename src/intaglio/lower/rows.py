"""Stores that run together for some rows at a time: their blocks, and scratch for the rows of one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.lower.blocks import Blocks, Sheets, block_rows, written_over
from intaglio.lower.members import members_of
from intaglio.lower.rescale import Rescaled, Stores, are_long, row_block
from intaglio.ops.rescaling import exponentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.ir.node import Node
    from intaglio.lower.blocks import Member
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
        scalar = self.values.scalarize()
        blocks = self._blocks(scalar, height)
        members = members_of(
            self.values,
            self.stores,
            blocks.own,
            blocks.starts,
            scalarize=lambda: scalar,
            room=lambda _, shape: height * math.prod(shape),
        )
        return members, blocks
