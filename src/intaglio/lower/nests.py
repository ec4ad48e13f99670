"""The loops of stores of one shape: products by their own, all others by vectors, in chunks for threads to share."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, toposort, walk
from intaglio.lower.ahead import asked_along
from intaglio.lower.columns import Kept, rows_below
from intaglio.lower.dots import Dots, dot_ranges
from intaglio.lower.kept import keep_rows
from intaglio.lower.loops import CHUNK, CHUNKS, has_fold
from intaglio.lower.parts import nest
from intaglio.lower.positions import position_of
from intaglio.lower.product import Product, row_range, turned_column
from intaglio.lower.slabs import Slabs, is_slabbed
from intaglio.lower.sliding import sliding
from intaglio.lower.stream import all_streamed
from intaglio.lower.tile import TILE, Tiles, turned_range
from intaglio.lower.vectorize import VECTORS, lanes_of, order_around, vector_range, vectors_at_once
from intaglio.lower.words import Words, in_words
from intaglio.ops.memory import Load, Param
from intaglio.ops.reduce import Fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.lower.binding import Instance
    from intaglio.lower.loops import Body, Loops, Place
    from intaglio.lower.parts import Part
    from intaglio.lower.values import Values

REGISTERS: Final = 32  # vectors that the positions of two extremes take, with what they are compared by
COLUMNS: Final = 4  # vectors at once where columns are reduced, and read again: some of a line's neighbours


@dataclass(frozen=True, slots=True)
class _Inner:
    """The innermost loop: stores along a range by vectors, or (no range) of one element.

    With `halves`, the two halves of the outermost loop around it run side by side: a processor reads two places of
    memory that are far apart faster than one.
    """

    loops: Loops
    v: Node | None
    lanes: int
    unroll: int
    store: Body
    halves: bool = False

    def nest(self, outer: list[Node], start: Node | None = None, stop: Node | None = None) -> None:
        """Write it within loops around it; `start` and `stop` bound the outermost."""
        if not self.halves:
            self.loops.nest(outer, self.run, start, stop)
            return

        def both(instances: list[Instance]) -> None:
            self.loops.nest(outer[1:], lambda _, carried: (self.store(instances, 0), carried)[1])

        self.loops.halves(outer[0], both, start, stop)

    def run(self, _: Node, carried: list[Node]) -> list[Node]:
        """Write it."""
        if self.v is None:
            self.store([{}], 0)
        else:
            self.loops.vectors(self.v, self.lanes, self.unroll, self.store)
        return carried


class Nests:
    """Writes the loop nests of one kernel.

    Attributes:
        past: The slots of what is written past the caches.
        turns: How often the loops at hand run.
    """

    def __init__(self, loops: Loops, values: Values, alone: set[int], moved: int) -> None:
        """Of a kernel.

        Args:
            alone: The groups of bytes that it writes once, and does not read.
            moved: How many bytes it reads and writes.
        """
        self.loops: Final = loops
        self.emitter: Final = loops.emitter
        self.values: Final = values
        self.past: Final[set[int]] = set()
        self.turns: int = 1
        self._alone: Final = alone
        self._moved: Final = moved

    def inside(self, places: list[Place], ranges: list[Node]) -> None:
        """The loops of stores within others."""
        self.run(places, ranges, split=False)

    def vector_range(self, places: list[Place], ranges: list[Node]) -> Node | None:
        """The range of stores that becomes a vector."""
        return vector_range(self.loops, places, ranges)

    def run(self, places: list[Place], ranges: list[Node], *, split: bool, parts: bool = False) -> None:
        """The loops of stores of one shape.

        Args:
            split: They are all that their kernel does, so threads may share them.
            parts: Within other loops, threads share the outermost of these.
        """
        if not ranges:
            for place in places:
                self.emitter.store(place.pointer, place.index, self.emitter.emit(place.value, {}), {})
            return
        self.loops.decide.begin()
        v = self.vector_range(places, ranges)
        rows = rows_below(self.emitter, places, ranges, v) if v is not None else []
        if v is not None and rows:
            self._columns(places, [r for r in ranges if r is not v and r not in rows], v, rows, split=split)
            return
        alone = len(places) == 1 and not self.emitter.index.sized
        if v is None and alone and self.emitter.target.vector_bytes:
            v = turned_column(self.loops, places[0].value, places[0].index, ranges)
        if v is not None and self._multiply(places, ranges, v, split=split):
            return
        dots = None
        if v is None and alone and self.emitter.target.vector_bytes:
            dots = dot_ranges(self.loops, places[0], ranges)
        if dots is not None:
            sheets = [r for r in ranges if r not in dots]
            Dots(self.loops, places[0], *dots).run(sheets, self._work(places, ranges), split=split)
            return
        if v is not None:
            places = keep_rows(self.emitter, self.values, places, v)
        self._plain(
            sorted(places, key=_has_no_position), ranges, v, split=split, parts=parts
        )  # those give extremes too

    def part(self, places: list[Place], ranges: list[Node], part: Part) -> None:
        """The loops of stores of one shape for a part of their first axis."""
        v = self.vector_range(places, ranges) if part.stop is not None else None
        lanes = min(self.emitter.lanes_of(p.value) for p in places)
        vector = (v, lanes, vectors_at_once(self.loops, places, v, 1)) if v is not None else None
        nest(self.loops, places, ranges, part, vector, functools.partial(self._store, places))

    def pass_caches(self, places: list[Place], size: int) -> None:
        """Have large results that the kernel does nothing else with written past the caches; not those of any size.

        Nor those that stay in the third cache with all that the kernel reads, where that is the faster way.
        """
        stay = self.emitter.index.varies(size) or self._moved <= self.emitter.target.near
        for place in places if not stay else ():
            op = place.pointer.op
            if isinstance(op, Param) and op.group in self._alone and size * op.of.itemsize >= self.emitter.target.far:
                self.past.add(op.slot)

    def work(self, places: list[Place], ranges: list[Node]) -> int:
        """How many values some stores and their folds take."""
        folds = (n for p in places for n in walk((p.value,)) if isinstance(n.op, Fold))
        return self._size(ranges) * max(1, sum(self._size(n.src[1:]) for n in folds))

    # -- products

    def _multiply(self, places: list[Place], ranges: list[Node], v: Node, *, split: bool) -> bool:
        """The loops of products, by that of their forms which is fastest; whether the stores are of some."""
        loops, axes, sized = self.loops, self.values.axes, self.emitter.index.sized
        row = row_range(loops, places[0].value, ranges, v) if len(places) == 1 and not sized else None
        if row is not None:
            self.pass_caches(places, self._size(ranges))
        sheets = [r for r in ranges if r is not row and r is not v]
        words: Words | None = None
        if row is not None and split:
            words = in_words(loops, axes, places[0], row, v, sheets)
        if words is not None and words.is_exact:
            words.run(ranges)
            return True
        streams = [] if sized else all_streamed(loops, axes, places, ranges, v)
        for stream in streams:
            stream.run(ranges, split=split)
        if streams:
            return True
        if row is None:
            return False
        if is_slabbed(loops, places[0], row, v) and loops.decide.of("slabs", 1, (0,)):
            Slabs(loops, axes, places[0], row=row, column=v).run(sheets, split=split)
            return True
        if words is not None:
            words.run(ranges)
            return True
        slid = sliding(loops, axes, places[0], row=row, column=v, others=sheets)
        if slid is not None and loops.decide.of("slid", 1, (0,)):
            slid.run([r for r in sheets if r is not slid.line], split=split)
        else:
            Product(loops, axes, places[0], row=row, column=v).run(ranges, split=split)
        return True

    # -- all others

    def _plain(self, places: list[Place], ranges: list[Node], v: Node | None, *, split: bool, parts: bool) -> None:
        """The loops of stores that are computed one by one, or by vectors."""
        loops = self.loops
        work = self._work(places, ranges)
        outer = order_around(loops, [r for r in ranges if r is not v])
        lanes = lanes_of(loops, places)
        unroll = 1 if v is None else vectors_at_once(loops, places, v, work)
        inner = _Inner(loops, v, lanes, unroll, functools.partial(self._store, places))
        self.pass_caches(places, self._size(ranges))
        turned = turned_range(loops, places, outer, v)
        block = 0 if turned is None else loops.decide.of("block", TILE, (0, TILE // 2, 2 * TILE, 4 * TILE))
        first = outer[0] if outer else v
        if parts and first is not None and loops.extent(first) > loops.line(places[0], first) and not has_fold(places):
            self._shared(places[0], outer, inner, first)
        elif v is not None and turned is not None and block:
            around = [r for r in outer if r is not turned]
            Tiles(loops, places, v, turned, lanes, block).run(around, work if split else 0)
        else:
            split = split and not self._folds_beside(places, first)
            groups = [places] if v is not None else self._apart(places, outer)
            asked = [asked_along(loops, group, outer, self._moved) if v is None else {} for group in groups]
            halved = any(asked) and self._are_halved(places, outer, work)
            for group, ahead in zip(groups, asked, strict=True):
                self.emitter.ahead.update(ahead)
                own = replace(inner, store=functools.partial(self._store, group), halves=halved and bool(ahead))
                self._chunks(outer, own, work, split=split, unit=2 if halved else 1)
                for load in ahead:
                    del self.emitter.ahead[load]

    def _columns(self, places: list[Place], outer: list[Node], v: Node, rows: list[Node], *, split: bool) -> None:
        """The loops of stores that also reduce down columns: some of those at a time, and inside them the rows."""
        loops = self.loops
        work = self._size([*outer, v, *rows])
        self.pass_caches(places, work)
        lanes = lanes_of(loops, places)
        unroll = loops.decide.of("vectors", COLUMNS, VECTORS)
        kept = None if self.emitter.index.sized else Kept(loops, self.values.axes, rows, v, lanes * unroll)

        def down(instances: list[Instance], _: int) -> None:
            def stores(places: list[Place]) -> None:
                def run(_: Node, carried: list[Node]) -> list[Node]:
                    if kept is not None:
                        kept.ask(instances)
                    self._store(places, instances, lanes)
                    return carried

                loops.nest(rows, run)

            if kept is None:
                stores(places)
            else:
                kept.write(places, stores)

        self._chunks(outer, _Inner(loops, v, lanes, unroll, down), work, split=split)

    def _store(self, places: list[Place], instances: list[Instance], _: int) -> None:
        """The stores of some instances."""
        for place in places:
            self.emitter.store_all(place.pointer, place.index, place.value, instances)

    # -- threads

    def _shared(self, place: Place, outer: list[Node], inner: _Inner, first: Node) -> None:
        """The loops within others, each thread with a part of the outermost that is no part of a line."""
        share = lanes_of(self.loops, [place]) if first is inner.v else 1
        begin, end = self.loops.share(first, max(share, self.loops.line(place, first)))
        if first is inner.v:
            self.loops.vectors_between(first, begin, end, share, 1, inner.store)
        else:
            self.loops.nest(outer, inner.run, begin, end)

    def _chunks(self, outer: list[Node], inner: _Inner, work: int, *, split: bool, unit: int = 1) -> None:
        """The loops, the outermost in chunks of equal length where threads may share them.

        Args:
            unit: How many turns of a loop that is no vector's chunks are a multiple of.
        """
        first = outer[0] if outer else inner.v
        if first is None or not split or work < 2 * CHUNK or self.emitter.target.threads == 1:
            inner.nest(outer)
            return
        extent = self.loops.extent(first)
        lanes, unroll = (inner.lanes, inner.unroll) if first is inner.v else (1, 1)
        while unroll > 1 and extent < lanes * unroll:
            unroll //= 2
        begin, end = self.loops.chunk(extent, work, lanes * unroll if first is inner.v else unit)
        if first is inner.v:
            self.loops.vectors_between(first, begin, end, lanes, unroll, inner.store)
        else:
            inner.nest(outer, begin, end)

    def _are_halved(self, places: list[Place], outer: list[Node], work: int) -> bool:
        """Whether the two halves of the outermost loop run side by side, where some of what is stored asks ahead.

        Not where a fold has a way of its own; nor where there are few turns, of which halves would make fewer chunks;
        nor where the positions of two extremes do not fit in the registers.
        """
        emitter, extent = self.emitter, self.loops.extent(outer[0]) if outer else 0
        folds = [n for n in walk([p.value for p in places]) if isinstance(n.op, Fold)]
        own = emitter.kept or emitter.stops or emitter.beside or emitter.cuts
        full = emitter.target.vector_registers < REGISTERS and any(map(position_of, folds))
        enough = extent >= CHUNKS or 2 * self.loops.model_of_chunks(extent, work) <= extent
        return extent > 1 and enough and not own and not full

    def _folds_beside(self, places: list[Place], first: Node | None) -> bool:
        """Whether a fold does not depend on the outermost range: each chunk would compute it again."""
        if first is None:
            return False
        emitter = self.emitter
        top = toposort([p.value for p in places], enter=lambda n: not isinstance(n.op, Fold))
        return any(isinstance(n.op, Fold) and not emitter.mask(n) & emitter.bit(first) for n in top)

    def _apart(self, places: list[Place], outer: list[Node]) -> list[list[Place]]:
        """Stores in groups that have nothing in common but what is the same in all turns of the loops around.

        With loops of their own, each reads its memory in one go.
        """
        around = sum(map(self.emitter.bit, outer))
        groups: list[tuple[list[Place], set[Node]]] = []
        for place in places:
            loads = [n for n in walk((place.value, place.index)) if isinstance(n.op, Load)]
            used = {place.pointer, *[n.src[0] for n in loads if self.emitter.mask(n) & around]}
            joined = [group for group in groups if group[1] & used]
            groups = [group for group in groups if group not in joined]
            groups.append(([*chain.from_iterable(g for g, _ in joined), place], used.union(*[of for _, of in joined])))
        return [members for members, _ in groups]

    # -- sizes

    def _size(self, ranges: Sequence[Node]) -> int:
        """How many elements some ranges have."""
        return math.prod(map(self.loops.extent, ranges))

    def _work(self, places: list[Place], ranges: list[Node]) -> int:
        """How many values the stores and their folds take, whenever they run."""
        return self.turns * self.work(places, ranges)


def _has_no_position(place: Place) -> bool:
    """Whether a value asks for no position of an extreme."""
    return not any(position_of(n) for n in walk((place.value,)) if isinstance(n.op, Fold))
