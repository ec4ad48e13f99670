"""How each value's position follows from the loops around it: which values a kernel would compute more than once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ops.elementwise import Elementwise
from intaglio.ops.memory import Take
from intaglio.ops.movement import Expand, Flip, Pad, Permute, Reshape, Shrink
from intaglio.ops.reduce import Reduce

if TYPE_CHECKING:
    from collections.abc import Container

    from intaglio.ir.node import Node

Axes = tuple[frozenset[int], ...]  # for each axis of a node, the loops of the kernel that its position depends on
Folds = dict[tuple["Node", Axes, int], int]  # the loops of reductions

FIRST: Final = 1000  # the number of the first loop of a reduction
DOWN: Final = 1 << 12  # elements down a column up to which a few columns stay in the second cache
BRIEFLY: Final = 1 << 8  # and up to which that is worth it for one reduction: rows as a whole are read faster
ALONG: Final = 1 << 18  # elements that lie together up to which they do
COLUMNS: Final = 1 << 10  # columns from which threads may share them
SHEETS: Final = 16  # and matrices, or what else is reduced as a whole
SMALL: Final = 1 << 19  # elements of a value up to which one thread computes it
TOGETHER: Final = 16  # elements that lie together from which they are vectors

_MOVED: Final = (Elementwise, Permute, Expand, Pad, Shrink, Flip, Reshape, Reduce)  # computed where it is used
Ways = dict[tuple[Axes, tuple[int, ...]], None]


class Contexts:
    """How each value's position follows from the loops around it, from the root down; what would be repeated is chosen.

    A way is (for each axis the loops it depends on, the loops in order). A value with a buffer starts loops of its own.
    """

    def __init__(self, root: Node, order: list[Node], done: dict[Node, Node], chosen: set[Node]) -> None:
        self.root: Final = root
        self.order: Final = order
        self.done: Final = done
        self.chosen: Final = chosen
        self.ways: Final[dict[Node, Ways]] = {n: {} for n in order}
        self.folds: Final[Folds] = {}

    def run(self) -> None:
        """Decide for every node, users first."""
        for node in reversed(self.order):
            if node in self.done and node is not self.root:
                continue
            if node is not self.root and node not in self.chosen and self._repeats(node):
                self.chosen.add(node)
            if node is self.root or node in self.chosen:
                ways: Ways = {(_own(node), loops_of(node, self.done, self.chosen)): None}
            else:
                ways = self.ways[node]
            for axes, loops in list(ways)[:4]:
                for source, given, around in _inputs(node, axes, loops, self.folds):
                    known = self.ways.get(source)
                    if known is not None and len(known) < 4:
                        known[given, around] = None

    def _repeats(self, node: Node) -> bool:
        """Whether a value of some cost would be computed more than once."""
        ways = self.ways[node]
        match node.op:
            case Reduce():
                return len({axes for axes, _ in ways}) > 1 or not _outermost(ways)
            case Elementwise() as op:
                return not op.primitive and bool(node.shape) and not _outermost(ways)
            case _:
                return False


def loops_of(root: Node, done: Container[Node] = (), stored: Container[Node] = ()) -> tuple[int, ...]:
    """The loops of a value that is stored, from the outermost in: its axes in order, or first those of its reductions.

    softmax(x, 0): for each column, its maximum, its sum, and then its rows. So the kernel reads x once, from memory;
    where a few columns stay in a cache until their rows are there.

    Args:
        done: Values that are in buffers.
        stored: Others that will be.
    """
    plain = tuple([a for a, n in enumerate(root.shape) if n != 1])
    if len(plain) < 2:
        return plain
    read = _Reductions(root, plain, done, stored)
    if len(read.loops) != 1:
        return plain
    (lead,) = read.loops
    order = (*[a for a in plain if a in lead], *[a for a in plain if a not in lead])
    return order if order != plain and _pays(root, plain, lead, read) else plain


def _pays(root: Node, plain: tuple[int, ...], lead: frozenset[int], read: _Reductions) -> bool:
    """Whether what is reduced together is still in a cache when it is read again, and threads have enough to share."""
    count = math.prod([root.shape[a] for a in lead])
    if not read.is_read_again(count):
        return False
    rest = max(root.size // max(count, 1), read.longest)
    columns = plain[-1] in lead
    near = 1
    for a in reversed(plain):
        if (a in lead) is not columns:
            break
        near *= root.shape[a]
    down = DOWN if len(read.found) > 1 else BRIEFLY
    if near < TOGETHER or rest > (down if columns else ALONG):
        return False
    sheets = count // near if columns else count
    return root.size <= SMALL or sheets >= SHEETS or (columns and near >= COLUMNS)


def is_of_same_row(root: Node, part: Node) -> bool:
    """Whether a value that another of its shape is made of is needed only at the position of that."""
    start, folds = _own(root), Folds()
    seen: set[tuple[Node, Axes]] = set()
    stack = [(root, start)]
    found = False
    while stack:
        node, axes = stack.pop()
        if node is part:
            if axes != start:
                return False
            found = True
            continue
        for source, given, _ in _inputs(node, axes, (), folds):
            if (source, given) not in seen:
                seen.add((source, given))
                stack.append((source, given))
    return found


class _Reductions:
    """What the reductions depend on that a value takes, and what they read.

    Attributes:
        loops: The loops of the value that they depend on, but for those that depend on all or on none.
        found: Those reductions.
        longest: How many values the longest of them takes.
    """

    def __init__(self, root: Node, plain: tuple[int, ...], done: Container[Node], stored: Container[Node]) -> None:
        self.loops: Final[set[frozenset[int]]] = set()
        self.found: Final[set[Node]] = set()
        self.longest: int = 0
        self._inside: Final[set[Node]] = set()  # what reductions read from memory
        self._beside: Final[set[Node]] = set()  # what the value reads by itself
        every = frozenset(plain)
        folds: Folds = {}
        seen: set[tuple[Node, Axes, bool]] = set()
        stack = [(root, _own(root), False)]
        while stack and len(self.loops) < 2:
            node, axes, reduced = stack.pop()
            known = node is not root and (node in done or node in stored)
            if known or not node.src or not isinstance(node.op, _MOVED):
                (self._inside if reduced else self._beside).add(node)
                continue
            if isinstance(node.op, Reduce):
                used = _union(axes) & every
                if used == every:
                    continue
                if used:
                    self.loops.add(used)
                    self.found.add(node)
                    self.longest = max(self.longest, node.src[0].size // max(node.size, 1))
                reduced = True
            for source, given, _ in _inputs(node, axes, (), folds):
                following = source, given, reduced
                if following not in seen:
                    seen.add(following)
                    stack.append(following)

    def is_read_again(self, count: int) -> bool:
        """Whether the value reads some of what is reduced: more than so many values."""
        return any(node.size > count for node in self._inside & self._beside)


def _own(node: Node) -> Axes:
    """The axes of a value that is stored: each has a loop."""
    return tuple([frozenset((a,)) if n != 1 else frozenset() for a, n in enumerate(node.shape)])


def _inputs(node: Node, axes: Axes, loops: tuple[int, ...], folds: Folds) -> list[tuple[Node, Axes, tuple[int, ...]]]:
    """How the inputs' axes follow from the loops."""
    nothing: frozenset[int] = frozenset()
    match node.op:
        case Elementwise():
            return [(s, axes if s.shape else (), loops) for s in node.src]
        case Permute(order=order):
            moved = [nothing] * len(order)
            for place, axis in enumerate(order):
                moved[axis] = axes[place]
            return [(node.src[0], tuple(moved), loops)]
        case Expand():
            (x,) = node.src
            kept = tuple(nothing if n == 1 else a for n, a in zip(x.shape, axes, strict=True)) if x.shape else ()
            return [(x, kept, loops)]
        case Pad() | Shrink() | Flip():
            return [(node.src[0], axes, loops)]
        case Reshape():
            return [(node.src[0], _reshaped(node.src[0].shape, node.shape, axes), loops)]
        case Reduce(axes=along):
            (x,) = node.src
            inner: list[frozenset[int]] = []
            around = list(loops)
            free = iter(axes)
            for a, n in enumerate(x.shape):
                if a in along:
                    key = (node, axes, a)
                    own = folds.setdefault(key, FIRST + len(folds))
                    inner.append(frozenset((own,)) if n != 1 else nothing)
                    around += [own] if n != 1 else []
                else:
                    inner.append(next(free))
            used = _union(axes)
            around = [loop for loop in loops if loop in used] + around[len(loops) :]
            return [(x, tuple(inner), tuple(around))]
        case Take():
            x, *indices = node.src
            rank = indices[0].rank
            lead = _union(axes[:rank])
            given: list[tuple[Node, Axes, tuple[int, ...]]] = [(i, axes[:rank], loops) for i in indices]
            return [*given, (x, (lead,) * len(indices) + axes[rank:], loops)]
        case _:
            every = _union(axes)
            return [(s, (every,) * s.rank, loops) for s in node.src]


def _union(axes: Axes) -> frozenset[int]:
    """All loops that some axes depend on."""
    total: frozenset[int] = frozenset()
    return total.union(*axes)


def _reshaped(old: tuple[int, ...], new: tuple[int, ...], axes: Axes) -> Axes:
    """The loops of each axis before a reshape, given those after: runs of axes of equal size depend on each other."""
    if 0 in old:
        every = _union(axes)
        return (every,) * len(old)
    result: list[frozenset[int]] = []
    j = 0
    i = 0
    while i < len(old):
        first = i
        size = old[i]
        i += 1
        group: set[int] = set()
        total = 1
        while j < len(new) and total < size:
            total *= new[j]
            group |= axes[j]
            j += 1
        while total != size and i < len(old):
            if size < total:
                size *= old[i]
                i += 1
            else:
                total *= new[j]
                group |= axes[j]
                j += 1
        result.extend(frozenset(group) if old[k] != 1 else frozenset() for k in range(first, i))
    return tuple(result)


def _outermost(ways: Ways) -> bool:
    """Whether the loops that a value's position depends on are the outermost ones around it: it is computed once."""
    for axes, loops in ways:
        used = _union(axes)
        mine = tuple(loop for loop in loops if loop in used)
        if mine != loops[: len(mine)]:
            return False
    return True
