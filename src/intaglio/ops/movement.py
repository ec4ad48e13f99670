"""Movement: the same elements under another shape or order, with no arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from intaglio.core.errors import InternalError
from intaglio.ir.node import Node, Op, Result, Shape, make


class Movement(Op):
    """An op whose every output element is one input element (or, for Pad, zero)."""

    def vjp(self, ct: Node, out: Node, x: Node) -> tuple[Node]:
        """The cotangent of x, given that of the result."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Reshape(Movement):
    """The same elements in row-major order under a new shape."""

    to: Shape
    name: ClassVar[str] = "reshape"

    def infer(self, x: Node) -> Result:
        """The new shape; sizes must agree."""
        size = 1
        for extent in self.to:
            size *= extent
        if size != x.size:
            raise InternalError(f"reshape: {x.shape} has {x.size} elements, {self.to} has {size}")
        return x.dtype, self.to

    def vjp(self, ct: Node, out: Node, x: Node) -> tuple[Node]:
        """Under the old shape."""
        return (reshape(ct, x.shape),)


@dataclass(frozen=True, slots=True)
class Permute(Movement):
    """Axes in another order: out.shape[i] = x.shape[order[i]]."""

    order: tuple[int, ...]
    name: ClassVar[str] = "permute"

    def infer(self, x: Node) -> Result:
        """The permuted shape."""
        if sorted(self.order) != list(range(x.rank)):
            raise InternalError(f"permute: {self.order} is no order of {x.rank} axes")
        return x.dtype, tuple(x.shape[axis] for axis in self.order)

    def vjp(self, ct: Node, out: Node, x: Node) -> tuple[Node]:
        """In the old order."""
        return (permute(ct, tuple(self.order.index(axis) for axis in range(x.rank))),)


@dataclass(frozen=True, slots=True)
class Expand(Movement):
    """Axes of size 1 repeated to a new size. A scalar may be expanded to any shape."""

    to: Shape
    name: ClassVar[str] = "expand"

    def infer(self, x: Node) -> Result:
        """The new shape."""
        if x.shape != () and (
            len(self.to) != x.rank or any(a not in (1, b) for a, b in zip(x.shape, self.to, strict=True))
        ):
            raise InternalError(f"expand: {x.shape} to {self.to}")
        return x.dtype, self.to

    def vjp(self, ct: Node, out: Node, x: Node) -> tuple[Node]:
        """As it is: whoever pulls back sums over repetitions."""
        return (ct,)


@dataclass(frozen=True, slots=True)
class Pad(Movement):
    """Zeros before and after along each axis: pads[i] = (before, after), both >= 0."""

    pads: tuple[tuple[int, int], ...]
    name: ClassVar[str] = "pad"

    def infer(self, x: Node) -> Result:
        """The grown shape."""
        if len(self.pads) != x.rank or any(a < 0 or b < 0 for a, b in self.pads):
            raise InternalError(f"pad: {self.pads} for shape {x.shape}")
        return x.dtype, tuple(n + a + b for n, (a, b) in zip(x.shape, self.pads, strict=True))

    def vjp(self, ct: Node, out: Node, x: Node) -> tuple[Node]:
        """Without what was added."""
        return (shrink(ct, tuple((a, a + n) for (a, _), n in zip(self.pads, x.shape, strict=True))),)


@dataclass(frozen=True, slots=True)
class Shrink(Movement):
    """A box of the input: bounds[i] = (first, end)."""

    bounds: tuple[tuple[int, int], ...]
    name: ClassVar[str] = "shrink"

    def infer(self, x: Node) -> Result:
        """The box's shape."""
        if len(self.bounds) != x.rank or any(
            not 0 <= a <= b <= n for n, (a, b) in zip(x.shape, self.bounds, strict=True)
        ):
            raise InternalError(f"shrink: {self.bounds} of shape {x.shape}")
        return x.dtype, tuple(b - a for a, b in self.bounds)

    def vjp(self, ct: Node, out: Node, x: Node) -> tuple[Node]:
        """Zeros outside the box."""
        return (pad(ct, tuple((a, n - b) for (a, b), n in zip(self.bounds, x.shape, strict=True))),)


@dataclass(frozen=True, slots=True)
class Flip(Movement):
    """Some axes in reverse."""

    axes: tuple[int, ...]
    name: ClassVar[str] = "flip"

    def infer(self, x: Node) -> Result:
        """The same shape."""
        if any(not 0 <= axis < x.rank for axis in self.axes):
            raise InternalError(f"flip: axes {self.axes} of shape {x.shape}")
        return x.dtype, x.shape

    def vjp(self, ct: Node, out: Node, x: Node) -> tuple[Node]:
        """Reversed again."""
        return (flip(ct, self.axes),)


def reshape(x: Node, shape: Shape) -> Node:
    """x under a new shape."""
    return x if x.shape == shape else make(Reshape(shape), x)


def permute(x: Node, order: tuple[int, ...]) -> Node:
    """x with its axes in another order."""
    return x if order == tuple(range(x.rank)) else make(Permute(order), x)


def expand(x: Node, shape: Shape) -> Node:
    """x repeated along its axes of size 1."""
    return x if x.shape == shape else make(Expand(shape), x)


def broadcast(x: Node, shape: Shape) -> Node:
    """x repeated along axes that it lacks or has at size 1. A scalar stays one: elementwise ops take it as it is."""
    if x.shape in (shape, ()):
        return x
    missing = len(shape) - x.rank
    return expand(reshape(x, (1,) * missing + x.shape) if missing else x, shape)


def pad(x: Node, pads: tuple[tuple[int, int], ...]) -> Node:
    """x with zeros around it."""
    return make(Pad(pads), x) if any(a or b for a, b in pads) else x


def shrink(x: Node, bounds: tuple[tuple[int, int], ...]) -> Node:
    """A box of x."""
    return x if bounds == tuple((0, n) for n in x.shape) else make(Shrink(bounds), x)


def flip(x: Node, axes: tuple[int, ...]) -> Node:
    """x with some axes in reverse."""
    return make(Flip(axes), x) if axes else x
