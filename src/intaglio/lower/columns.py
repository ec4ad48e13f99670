"""Stores that also reduce down columns: some columns at a time, whose rows are in a cache when they are read again.

softmax(x, 0): of some neighbouring columns the maxima, then the sums, then all their rows, then the next columns. What
is reduced along other axes in between, as the positions of a channel are, comes in this order as well: the loops that
reductions depend on go outside.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import make, substitute, toposort, walk
from intaglio.lower.binding import Binding, Instance
from intaglio.lower.loops import Place
from intaglio.ops.elementwise import Elementwise
from intaglio.ops.loop import PREFETCH, Range
from intaglio.ops.memory import Load, Local, Param, load
from intaglio.ops.reduce import Fold

if TYPE_CHECKING:
    import itertools
    from collections.abc import Callable, Sequence

    from intaglio.ir.node import Node
    from intaglio.lower.emit import Emitter
    from intaglio.lower.loops import Loops

SCRATCH: Final = 1 << 20  # bytes of scratch at most
HEAVY: Final = 12  # operations from which a value is kept in scratch and not computed again


def by_reductions(
    emitter: Emitter, places: Sequence[Place], ranges: Sequence[Node]
) -> list[tuple[list[Place], list[Node]]]:
    """Stores in groups, each with the ranges in the order of its loops: those first that its reductions depend on."""
    groups: dict[tuple[Node, ...], list[Place]] = {}
    for place in places:
        lead = _lead(emitter, [place], ranges)
        order = (*[r for r in ranges if r in lead], *[r for r in ranges if r not in lead])
        groups.setdefault(order, []).append(place)
    return [(some, list(order)) for order, some in groups.items()]


def rows_below(emitter: Emitter, places: Sequence[Place], ranges: Sequence[Node], column: Node) -> list[Node]:
    """The ranges that the reductions of stores do not depend on, where they do on that of the vectors; else none."""
    lead = _lead(emitter, places, ranges)
    return [r for r in ranges if r not in lead] if column in lead else []


def _lead(emitter: Emitter, places: Sequence[Place], ranges: Sequence[Node]) -> list[Node]:
    """The ranges that all reductions of stores depend on which do not depend on all; none if those differ."""
    every = sum(emitter.bit(r) for r in ranges)
    values = toposort([p.value for p in places], enter=lambda n: not isinstance(n.op, Fold))
    masks = {emitter.mask(n) & every for n in values if isinstance(n.op, Fold)} - {0, every}
    return [r for r in ranges if len(masks) == 1 and emitter.bit(r) & max(masks)]


class Kept:
    """What reductions of a block of columns read from memory, or compute at some cost, kept in scratch for its rows.

    Neighbours down a column may lie at multiples of what a cache is made of, so that it holds few of them. In scratch,
    they lie together. What alone reads some scratch, each number at its own place, writes over it.
    """

    def __init__(self, loops: Loops, axes: itertools.count[int], rows: list[Node], column: Node, width: int) -> None:
        """Of blocks of so many columns.

        Args:
            rows: The ranges of their rows.
        """
        self.emitter: Final = loops.emitter
        self.axes: Final = axes
        self.rows: Final = rows
        self.column: Final = column
        self.block: Final = make(Range(next(axes)), column.src[0])  # the first column of a block
        self.extents: Final = [loops.extent(r) for r in rows]
        self.width: Final = width
        self.size: Final = math.prod(self.extents) * width
        self.more: Final = loops.extent(column) > width  # than one block
        self.room: int = min(SCRATCH, self.emitter.target.level2 // 2)
        self.blocks: int = 0  # that have been written
        self.values: list[Node] = []  # which are stored
        self.scratch: Final[set[Node]] = set()
        self.ahead: Final[list[Node]] = []  # what the next block reads from memory
        self.kept: Final[dict[Node, tuple[Node, Node, Node]]] = {}  # as the emitter's

    def write(self, places: list[Place], body: Callable[[list[Place]], None]) -> None:
        """A block, which begins where the vectors of its columns do.

        Args:
            body: Given the stores, of what is kept.
        """
        emitter = self.emitter
        binding = emitter.bound[self.column]
        emitter.bit(self.block)
        emitter.bound[self.block] = Binding(binding.frame, binding.base)
        body(self._places(places))
        del emitter.bound[self.block]

    def ask(self, instances: list[Instance]) -> None:
        """Ask for what the next block reads of a row while this one is stored: no processor follows rows far apart."""
        for read in self.ahead:
            for instance in instances:
                following = {self.column: instance[self.column] + len(instances)}
                index, _ = self.emitter.address(read.src[1], following)
                self.emitter.effect(make(PREFETCH, read.src[0], index))

    def _places(self, places: list[Place]) -> list[Place]:
        """The stores of one more block. Its loads of scratch are its own: others have read other values there."""
        emitter = self.emitter
        if not self.blocks:
            self._find(places)
        self.blocks += 1
        read = [n for n in walk(self.values) if isinstance(n.op, Load) and isinstance(n.src[0].op, Local)]
        before = (self.blocks - 1) * len(self.kept)
        own = [(n, n.op.epoch) for n in read if isinstance(n.op, Load) and n.src[0] in self.scratch]
        anew = {n: load(n.src[0], n.src[1], epoch=before + epoch) for n, epoch in own}
        for body, (node, place, pointer) in self.kept.items():
            own_body, own_node = substitute((body, node), anew)
            emitter.kept[own_body] = own_node, place, pointer
        values = substitute(self.values, anew)
        return [Place(p.pointer, p.index, value) for p, value in zip(places, values, strict=True)]

    def _find(self, places: list[Place]) -> None:
        """What is kept."""
        self.values = [p.value for p in places]
        seen = 0
        while seen < len(folds := self._folds(self.values)):  # what is kept may leave one only inside of another
            self.values = self._without(self.values, folds[seen])
            seen += 1

    def _folds(self, values: list[Node]) -> list[Node]:
        """The reductions of some values of what lies along their rows, those first that others take."""
        top = [n for n in toposort(values, enter=lambda n: not isinstance(n.op, Fold)) if isinstance(n.op, Fold)]
        own = set(top)
        return [n for n in toposort(top) if n in own and self._is_of_rows(n)]

    def _is_of_rows(self, fold: Node) -> bool:
        """Whether a reduction takes as many values as there are rows, in their order, and before all of them.

        One of values that are read for some rows only is computed row by row, as late as it is needed.
        """
        emitter = self.emitter
        extents = [emitter.index.affine(r.src[0]) for r in fold.src[1:]]
        row = sum(emitter.bit(r) for r in self.rows)
        return extents == [(n, {}) for n in self.extents] and not emitter.mask(fold) & row

    def _without(self, values: list[Node], fold: Node) -> list[Node]:
        """Values that read what a reduction keeps; as they are where it keeps nothing."""
        body, *own = fold.src
        above = {fold: self.rows} | {
            other: list(other.src[1:])
            for other in self._folds(values)
            if other is not fold and fold in toposort((other,)) and set(own).isdisjoint(other.src[1:])
        }
        others = {
            user: set(toposort(values if user is fold else user.src[:1], enter=lambda n: not isinstance(n.op, Fold)))
            for user in above
        }
        for node in reversed(toposort((body,), enter=lambda n: not isinstance(n.op, Fold))):
            if not self._is_worth(node, own):
                continue
            twins: dict[Node, list[Node]] = {}
            for user, ranges in above.items():
                (twin,) = substitute((node,), dict(zip(own, ranges, strict=True)))
                if twin in others[user]:
                    twins[twin] = ranges
            if twins:
                return self._keep(values, fold, node, twins)
        return values

    def _is_worth(self, node: Node, own: list[Node]) -> bool:
        """Whether a value of a reduction is better kept than read, or computed, again."""
        emitter = self.emitter
        bits = emitter.bit(self.column) | sum(emitter.bit(r) for r in own)
        if not isinstance(node.op, (Load, Elementwise)) or not node.dtype.is_float or emitter.mask(node) & bits != bits:
            return False
        inner = [
            n for n in toposort((node,), enter=lambda n: not isinstance(n.op, (Fold, Load))) if emitter.mask(n) & bits
        ]
        read = any(isinstance(n.op, Load) and not isinstance(n.src[0].op, Local) for n in inner)
        return read or sum(isinstance(n.op, Elementwise) for n in inner) >= HEAVY

    def _keep(self, values: list[Node], fold: Node, node: Node, twins: dict[Node, list[Node]]) -> list[Node]:
        """Values that read a value of a reduction from scratch; as they are where there is no room."""
        epoch = len(self.kept) + 1  # what lay in the same scratch before is read by other loads

        def reading(pointer: Node) -> list[Node]:
            loads = {twin: load(pointer, self._place(ranges), epoch=epoch) for twin, ranges in twins.items()}
            return substitute(values, loads)

        body, *own = fold.src
        fresh = make(Local(next(self.axes), node.dtype, self.size))
        others = _pointers(reading(fresh), fold)
        own_scratch = (p for p in _pointers([body]) if p in self.scratch and p.dtype is node.dtype)
        pointer = next((p for p in own_scratch if p not in others), fresh)
        if pointer is fresh:
            self.room -= self.size * node.dtype.itemsize
            if self.room < 0:
                return values
        self.scratch.add(pointer)
        self.kept[body] = node, self._place(own), pointer
        if self.more:
            inner = toposort((node,), enter=lambda n: not isinstance(n.op, (Fold, Load)))
            read = [n for n in inner if isinstance(n.op, Load) and isinstance(n.src[0].op, Param)]
            near = [n for n in read if self.emitter.stride(n.src[1], self.column) == 1]
            self.ahead.extend(substitute(near, dict(zip(own, self.rows, strict=True))))
        return reading(pointer)

    def _place(self, ranges: list[Node]) -> Node:
        """Where the scratch of a block has the columns of a row."""
        steps = [math.prod(self.extents[k + 1 :]) * self.width for k in range(len(ranges))]
        return self.emitter.index.sum([*zip(ranges, steps, strict=True), (self.column, 1), (self.block, -1)])


def _pointers(values: Sequence[Node], apart: Node | None = None) -> list[Node]:
    """What values read, in order, but for those that only one node reads."""
    return [n.src[0] for n in toposort(values, enter=lambda n: n is not apart) if isinstance(n.op, Load)]
