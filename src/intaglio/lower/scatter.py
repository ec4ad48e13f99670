"""Scatters: positions one after the other (the last wins), the axes after them vectorised."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Node, make, walk
from intaglio.lower.index import number
from intaglio.lower.loops import CHUNK, Place
from intaglio.ops.elementwise import and_, cast, lt
from intaglio.ops.memory import load
from intaglio.ops.reduce import COMBINES, Fold

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.lower.binding import Instance
    from intaglio.lower.nests import Nests
    from intaglio.lower.values import Values

UNROLL: Final = 4  # elements that are stored in a row


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
        few = not inner and self._is_of_few(loops)
        nest = self._elements if few else functools.partial(self._rows, inner, parts=split and shared is None)
        if shared is None:
            nest(loops)
            return
        r = loops[shared]
        unit = self.loops.line(self.place, r)
        begin, end = self.loops.share(r, -(-unit // UNROLL) * UNROLL if few and r is loops[-1] else unit)
        self.loops.nest(loops[:shared], lambda _, carried: (nest(loops[shared:], begin, end), carried)[1])

    def _rows(
        self,
        inner: list[Node],
        ranges: list[Node],
        begin: Node | None = None,
        end: Node | None = None,
        *,
        parts: bool,
    ) -> None:
        """The loops over positions, at each of which there is a row, or an element; `parts`: threads share those."""

        def row(_: Node, carried: list[Node]) -> list[Node]:
            self._inside({}, lambda: self.nests.run([self.place], inner, split=False, parts=parts))
            return carried

        self.loops.nest(ranges, row, begin, end)

    def _elements(self, ranges: list[Node], begin: Node | None = None, end: Node | None = None) -> None:
        """The loops over positions of elements, of which a few are stored in a row: a turn costs as much as one."""
        *outer, r = ranges

        def few(instances: list[Instance]) -> None:
            for one in instances:
                self._inside(one, functools.partial(self._element, one))

        def along(first: Node | None = None, stop: Node | None = None) -> None:
            self.loops.together(r, UNROLL, few, first, stop)

        if outer:
            self.loops.nest(outer, lambda _, carried: (along(), carried)[1], begin, end)
        else:
            along(begin, end)

    def _element(self, instance: Instance) -> None:
        """The store of one element."""
        place = self.place
        self.emitter.store(place.pointer, place.index, self.emitter.emit(place.value, instance), instance)

    def _inside(self, instance: Instance, store: Callable[[], None]) -> None:
        """A store that is made where all positions are inside the target."""
        inside: Node | None = None
        for at, extent in zip(self.positions, self.extents, strict=False):
            test = lt(cast(at, dtypes.uint64), cast(number(extent), dtypes.uint64))  # what is below 0 is far above then
            inside = test if inside is None else and_(inside, test)
        if inside is None:
            store()
        else:
            self.emitter.when(self.emitter.emit(inside, instance), store)

    def _is_of_few(self, ranges: list[Node]) -> bool:
        """Whether elements may be stored a few in a row: if there are as many each time, and none is a reduction.

        A reduction would be computed for all of them where the first is inside.
        """
        folds = (n for n in walk((self.place.value, *self.positions)) if isinstance(n.op, Fold))
        return bool(ranges) and not self.emitter.index.varies(self.loops.extent(ranges[-1])) and not any(folds)

    def _is_shared(self, r: Node) -> bool:
        """Whether threads may share a range: no two of its elements have one place, nor few of them one line."""
        index = self.emitter.index
        alone = r not in self.lead or any(list(index.affine(p)[1]) == [r] for p in self.positions)
        return alone and self.loops.extent(r) > self.loops.line(self.place, r)
