"""Transpositions by blocks: what lies apart along the vectors is read while its lines are in cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, walk
from intaglio.lower.binding import Binding
from intaglio.lower.index import number
from intaglio.lower.loops import CHUNK
from intaglio.ops.elementwise import add, minimum
from intaglio.ops.memory import Load
from intaglio.ops.reduce import Fold

if TYPE_CHECKING:
    from intaglio.lower.binding import Instance
    from intaglio.lower.loops import Loops, Place

TILE: Final = 16  # elements of a line of memory: the height of a block


def turned_range(loops: Loops, places: list[Place], outer: list[Node], v: Node | None) -> Node | None:
    """The range along which loads that lie far apart along the vector range are of neighbours, if there is one."""
    nodes = list(walk([p.value for p in places]))
    if v is None or any(isinstance(n.op, Fold) for n in nodes):
        return None  # a fold stays outside the loops that it does not depend on
    emitter, step_of = loops.emitter, loops.emitter.index.step
    for n in nodes:
        if isinstance(n.op, Load) and emitter.mask(n.src[1]) & emitter.bit(v):
            for r in reversed(outer):
                if loops.extent(r) >= TILE and loops.extent(v) >= TILE and step_of(n.src[1], r) == 1:
                    return r if abs(step_of(n.src[1], v)) > TILE else None
    return None


class Tiles:
    """Blocks of a range that loads step along by one, inside them vectors of another."""

    def __init__(self, loops: Loops, places: list[Place], v: Node, turned: Node, lanes: int, height: int) -> None:
        """Of stores in vectors.

        Args:
            v: The range of the vectors.
            turned: The range that is cut in blocks.
            height: How many elements a block has.
        """
        self.loops: Final = loops
        self.emitter: Final = loops.emitter
        self.places: Final = places
        self.v: Final = v
        self.turned: Final = turned
        self.lanes: Final = lanes
        self.height: Final = height
        self.extent: Final = number(loops.extent(turned))

    def run(self, outer: list[Node], work: int) -> None:
        """The loops, those around outside. `work`: how much threads share; 0 if they do not."""
        loops = self.loops
        if work < 2 * CHUNK or self.emitter.target.threads == 1:
            loops.nest(outer, self._blocks)
        elif outer:
            loops.nest(outer, self._blocks, *loops.chunk(loops.extent(outer[0]), work, 1))
        else:
            begin, stop = loops.chunk(loops.extent(self.turned), work, self.height)
            self.emitter.loop(begin, stop, self.height, (), self._block)

    def _blocks(self, _: Node, carried: list[Node]) -> list[Node]:
        """All blocks."""
        self.emitter.loop(number(0), self.extent, self.height, (), self._block)
        return carried

    def _block(self, counter: Node, carried: list[Node]) -> list[Node]:
        """One block, vector by vector."""
        emitter = self.emitter
        level = len(emitter.frames) - 1
        stop = emitter.put(level, minimum(emitter.put(level, add(counter, number(self.height))), self.extent))

        def column(instances: list[Instance], _: int) -> None:
            def run(_: Node, carried: list[Node]) -> list[Node]:
                for instance in instances:
                    for place in self.places:
                        emitter.store(place.pointer, place.index, emitter.emit(place.value, instance), instance)
                return carried

            emitter.loop(counter, stop, 1, (), run, lambda f, c: (self.turned, Binding(f, c)))

        self.loops.vectors(self.v, self.lanes, 1, column)
        return carried
