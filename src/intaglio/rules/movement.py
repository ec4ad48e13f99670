"""Movement merged with movement: one op, or none, where two stood."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ir.rule import Ruleset
from intaglio.ops.memory import Window, window
from intaglio.ops.movement import (
    Expand,
    Flip,
    Movement,
    Pad,
    Permute,
    Reshape,
    Shrink,
    expand,
    flip,
    pad,
    permute,
    reshape,
    shrink,
)  # fmt: skip

if TYPE_CHECKING:
    from intaglio.ir.node import Node
    from intaglio.ir.view import View

movement: Final = Ruleset("movement")


@movement.rewrite(Reshape)
def merge_reshapes(node: Node) -> Node | None:
    """reshape(reshape(x)) -> reshape(x)."""
    inner = node.src[0]
    return reshape(inner.src[0], node.shape) if isinstance(inner.op, Reshape) else None


@movement.rewrite(Permute)
def merge_permutes(node: Node) -> Node | None:
    """permute(permute(x)) -> permute(x), or x."""
    inner = node.src[0]
    if not isinstance(node.op, Permute) or not isinstance(inner.op, Permute):
        return None
    first = inner.op.order
    return permute(inner.src[0], tuple(first[axis] for axis in node.op.order))


@movement.rewrite(Expand)
def merge_expands(node: Node) -> Node | None:
    """expand(expand(x)) -> expand(x)."""
    inner = node.src[0]
    return expand(inner.src[0], node.shape) if isinstance(inner.op, Expand) else None


@movement.rewrite(Flip)
def merge_flips(node: Node) -> Node | None:
    """flip(flip(x)) -> flip of the axes that only one of them names."""
    inner = node.src[0]
    if not isinstance(node.op, Flip) or not isinstance(inner.op, Flip):
        return None
    return flip(inner.src[0], tuple(sorted(set(node.op.axes) ^ set(inner.op.axes))))


@movement.rewrite(Shrink)
def merge_shrinks(node: Node) -> Node | None:
    """shrink(shrink(x)) -> shrink(x)."""
    inner = node.src[0]
    if not isinstance(node.op, Shrink) or not isinstance(inner.op, Shrink):
        return None
    pairs = zip(node.op.bounds, inner.op.bounds, strict=True)
    return shrink(inner.src[0], tuple((first + a, first + b) for (a, b), (first, _) in pairs))


@movement.rewrite(Pad)
def merge_pads(node: Node) -> Node | None:
    """pad(pad(x)) -> pad(x)."""
    inner = node.src[0]
    if not isinstance(node.op, Pad) or not isinstance(inner.op, Pad):
        return None
    pairs = zip(node.op.pads, inner.op.pads, strict=True)
    return pad(inner.src[0], tuple((a + c, b + d) for (a, b), (c, d) in pairs))


@movement.rewrite(Shrink)
def shrink_of_pad(node: Node) -> Node | None:
    """shrink(pad(x)) -> shrink(x), where no zero is left."""
    inner = node.src[0]
    if not isinstance(node.op, Shrink) or not isinstance(inner.op, Pad):
        return None
    x = inner.src[0]
    bounds: list[tuple[int, int]] = []
    for (first, end), (before, _), n in zip(node.op.bounds, inner.op.pads, x.shape, strict=True):
        if first < before or end > before + n:
            return None
        bounds.append((first - before, end - before))
    return shrink(x, tuple(bounds))


@movement.rewrite(Reshape, Permute, Shrink, Flip)
def move_repeated_scalar(node: Node) -> Node | None:
    """move(expand(scalar)) -> expand(scalar)."""
    inner = node.src[0]
    if not isinstance(inner.op, Expand) or inner.src[0].shape:
        return None
    return expand(inner.src[0], node.shape)


@movement.rewrite(Reshape, Permute, Expand, Shrink, Flip)
def move_window(node: Node) -> Node | None:
    """move(window(x)) -> window(x) through another view, where strides allow it."""
    inner = node.src[0]
    if not isinstance(inner.op, Window) or not isinstance(node.op, Movement):
        return None
    view = _moved(inner.op.view, node.op)
    return None if view is None else window(view, *inner.src)


def _moved(view: View, op: Movement) -> View | None:
    """A view after a movement."""
    match op:
        case Reshape(to=shape):
            return view.reshape(shape)
        case Permute(order=order):
            return view.permute(order)
        case Expand(to=shape):
            return view.expand(shape)
        case Shrink(bounds=bounds):
            return view.shrink(bounds)
        case Flip(axes=axes):
            return view.flip(axes)
        case _:
            return None
