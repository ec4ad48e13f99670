"""Adjacent ranges of reductions as one, where all memory that they step through allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intaglio.ir.node import Node, make, rebuild, substitute, toposort, walk
from intaglio.lower.index import number
from intaglio.ops.loop import Range
from intaglio.ops.memory import Load
from intaglio.ops.reduce import Fold

if TYPE_CHECKING:
    from intaglio.lower.index import Index


def merge_folds(root: Node, index: Index) -> Node:
    """Fold(f(r, s), r, s) -> Fold(f(t), t), where every load steps along r by as much as along all of s."""
    done: dict[Node, Node] = {}
    for node in toposort((root,)):
        made = rebuild(node, tuple(done[s] for s in node.src)) if node.src else node
        done[node] = _merged(made, index) if isinstance(made.op, Fold) and len(made.src) > 2 else made
    return done[root]


def _merged(fold: Node, index: Index) -> Node:
    """One fold with as few ranges as its loads allow."""
    body, *ranges = fold.src
    kept = [ranges[0]]
    for inner in ranges[1:]:
        outer = kept[-1]
        whole = _joined(body, outer, inner, index)
        if whole is None:
            kept.append(inner)
            continue
        (body,) = substitute((body,), {inner: whole, outer: number(0)})
        kept[-1] = whole
    return fold if len(kept) == len(ranges) else make(fold.op, body, *kept)


def _joined(body: Node, outer: Node, inner: Node, index: Index) -> Node | None:
    """The range that runs through two, or None: numbered as the inner one, so that equal folds stay equal."""
    (height, more), (width, rest) = index.affine(outer.src[0]), index.affine(inner.src[0])
    if more or rest or not isinstance(inner.op, Range):
        return None
    if index.varies(height) and index.varies(width):
        return None
    pair = {outer, inner}
    for node in toposort((body,), enter=lambda n: not isinstance(n.op, Load)):
        if node in pair:
            return None
        if not isinstance(node.op, Load):
            continue
        _, terms = index.affine(node.src[1])
        step = terms.get(inner, 0)
        if (step and index.varies(step) and index.varies(width)) or terms.get(outer, 0) != index.times(width, step):
            return None
        others = [t for t in terms if t not in pair]
        if any(n in pair for n in walk((*others, *node.src[2:]))):
            return None
    return make(Range(inner.op.axis), number(height * width))
