"""Loops one axis of which is free of the others: it is cut in parts, each of which runs all turns by itself.

What a turn needs of the turn before is then still in cache, or (where what lies along the axis is far apart in memory)
some places along it run side by side, so that none waits for its own last value. Threads share the parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import toposort
from intaglio.lower.binding import Binding
from intaglio.lower.emit import LINE
from intaglio.lower.index import number
from intaglio.lower.loops import CHUNK
from intaglio.ops.elementwise import add, minimum
from intaglio.ops.memory import Window
from intaglio.ops.reduce import Reduce, Scan

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.ir.node import Node
    from intaglio.lower.binding import Instance
    from intaglio.lower.loops import Loops, Place

PART: Final = 1 << 12  # elements of a part of a turn
UNROLL: Final = 2  # vectors at once
CHAINS: Final = 16  # places that run side by side
SHORT: Final = 24  # nodes of values up to which that many do
LONG: Final = 60  # nodes of values up to which half as many do
NEAR: Final = 4  # neighbours in memory from which they are worth a vector
WAYS: Final = 8  # lines that the first cache holds of those that lie a multiple of PAGE bytes apart
PAGE: Final = 4096


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the first axis of a loop's stores: from a start to a stop, or (no stop) some places side by side."""

    frame: int
    start: Node
    stop: Node | None
    count: int


class Parts:
    """A loop with a free axis, part by part."""

    def __init__(self, loops: Loops, node: Node, run: Callable[[Part | None], None]) -> None:
        """Note what the loop stores.

        Args:
            run: Writes the loop for one part, or for all of it.
        """
        self._loops: Final = loops
        self._run: Final = run
        self._stores: Final = node.src[1:]
        self._turns: Final = loops.emitter.index.affine(node.src[0].src[0])[0]
        self._lead: Final = self._stores[0].src[1].shape[0]

    def run(self, *, split: bool) -> None:
        """The loop. `split`: it is all that its kernel does, so threads may share it."""
        values = toposort([store.src[1] for store in self._stores])
        index = self._loops.emitter.index
        near = self._loops.emitter.target.vector_bytes and any(map(_is_near, self._stores))
        if self._lead == 1 or any(isinstance(n.op, (Reduce, Scan)) for n in values) or (near and index.sized):
            self._run(None)
        elif near:
            self._in_order(split=split)
        elif index.sized:
            self._side_by_side_of_any_number()
        else:
            self._side_by_side(values, split=split)

    def _in_order(self, *, split: bool) -> None:
        """Parts of which each is a row of vectors, or some rows."""
        emitter = self._loops.emitter
        value = self._stores[0].src[1]
        part = max(1, PART // (value.size // self._lead))
        unit = emitter.target.vector_bytes * UNROLL  # a whole number of vectors of any dtype
        if any(_strides(store.src[0])[0] == store.src[0].dtype.itemsize for store in self._stores):
            part = -(-part // unit) * unit
        if part >= self._lead:
            self._run(None)
            return
        begin, end = self._chunk(part, split=split)

        def run(counter: Node, carried: list[Node]) -> list[Node]:
            level = len(emitter.frames) - 1
            stop = emitter.put(level, minimum(emitter.put(level, add(counter, number(part))), end))
            self._run(Part(level, counter, stop, part))
            return carried

        emitter.loop(begin, end, part, (), run)

    def _side_by_side(self, values: list[Node], *, split: bool) -> None:
        """A few places at a time, and those that are left."""
        chains = CHAINS if len(values) < SHORT else CHAINS // 2 if len(values) < LONG else CHAINS // 4
        chains = min(chains, self._lead, self._lines(values))
        begin, end = self._chunk(chains, split=split)
        self._loops.some_at_once(self._lead, chains, lambda start, count: self._run(self._at(start, count)), begin, end)

    def _side_by_side_of_any_number(self) -> None:
        """A few places at a time, then one after the other, where it is not known how many there are."""
        emitter = self._loops.emitter
        extent = number(self._lead)
        whole = emitter.whole(extent, WAYS // 2)
        self._each(number(0), whole, WAYS // 2)
        self._each(whole, extent, 1)

    def _each(self, begin: Node, end: Node, count: int) -> None:
        """So many places at a time."""

        def run(counter: Node, carried: list[Node]) -> list[Node]:
            self._run(self._at(counter, count))
            return carried

        self._loops.emitter.loop(begin, end, count, (), run)

    def _at(self, start: Node, count: int) -> Part:
        """Some places side by side."""
        return Part(len(self._loops.emitter.frames) - 1, start, None, count)

    def _chunk(self, unit: int, *, split: bool) -> tuple[Node, Node]:
        """The part of the axis that one call runs: all of it, where there is little to do."""
        work = self._turns * sum(store.src[1].size for store in self._stores)
        if not split or work < 2 * CHUNK or self._loops.emitter.target.threads == 1:
            return number(0), number(self._lead)
        return self._loops.chunk(self._lead, work, unit)

    def _lines(self, values: list[Node]) -> int:
        """How many places have their lines in the first cache at once, however far apart they lie."""
        windows = [n for n in (*values, *(s.src[0] for s in self._stores)) if isinstance(n.op, Window)]
        along = [n for n in windows if n.shape[:1] == (self._lead,) and _strides(n)[0]]
        apart = max(math.gcd(_strides(n)[0], PAGE) for n in along)
        return max(2, WAYS * (PAGE // max(apart, LINE)) // len({n.src[0] for n in along}))


def nest(
    loops: Loops,
    places: list[Place],
    ranges: list[Node],
    part: Part,
    vector: tuple[Node, int, int] | None,
    store: Callable[[list[Instance], int], None],
) -> None:
    """The loops of stores of one shape for a part of their first axis.

    Args:
        ranges: The axes; the first is that which is cut.
        vector: The axis along which a vector runs, its lanes, and how many vectors at once.
        store: Stores some instances.
    """
    emitter = loops.emitter
    lead, *others = ranges
    if part.stop is None:
        emitter.bit(lead)
        emitter.bound[lead] = Binding(part.frame, part.start, part.count)
        instances: list[Instance] = [{lead: u} for u in range(part.count)]
        loops.nest(others, lambda _, carried: (store(instances, 0), carried)[1])
        del emitter.bound[lead]
        return
    stop = part.stop
    if vector is not None and vector[0] is lead and part.count % (vector[1] * vector[2]):
        vector = None

    def innermost(_: Node, carried: list[Node]) -> list[Node]:
        if vector is None:
            store([{}], 0)
        elif vector[0] is lead:
            loops.vectors_between(lead, part.start, stop, *vector[1:], store)
        else:
            loops.vectors(*vector, store)
        return carried

    if vector is not None and vector[0] is lead:
        loops.nest(others, innermost)
    else:
        around = [r for r in ranges if vector is None or r is not vector[0]]
        loops.nest(around, innermost, part.start, stop)


def _is_near(store: Node) -> bool:
    """Whether a store is of neighbours in memory along an axis."""
    window = store.src[0]
    return any(n >= NEAR and s == window.dtype.itemsize for n, s in zip(window.shape, _strides(window), strict=True))


def _strides(window: Node) -> tuple[int, ...]:
    """The strides of a window."""
    assert isinstance(window.op, Window)
    return window.op.view.strides
