"""A view of a computed value, by movement ops where they can say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intaglio.ir.view import View
from intaglio.ops import movement
from intaglio.ops.memory import window
from intaglio.ops.movement import expand

if TYPE_CHECKING:
    from intaglio.ir.node import Node


def view_of(view: View, value: Node) -> Node:
    """A view of a computed value: by movement ops where they can say it (fusion sees through them), else a window."""
    if view.dtype is value.dtype:
        if view.is_contiguous and view.offset == 0 and view.size == value.size:
            return movement.reshape(value, view.shape)
        moved = _by_movement(view, value)
        if moved is not None:
            return moved
    return window(view, value)


def _by_movement(view: View, value: Node) -> Node | None:
    """A view whose axes are axes of the value: cut, reversed, permuted, repeated."""
    item = value.dtype.itemsize
    whole = View.contiguous(value.dtype, value.shape)
    if view.size == 0 or 0 in value.shape:
        return None
    axes = [(s, a) for a, (s, n) in enumerate(zip(whole.strides, whole.shape, strict=True)) if n > 1]
    by_stride = dict(axes)
    chosen: dict[int, int] = {}  # value axis -> view axis
    for place, (n, s) in enumerate(zip(view.shape, view.strides, strict=True)):
        if n == 1 or s == 0:
            continue
        axis = by_stride.get(abs(s))
        if axis is None or axis in chosen:
            return None
        chosen[axis] = place
    low = view.offset + sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True) if s < 0)
    if low % item:
        return None
    bounds: list[tuple[int, int]] = []
    flips: list[int] = []
    for a, (n, s) in enumerate(zip(whole.shape, whole.strides, strict=True)):
        start, low = divmod(low, s) if n > 1 else (0, low)
        place = chosen.get(a)
        count = view.shape[place] if place is not None else 1
        if start + count > n or start < 0:
            return None
        bounds.append((start, start + count))
        if place is not None and view.strides[place] < 0:
            flips.append(a)
    if low:
        return None
    node = movement.flip(movement.shrink(value, tuple(bounds)), tuple(flips))
    order = sorted(chosen, key=lambda a: chosen[a])
    rest = [a for a in range(node.rank) if a not in chosen]
    node = movement.permute(node, (*order, *rest))
    kept = tuple(n if s != 0 and n != 1 else 1 for n, s in zip(view.shape, view.strides, strict=True))
    return expand(movement.reshape(node, kept), view.shape)
