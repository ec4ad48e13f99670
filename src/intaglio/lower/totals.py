"""Results so far of a reduction whose values come row by row: in scratch, one for each level of a sum's blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from intaglio.lower.binding import Binding
from intaglio.lower.index import number
from intaglio.lower.sums import spans_of
from intaglio.ops.memory import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.ir.node import Node
    from intaglio.lower.binding import Instance
    from intaglio.lower.emit import Emitter
    from intaglio.lower.index import Index
    from intaglio.lower.loops import Body


def spans_down(index: Index, rows: list[Node], blocks: tuple[int, ...], least: int) -> list[list[int]]:
    """How many turns of each of the loops over rows the sums of each level take that have results of their own.

    Args:
        blocks: How many values the blocks of each level take, if it is a sum that rounds.
        least: How many of the last range's are taken at once: up to so many need no results of their own.
    """
    found = [spans_of(index, rows[place:], blocks) for place in range(len(rows))]
    return [*found[:-1], [span for span in found[-1] if span > least]]


def levels_of(spans: list[list[int]]) -> int:
    """How many results there are."""
    return 1 + sum(map(len, spans))


@dataclass(frozen=True, slots=True)
class Totals:
    """The loops over the rows of a reduction, in the order of its blocks.

    Attributes:
        rows: Their ranges, from the outermost in.
        spans: What `spans_down` says of them.
        sums: Where the results of each level are.
        index: Where one of them is there.
        start: What they are before there is a row.
        across: Runs something for all results.
        take: Takes the rows from one place to another of the last range into the results of a level.
    """

    emitter: Emitter
    rows: list[Node]
    spans: list[list[int]]
    sums: list[Node]
    index: Node
    start: Node
    across: Callable[[Body], None]
    take: Callable[[int, Node, Node], None]

    def run(self) -> None:
        """Write the loops."""
        self._begin(0)
        self._nest(0, 0)

    def _begin(self, level: int) -> None:
        """The results of a level as they are before there is a row."""

        def begin(instances: list[Instance], _: int) -> None:
            for instance in instances:
                self.emitter.store(self.sums[level], self.index, self.start, instance)

        self.across(begin)

    def _join(self, level: int) -> None:
        """The results of a level taken into those of the one around it."""

        def join(instances: list[Instance], _: int) -> None:
            for instance in instances:
                pair = [self.emitter.emit(load(s, self.index), instance) for s in self.sums[level - 1 : level + 1]]
                (total,) = self.emitter.joined(pair[:1], pair[1:])
                self.emitter.store(self.sums[level - 1], self.index, total, instance)

        self.across(join)

    def _nest(self, place: int, level: int) -> None:
        """The loops over rows from one of them in, taken into the results of a level."""
        r = self.rows[place]
        self._down(place, level, self.spans[place], number(0), self.emitter.stops.get(r, r.src[0]))

    def _down(self, place: int, level: int, spans: list[int], first: Node, stop: Node) -> None:
        """Some turns of one of the loops over rows, in blocks of blocks."""
        emitter, r = self.emitter, self.rows[place]
        if spans:

            def block(counter: Node, carried: list[Node]) -> list[Node]:
                self._begin(level + 1)
                self._down(place, level + 1, spans[1:], counter, emitter.end(counter, spans[0], stop))
                self._join(level + 1)
                return carried

            emitter.loop(first, stop, spans[0], (), block)
        elif r is self.rows[-1]:
            self.take(level, first, stop)
        else:

            def turn(_: Node, carried: list[Node]) -> list[Node]:
                self._nest(place + 1, level)
                return carried

            emitter.loop(first, stop, 1, (), turn, lambda f, c: (r, Binding(f, c)))
