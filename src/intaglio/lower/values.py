"""What the statements of one kernel compute, as expressions over ranges, and where it goes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from intaglio.core.errors import InternalError
from intaglio.lower.decompose import simplest
from intaglio.lower.groups import written_in
from intaglio.lower.loops import Place
from intaglio.lower.merge import merge_folds
from intaglio.lower.ranges import Scalarize
from intaglio.ops.memory import Local, Param, Window

if TYPE_CHECKING:
    from intaglio.ir.node import Node
    from intaglio.lower.index import Index


class Values:
    """Turns the tensors of statements into expressions; all of a kernel share its index arithmetic and axes.

    Attributes:
        axes: The numbers of ranges and scratch.
        statement: The number of the statement at hand.
    """

    def __init__(self, ast: Node, index: Index) -> None:
        self.index: Final = index
        self.axes: Final = itertools.count()
        self.statement: int = 0
        self._written: Final = written_in(ast)

    def scalarize(self) -> Scalarize:
        """Expressions for one more statement: loads of memory that the kernel writes, and of scratch, are its own."""
        self.statement += 1
        epoch = self.statement

        def of(pointer: Node) -> int:
            op = pointer.op
            return epoch if isinstance(op, Local) or (isinstance(op, Param) and op.group in self._written) else 0

        return Scalarize(self.index, self.axes, of)

    def at(self, scalar: Scalarize, value: Node, indices: tuple[Node, ...]) -> Node:
        """An element of a value, by primitive ops, its reductions over as few ranges as can be."""
        return self.decomposed(scalar.at(value, indices))

    def decomposed(self, root: Node) -> Node:
        """An expression by primitive ops, its reductions over as few ranges as can be."""
        return merge_folds(simplest(root, in_parts=self.index.sized), self.index)

    def target(self, window: Node, indices: tuple[Node, ...], scalar: Scalarize) -> tuple[Node, Node]:
        """The pointer and element index of a window's element."""
        op = window.op
        if not isinstance(op, Window):
            raise InternalError(f"lower: a store into {op.name}")
        item = op.view.dtype.itemsize
        parts = [(i, s // item) for i, s in zip(indices, op.view.strides, strict=True)]
        place = self.index.sum(parts, op.view.offset // item)
        pointer, *offsets = window.src
        for offset in offsets:
            place = self.index.add(place, self.index.div(self.at(scalar, offset, ()), item))
        return pointer, place

    def place(self, store: Node, indices: tuple[Node, ...], scalar: Scalarize) -> Place:
        """One element of a store: where, and what."""
        pointer, index = self.target(store.src[0], indices, scalar)
        return Place(pointer, index, self.at(scalar, store.src[1], indices))
