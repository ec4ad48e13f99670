"""Convolutions as composite ops: products by windows that slide over an image, in any number of dimensions.

Pulled back by themselves, and not by what they stand for: the windows overlap, so that what each gives would have to be
added where it belongs. The cotangents are convolutions as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from intaglio.ir.node import make
from intaglio.ir.view import View
from intaglio.ops.composite import Composite, sum_of_products
from intaglio.ops.memory import window
from intaglio.ops.movement import expand, flip, pad, permute, reshape, shrink

if TYPE_CHECKING:
    from intaglio.ir.node import Node, Result, Shape


@dataclass(frozen=True, slots=True)
class Windowed(Composite):
    """Where windows are: `positions` of them along each axis of space, by steps; within one, places by dilations.

    `pads` are the zeros before and after each axis of space; the channels are in groups that are apart.
    """

    positions: Shape
    kernel: Shape
    steps: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    groups: int


@dataclass(frozen=True, slots=True)
class Convolution(Windowed):
    """The correlation with kernels. src: (x: (n, g c, *space), w: (g o, c, *kernel)) -> (n, g o, *positions)."""

    name: ClassVar[str] = "convolution"

    def infer(self, x: Node, w: Node) -> Result:
        """A value for each window and each kernel."""
        return x.dtype, (x.shape[0], w.shape[0], *self.positions)

    def vjp(self, ct: Node, out: Node, x: Node, w: Node) -> tuple[Node, Node]:
        """A convolution with the kernels turned round; the products of windows by the cotangent."""
        kernels = KernelsOf(self.positions, self.kernel, self.steps, self.dilations, self.pads, self.groups)
        return image_of(self, x.shape[2:], ct, w), make(kernels, x, ct)

    def written_out(self, x: Node, w: Node) -> Node:
        """The sum of products along the channels of a group and the places of a window."""
        rank, groups = len(self.positions), self.groups
        batch, channels, kernels = x.shape[0], w.shape[1], w.shape[0] // groups
        x = pad(x, ((0, 0), (0, 0), *self.pads))
        seen = _windows(self, x, (batch, groups, channels), 2)
        full = (batch, groups, kernels, *self.positions, channels, *self.kernel)
        outer, inner = range(3, 3 + rank), range(4 + rank, 4 + 2 * rank)
        left = _spread(seen, (0, 1, 3 + rank, *outer, *inner), full)
        right = _spread(reshape(w, (groups, kernels, channels, *self.kernel)), (1, 2, 3 + rank, *inner), full)
        out = sum_of_products(left, right, (3 + rank, *inner))
        return reshape(out, (batch, groups * kernels, *self.positions))


@dataclass(frozen=True, slots=True)
class KernelsOf(Windowed):
    """What kernels get of a cotangent. src: (x: (n, g c, *space), y: (n, g o, *positions)) -> (g o, c, *kernel)."""

    name: ClassVar[str] = "kernels_of"

    def infer(self, x: Node, y: Node) -> Result:
        """Kernels for the channels of both."""
        return x.dtype, (y.shape[1], x.shape[1] // self.groups, *self.kernel)

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> tuple[Node, Node]:
        """Convolutions with the cotangent."""
        forward = Convolution(self.positions, self.kernel, self.steps, self.dilations, self.pads, self.groups)
        return image_of(self, x.shape[2:], y, ct), make(forward, x, ct)

    def written_out(self, x: Node, y: Node) -> Node:
        """The sum of products along the batch and the positions, channels last: neighbours are in vectors."""
        rank, groups = len(self.positions), self.groups
        batch, channels, kernels = x.shape[0], x.shape[1] // groups, y.shape[1] // groups
        x = reshape(x, (batch, groups, channels, *x.shape[2:]))
        x = permute(x, (0, 1, *range(3, 3 + rank), 2))
        x = pad(x, ((0, 0), (0, 0), *self.pads, (0, 0)))
        seen = _windows(self, x, (batch, groups), 2, (channels,))
        full = (groups, kernels, *self.kernel, channels, batch, *self.positions)
        inner, outer = range(2, 2 + rank), range(4 + rank, 4 + 2 * rank)
        left = _spread(reshape(y, (batch, groups, kernels, *self.positions)), (3 + rank, 0, 1, *outer), full)
        right = _spread(seen, (3 + rank, 0, *outer, 2 + rank, *inner), full)
        out = sum_of_products(left, right, (3 + rank, *outer))
        out = permute(out, (0, 1, 2 + rank, *inner))
        return reshape(out, (groups * kernels, channels, *self.kernel))


def image_of(op: Windowed, space: Shape, y: Node, w: Node) -> Node:
    """What an image gets of a cotangent: each element of it spreads the kernels over a window."""
    groups, channels = op.groups, w.shape[1]
    for axis, (n, k, s, d, (before, _)) in enumerate(
        zip(space, op.kernel, op.steps, op.dilations, op.pads, strict=True), 2
    ):
        y = _apart(y, axis, s)
        first = d * (k - 1) - before
        last = n + before - y.shape[axis]
        y = pad(y, tuple((max(first, 0), max(last, 0)) if a == axis else (0, 0) for a in range(y.rank)))
        ends = max(-first, 0), y.shape[axis] - max(-last, 0)
        y = shrink(y, tuple(ends if a == axis else (0, m) for a, m in enumerate(y.shape)))
    w = permute(reshape(w, (groups, -(-w.shape[0] // groups), *w.shape[1:])), (0, 2, 1, *range(3, w.rank + 1)))
    w = flip(w, tuple(a for a in range(3, w.rank) if w.shape[a] > 1))
    w = reshape(w, (groups * channels, *w.shape[2:]))
    ones, none = (1,) * len(space), ((0, 0),) * len(space)
    return make(Convolution(space, op.kernel, ones, op.dilations, none, groups), y, w)


def _apart(y: Node, axis: int, step: int) -> Node:
    """The elements of an axis at every `step`-th place, zeros between them."""
    n = y.shape[axis]
    if step == 1 or n < 2:
        return y
    lead, tail = y.shape[:axis], y.shape[axis + 1 :]
    y = reshape(y, (*lead, n, 1, *tail))
    y = pad(y, tuple((0, step - 1) if a == axis + 1 else (0, 0) for a in range(y.rank)))
    y = reshape(y, (*lead, n * step, *tail))
    return shrink(y, tuple((0, (n - 1) * step + 1) if a == axis else (0, m) for a, m in enumerate(y.shape)))


def _windows(op: Windowed, x: Node, lead: Shape, first: int, tail: Shape = ()) -> Node:
    """The windows of a padded image whose space begins at an axis: (*lead, *positions, *tail, *kernel)."""
    space = x.shape[first : first + len(op.positions)]
    sizes = (*lead, *space, *tail)
    strides = View.contiguous(x.dtype, sizes).strides
    a, b = len(lead), len(lead) + len(space)
    moved = tuple(s * n for s, n in zip(strides[a:b], op.steps, strict=True))
    within = tuple(s * n for s, n in zip(strides[a:b], op.dilations, strict=True))
    shape = (*lead, *op.positions, *tail, *op.kernel)
    return window(View(x.dtype, shape, (*strides[:a], *moved, *strides[b:], *within), 0), x)


def _spread(x: Node, places: tuple[int, ...], full: Shape) -> Node:
    """A value whose axes are some of a larger one, repeated along the others."""
    order = sorted(range(x.rank), key=lambda axis: places[axis])
    x = permute(x, tuple(order))
    return expand(reshape(x, tuple(n if a in places else 1 for a, n in enumerate(full))), full)
