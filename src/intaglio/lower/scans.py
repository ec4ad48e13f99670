"""Running reductions: the axis in order, and places beside it together, so that none waits for its own last value.

Those are vectors where neighbours along another axis lie together in memory; else some rows side by side, each with a
number of its own. Every place takes its values one by one, whoever runs it: so results depend neither on how many run
side by side nor on threads, which share the axes around.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import toposort, walk
from intaglio.lower.binding import Binding
from intaglio.lower.emit import usual
from intaglio.lower.index import number
from intaglio.lower.loops import CHUNK
from intaglio.lower.parts import CHAINS, LINE, LONG, PAGE, SHORT, WAYS
from intaglio.ops.elementwise import cast
from intaglio.ops.memory import Load
from intaglio.ops.movement import expand
from intaglio.ops.reduce import COMBINES, Fold

if TYPE_CHECKING:
    from intaglio.ir.node import Node
    from intaglio.lower.binding import Instance
    from intaglio.lower.loops import Loops, Place

VECTORS: Final = (1, 2, 4, 8, 16)  # as many may be tried
ROWS: Final = (2, 4, 8, 16)  # as many side by side may be tried
UNROLL: Final = 2  # vectors at once of what is in the caches


class Running:
    """One running reduction being lowered."""

    def __init__(self, loops: Loops, place: Place, kind: str, along: Node, around: list[Node]) -> None:
        """Of a value, for each place of some ranges.

        Args:
            place: Where results go, and the value that is taken.
            kind: What joins the values.
            along: The range that runs in order.
            around: The others, from the outermost in.
        """
        self.loops: Final = loops
        self.emitter: Final = loops.emitter
        self.place: Final = place
        self.kind: Final = kind
        self.along: Final = along
        self.size: Final = math.prod(map(loops.extent, (along, *around)))
        last = around[-1] if around else None
        near = last is not None and self.emitter.target.vector_bytes and self._step(place.index, last) == 1
        self.column: Final = last if near else None
        self.outer: Final = [r for r in around if r is not self.column]

    def run(self, *, split: bool) -> None:
        """The loops. `split`: they are all that their kernel does, so threads may share them."""
        emitter = self.emitter
        emitter.pinned |= emitter.bit(self.along)
        large = self.size >= 2 * CHUNK and emitter.target.threads > 1 and not emitter.index.sized
        split = split and large
        if self.column is not None:
            self._by_vectors(self.column, split=split)
        else:
            self._by_rows(split=split)
        emitter.pinned &= ~emitter.bit(self.along)

    def _by_vectors(self, column: Node, *, split: bool) -> None:
        """Vectors of neighbours, some at once."""
        loops = self.loops
        lanes = self.emitter.lanes_of(self.place.value)
        vectors = loops.decide.of("vectors", self._vectors(), VECTORS)
        while vectors > 1 and loops.extent(column) < lanes * vectors:
            vectors //= 2
        unit = lanes * vectors
        outer = sorted(self.outer, key=loops.extent, reverse=True)
        by_rows = outer and loops.extent(outer[0]) >= loops.extent(column) // unit
        begin, end = self._chunk(outer[0], 1, split=split) if by_rows else self._chunk(column, unit, split=split)

        def innermost(_: Node, carried: list[Node]) -> list[Node]:
            if begin is None or end is None or by_rows:
                loops.vectors(column, lanes, vectors, self._chains)
            else:
                loops.vectors_between(column, begin, end, lanes, vectors, self._chains)
            return carried

        if by_rows:
            loops.nest(outer, innermost, begin, end)
        else:
            loops.nest(self.outer, innermost)

    def _by_rows(self, *, split: bool) -> None:
        """Rows, some side by side."""
        loops = self.loops
        if not self.outer:
            self._chains([{}], 0)
            return
        row = max(reversed(self.outer), key=loops.extent)
        model = self._rows(row)
        rows = model if model == 1 else loops.decide.of("rows", model, ROWS)
        begin, end = self._chunk(row, rows, split=split)

        def some(_: Node, carried: list[Node]) -> list[Node]:
            loops.together(row, rows, lambda instances: self._chains(instances, 0), begin, end)
            return carried

        loops.nest([r for r in self.outer if r is not row], some)

    def _chains(self, instances: list[Instance], lanes: int) -> None:
        """The axis in order, for some places together."""
        emitter, pointer, index, value = self.emitter, self.place.pointer, self.place.index, self.place.value
        start = COMBINES[self.kind].identity(value.dtype)
        if lanes:
            start = emitter.put(len(emitter.frames) - 1, expand(start, (lanes,)))

        def step(_: Node, carried: list[Node]) -> list[Node]:
            totals = [emitter.combine(self.kind, a, value, i) for a, i in zip(carried, instances, strict=True)]
            level = len(emitter.frames) - 1
            for total, instance in zip(totals, instances, strict=True):
                emitter.store(pointer, index, emitter.put(level, cast(total, pointer.dtype)), instance)
            return totals

        inits = [start] * len(instances)
        emitter.loop(number(0), self.along.src[0], 1, inits, step, lambda f, c: (self.along, Binding(f, c)))

    # -- choices

    def _vectors(self) -> int:
        """How many vectors at once: of what comes from memory as many as give long pieces of each row."""
        target = self.emitter.target
        far = self.size * self.place.value.dtype.itemsize > target.level2 and not self.emitter.index.sized
        return target.vector_registers // 4 if far and len(usual([self.place.value])) < SHORT else UNROLL

    def _rows(self, row: Node) -> int:
        """How many rows side by side: fewer where a step takes long, or their lines would not be in the first cache."""
        index = self.emitter.index
        nodes = usual([self.place.value])
        if index.varies(self.loops.extent(row)) or any(isinstance(n.op, Fold) for n in nodes):
            return 1  # of several rows at once a fold would be taken in another order
        chains = CHAINS if len(nodes) < SHORT else CHAINS // 2 if len(nodes) < LONG else CHAINS // 4
        loads = [n for n in walk((self.place.value,)) if isinstance(n.op, Load)]
        ends = {(self.place.pointer, self.place.index), *((n.src[0], n.src[1]) for n in loads)}
        steps = [step for pointer, place in ends if (step := self._step(place, row) * pointer.dtype.itemsize)]
        lines = WAYS * min((PAGE // max(math.gcd(step, PAGE), LINE) for step in steps), default=1)
        return max(1, min(chains, self.loops.extent(row), max(2, lines // max(1, len(steps)))))

    def _chunk(self, r: Node, unit: int, *, split: bool) -> tuple[Node, Node] | tuple[None, None]:
        """The part of a range that one call runs, where it is not all of it."""
        emitter = self.emitter
        folds = (n for n in toposort((self.place.value,), enter=lambda n: not isinstance(n.op, Fold)))
        again = any(isinstance(n.op, Fold) and not emitter.mask(n) & emitter.bit(r) for n in folds)  # by each chunk
        return self.loops.chunk(self.loops.extent(r), self.size, unit) if split and not again else (None, None)

    def _step(self, place: Node, r: Node) -> int:
        """How far a range steps through memory."""
        return self.emitter.index.step(place, r)
