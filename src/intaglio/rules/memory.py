"""Memory: windows on values that need none, loads whose gate is known."""

from __future__ import annotations

from typing import Final

from intaglio.ir.node import Node, make
from intaglio.ir.rule import Ruleset, constant
from intaglio.ops.memory import Buffer, Const, Load, Param, Window, window
from intaglio.ops.movement import reshape

memory: Final = Ruleset("memory")


@memory.rewrite(Window)
def window_on_whole_value(node: Node) -> Node | None:
    """window(x) -> reshape(x), where it selects all of a computed x in its order."""
    if not isinstance(node.op, Window) or len(node.src) != 1:
        return None
    x, view = node.src[0], node.op.view
    if isinstance(x.op, (Buffer, Param)) or x.dtype is not view.dtype:
        return None
    whole = view.is_contiguous and not view.offset and view.size == x.size
    return reshape(x, view.shape) if whole else None


@memory.rewrite(Window)
def window_on_window(node: Node) -> Node | None:
    """window(window(x)) -> window(x), where the inner one is a run of bytes."""
    if not isinstance(node.op, Window) or len(node.src) != 1:
        return None
    inner, view = node.src[0], node.op.view
    if not isinstance(inner.op, Window) or not inner.op.view.is_contiguous:
        return None
    low, high = view.byte_bounds()
    if low < 0 or high > inner.op.view.nbytes:
        return None
    return window(view._replace(offset=view.offset + inner.op.view.offset), *inner.src)


@memory.rewrite(Load)
def load_with_known_gate(node: Node) -> Node | None:
    """load(p, i, true) -> load(p, i); load(p, i, false) -> 0."""
    if len(node.src) < 3 or not isinstance(node.src[2].op, Const):
        return None
    if node.src[2].op.value:
        return make(node.op, *node.src[:2])
    return None if node.shape else constant(node.dtype, 0)
