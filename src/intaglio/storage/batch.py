"""A pattern over many entries as one whole-array expression: every op with the loop's axes in front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intaglio.core.errors import InternalError
from intaglio.ir.node import Node, make
from intaglio.ir.view import View
from intaglio.ops import movement
from intaglio.ops.elementwise import Elementwise
from intaglio.ops.loop import Range
from intaglio.ops.memory import Const, Iota, Take, Window
from intaglio.ops.movement import Expand, Flip, Pad, Permute, Reshape, Shrink, expand, reshape
from intaglio.ops.reduce import Reduce, Scan
from intaglio.storage.skeleton import OpStep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.storage.skeleton import Leaf, Pattern

Shape = tuple[int, ...]


def batch(pattern: Pattern, axes: Shape, leaf: Callable[[Leaf, int], tuple[Node, bool]]) -> Node:
    """The pattern's value for all entries at once: shape `axes` + the shape of one entry's value.

    `leaf(step, first_hole)` gives a read or number, and whether it has the loop's axes in front.
    """
    values: list[tuple[Node, bool]] = []
    hole = 0
    for step in pattern.steps:
        if isinstance(step, OpStep):
            values.append(_apply(step, [values[i] for i in step.src], axes))
        else:
            values.append(leaf(step, hole))
            hole += step.holes
    value, batched = values[-1]
    if batched:
        return value
    own = value.shape
    return expand(reshape(value, (1,) * len(axes) + own), axes + own) if axes else value


def supports(pattern: Pattern) -> bool:
    """Whether every op of the pattern can be batched."""
    known = (
        Elementwise,
        Reshape,
        Permute,
        Expand,
        Pad,
        Shrink,
        Flip,
        Reduce,
        Scan,
        Take,
        Window,
        Const,
        Iota,
        Range,
    )
    return all(isinstance(step.op, known) for step in pattern.steps if isinstance(step, OpStep))


def _apply(step: OpStep, src: Sequence[tuple[Node, bool]], axes: Shape) -> tuple[Node, bool]:
    """One op over inputs, some of which have the loop's axes in front."""
    op = step.op
    if not any(batched for _, batched in src):
        return make(op, *(node for node, _ in src)), False
    k = len(axes)
    ones = (1,) * k
    node = src[0][0]
    match op:
        case Elementwise():
            return make(op, *(_align(n, b, axes, step.shape) for n, b in src)), True
        case Reshape(to=to):
            return reshape(node, axes + to), True
        case Expand(to=to):
            own = node.shape[k:]
            if not own:
                node = reshape(node, axes + (1,) * len(to))
            return expand(node, axes + to), True
        case Permute(order=order):
            return movement.permute(node, tuple(range(k)) + tuple(k + a for a in order)), True
        case Pad(pads=pads):
            return movement.pad(node, ((0, 0),) * k + pads), True
        case Shrink(bounds=bounds):
            return movement.shrink(node, tuple((0, n) for n in axes) + bounds), True
        case Flip(axes=flipped):
            return movement.flip(node, tuple(k + a for a in flipped)), True
        case Reduce(kind=kind, axes=along) as op:
            return make(type(op)(kind, tuple(k + a for a in along)), node), True
        case Scan(kind=kind, axis=axis):
            return make(Scan(kind, k + axis), node), True
        case Window(view=view):
            return _window(view, node, axes, src), True
        case Take():
            return _take(src, axes, ones), True
        case _:
            raise InternalError(f"batch: {op.name} has no batched form")


def _align(node: Node, batched: bool, axes: Shape, own: Shape) -> Node:
    """An operand of an elementwise op: a scalar as it is, anything else in the full shape."""
    if not batched:
        if node.shape == ():
            return node
        return expand(reshape(node, (1,) * len(axes) + node.shape), axes + node.shape)
    if node.shape == axes and own:
        return expand(reshape(node, axes + (1,) * len(own)), axes + own)
    return node


def _window(view: View, node: Node, axes: Shape, src: Sequence[tuple[Node, bool]]) -> Node:
    """A view of each entry's own value."""
    if len(src) > 1:
        raise InternalError("batch: a window with an offset has no batched form")
    item = node.dtype.itemsize
    for extent in node.shape[len(axes) :]:
        item *= extent
    strides: list[int] = []
    for extent in reversed(axes):
        strides.insert(0, item)
        item *= extent
    return make(Window(View(view.dtype, axes + view.shape, tuple(strides) + view.strides, view.offset)), node)


def _take(src: Sequence[tuple[Node, bool]], axes: Shape, ones: Shape) -> Node:
    """Elements at each entry's own positions, of one array or of each entry's own."""
    (x, own), *indices = src
    shape = next((i.shape[len(axes) :] if b else i.shape) for i, b in indices)
    full = [i if b else expand(reshape(i, ones + i.shape), axes + i.shape) for i, b in indices]
    if not own:
        return make(Take(), x, *full)
    rows: list[Node] = []
    for axis, extent in enumerate(axes):
        place = tuple(extent if a == axis else 1 for a in range(len(axes))) + (1,) * len(shape)
        rows.append(expand(reshape(make(Iota(extent)), place), axes + shape))
    return make(Take(), x, *rows, *full)
