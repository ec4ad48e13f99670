"""Large reductions to few values: pieces first, which threads share, then what comes of them."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from operator import mul
from sys import maxsize
from typing import TYPE_CHECKING, Final

from intaglio.core.size import at, varies
from intaglio.ir.node import rebuild, toposort
from intaglio.ops.elementwise import Elementwise
from intaglio.ops.memory import Take, Window
from intaglio.ops.movement import Expand, Reshape, reshape
from intaglio.ops.reduce import Reduce, reduce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from intaglio.ir.node import Node

LARGE: Final = 1 << 21  # elements from which a reduction is worth more than the launch of another kernel
FEW: Final = 4  # values up to which threads cannot share a reduction as it is
PIECES: Final = 256  # at most, of an axis that is cut; an axis of up to MOST elements is not
MOST: Final = 1 << 13


def in_pieces(root: Node, keep: Callable[[Node], bool]) -> Node:
    """reduce(x) -> reduce(reduce(x in pieces)), where x is large and the result is small.

    It is so with one thread, too: the order of a sum does not depend on how many there are.

    Args:
        keep: Which reductions stay as they are.
    """
    done: dict[Node, Node] = {}
    for node in toposort((root,)):
        made = rebuild(node, tuple(done[s] for s in node.src)) if node.src else node
        done[node] = _cut(made) if is_large(node) and not keep(node) else made
    return done[root]


def is_large(node: Node) -> bool:
    """Whether a node is a large reduction to few values."""
    if not isinstance(node.op, Reduce) or node.size > FEW:
        return False
    size = node.src[0].size
    return size >= LARGE and not varies(size)  # what divides a nominal size divides no other


def whole_up_to(values: Iterable[Node], keep: Callable[[Node], bool]) -> int:
    """The size up to which none of the reductions that some values at the nominal size hold is large."""
    most = LARGE
    for node in toposort(values):
        if isinstance(node.op, Reduce) and node.size <= FEW and varies(node.src[0].size) and not keep(node):
            size = node.src[0].size
            most = min(most, bisect_left(range(1, LARGE), LARGE, key=lambda n, size=size: at(size, n)))
    return most if most < LARGE else maxsize


def pieces_of(node: Node, is_stored: Callable[[Node], bool]) -> list[Node]:
    """The reductions to many values that a reduction to few is made of, and that are large.

    Where it is made of what each of those gives and nothing larger, as the mean of the losses of rows is, then that.

    Args:
        is_stored: Whether a value is in a buffer, or will be: what that is made of is not looked at.
    """

    def is_computed(n: Node) -> bool:
        return isinstance(n.op, (Elementwise, Expand, Reshape, Take)) and not is_stored(n)

    found: list[Node] = []
    for n in toposort(node.src, enter=is_computed):
        large = isinstance(n.op, Reduce) and n.size > FEW and n.src[0].size >= LARGE and not varies(n.src[0].size)
        if large and not is_stored(n):
            found.append(n)
    (body,) = node.src
    return [body] if found and all(n.size >= body.size for n in found) else found


def _cut(node: Node) -> Node:
    """A reduction as one of reductions of pieces, each long in memory; itself where no axis can be cut."""
    op, (x,) = node.op, node.src
    assert isinstance(op, Reduce)
    steps = _steps(x)
    long = sorted((a for a in op.axes if x.shape[a] > FEW), key=lambda a: -steps[a])
    for axis in long:
        n = x.shape[axis]
        if n <= MOST and len(long) > 1:
            return _of_pieces(op, x, op.axes, axis)
        count = next((k for k in range(PIECES, FEW, -1) if n % k == 0 and n > k), 0)
        if count:
            cut = reshape(x, (*x.shape[:axis], count, n // count, *x.shape[axis + 1 :]))
            return _of_pieces(op, cut, (axis, *(a + (a >= axis) for a in op.axes)), axis)
    return node


def _of_pieces(op: Reduce, x: Node, axes: tuple[int, ...], axis: int) -> Node:
    """x reduced along axes: along one of them at last."""
    inner = reduce(op.kind, x, tuple(a for a in axes if a != axis))
    return reduce(op.kind, inner, (axis - sum(a < axis for a in axes),))


def _steps(x: Node) -> list[int]:
    """How far apart neighbours along each axis of a value are in the memory that it is computed from."""
    steps = list(accumulate(reversed(x.shape[1:]), mul, initial=1))[::-1]
    order = toposort((x,), enter=lambda n: isinstance(n.op, Elementwise))
    strides = [n.op.view.strides for n in order if isinstance(n.op, Window) and n.shape == x.shape]
    return [max(map(abs, own)) for own in zip(*strides, strict=True)] or steps
