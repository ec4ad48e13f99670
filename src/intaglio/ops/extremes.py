"""Positions of extremes, as composite ops."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Interned
from intaglio.ops import elementwise as ops
from intaglio.ops.composite import Composite
from intaglio.ops.memory import const, iota
from intaglio.ops.movement import expand, reshape
from intaglio.ops.reduce import reduce, repeated

if TYPE_CHECKING:
    from intaglio.ir.node import Node, Result


@dataclass(frozen=True, slots=True, eq=False)
class Position(Interned, Composite):
    """The least place along an axis where a value is the extreme of a kind, or NaN."""

    kind: str
    axis: int
    name: ClassVar[str] = "position"

    def infer(self, x: Node) -> Result:
        """An integer for each line along the axis."""
        return dtypes.int64, x.shape[: self.axis] + x.shape[self.axis + 1 :]

    def written_out(self, x: Node) -> Node:
        """The least of the places where x is what it is reduced to."""
        n = x.shape[self.axis]
        line = tuple([n if a == self.axis else 1 for a in range(x.rank)])
        return first_place(self.kind, x, (self.axis,), expand(reshape(iota(n), line), x.shape), n)


position: Final = cache(Position)  # by kind and axis


def first_place(kind: str, x: Node, axes: tuple[int, ...], places: Node, never: int) -> Node:
    """The least of given places along axes where a value is the extreme of a kind, or NaN; each is below `never`."""
    hit = ops.eq(x, repeated(reduce(kind, x, axes), x, axes))
    if x.dtype.is_float:
        hit = ops.or_(hit, ops.ne(x, x))
    return reduce("min", ops.where(hit, places, const(dtypes.int64, never)), axes)
