"""Scatters: positions one after the other (the last wins), the axes after them vectorised."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, make
from intaglio.lower.index import number
from intaglio.lower.loops import CHUNK, Place
from intaglio.ops.elementwise import and_, ge, lt
from intaglio.ops.memory import load
from intaglio.ops.reduce import COMBINES

if TYPE_CHECKING:
    from intaglio.lower.nests import Nests
    from intaglio.lower.values import Values


class Scatter:
    """One scatter being lowered.

    Threads share an axis along which no two elements have one place: one that is no index's, or whose index is its
    counter. Each goes through all positions, so that what comes to one place comes in the same order.
    """

    def __init__(self, nests: Nests, values: Values, node: Node, combine: str) -> None:
        """Read off what a `StoreAt` stores, and where."""
        self.nests: Final = nests
        self.loops: Final = nests.loops
        self.emitter: Final = nests.emitter
        target, value, *indices = node.src
        scalar = values.scalarize()
        own = [scalar.range(n) for n in value.shape]
        self.lead: Final = own[: indices[0].rank]  # the axes of the positions
        self.rest: Final = own[indices[0].rank :]
        self.positions: Final = [values.at(scalar, i, tuple(self.lead)) for i in indices]
        self.extents: Final = target.shape
        pointer, index = values.target(target, (*self.positions, *self.rest), scalar)
        result = values.at(scalar, value, tuple(own))
        if combine != "set":
            old = load(pointer, index, epoch=scalar.epoch(pointer))
            result = make(COMBINES[combine].op, old, result)
        self.place: Final = Place(pointer, index, result)
        self.size: Final = math.prod(value.shape)

    def run(self, *, split: bool) -> None:
        """The loops. `split`: they are all that their kernel does, so threads may share them."""
        emitter = self.emitter
        for r in self.lead:
            emitter.pinned |= emitter.bit(r)
        self._loops(split=split and self.size >= 2 * CHUNK and emitter.target.threads > 1)
        for r in self.lead:
            emitter.pinned &= ~emitter.bit(r)

    def _loops(self, *, split: bool) -> None:
        """The loops around the stores, one of which threads may share."""
        loops, inner = self.lead, self.rest
        if inner and not any(self.emitter.index.step(self.place.index, r) == 1 for r in inner):
            loops, inner = [*inner, *loops], []  # by rows of the target, not by its columns
        shared = next((k for k, r in enumerate(loops) if split and self._is_shared(r)), None)
        inside = self._inside()

        def store() -> None:
            self.nests.run([self.place], inner, split=False, parts=split and shared is None)

        def body(_: Node, carried: list[Node]) -> list[Node]:
            if inside is None:
                store()
            else:
                self.emitter.when(self.emitter.emit(inside, {}), store)
            return carried

        if shared is None:
            self.loops.nest(loops, body)
            return
        r = loops[shared]
        begin, end = self.loops.share(r, self.loops.line(self.place, r))

        def from_shared(_: Node, carried: list[Node]) -> list[Node]:
            self.loops.nest(loops[shared:], body, begin, end)
            return carried

        self.loops.nest(loops[:shared], from_shared)

    def _is_shared(self, r: Node) -> bool:
        """Whether threads may share a range: no two of its elements have one place, nor few of them one line."""
        index = self.emitter.index
        alone = r not in self.lead or any(list(index.affine(p)[1]) == [r] for p in self.positions)
        return alone and self.loops.extent(r) > self.loops.line(self.place, r)

    def _inside(self) -> Node | None:
        """Whether all positions are inside the target; None if there are none."""
        inside: Node | None = None
        for at, extent in zip(self.positions, self.extents, strict=False):
            for test in (ge(at, number(0)), lt(at, number(extent))):
                inside = test if inside is None else and_(inside, test)
        return inside
