"""Ops with the value of another and a slope of their own, where the other has two slopes or none: PyTorch's choices.

Where a program is planned, the other takes the op's place: no kernel knows of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, ClassVar

from intaglio.core.dtypes import dtypes
from intaglio.ops import elementwise as ops
from intaglio.ops.memory import const, iota
from intaglio.ops.movement import expand, reshape
from intaglio.ops.reduce import Reduce, reduce, repeated

if TYPE_CHECKING:
    from intaglio.ir.node import Node
    from intaglio.ops.elementwise import Gradients, Number


class AtLeast(ops.Sloped, ops.Maximum):
    """x, or a bound if that is larger. Where both are equal, the slope is that of x."""

    name: ClassVar[str] = "at_least"
    planned = staticmethod(ops.maximum)

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        none = const(ct.dtype, 0)
        return ops.where(ops.ge(x, y), ct, none), ops.where(ops.lt(x, y), ct, none)


class AtMost(ops.Sloped, ops.Minimum):
    """x, or a bound if that is smaller. Where both are equal, the slope is that of x."""

    name: ClassVar[str] = "at_most"
    planned = staticmethod(ops.minimum)

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        none = const(ct.dtype, 0)
        return ops.where(ops.le(x, y), ct, none), ops.where(ops.gt(x, y), ct, none)


class Above(ops.Sloped, ops.Maximum):
    """x, or a bound if that is larger. Where both are equal, the slope is that of the bound."""

    name: ClassVar[str] = "above"
    planned = staticmethod(ops.maximum)

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        return _past(ct, ops.le(x, y))


class Below(ops.Sloped, ops.Minimum):
    """x, or a bound if that is smaller. Where both are equal, the slope is that of the bound."""

    name: ClassVar[str] = "below"
    planned = staticmethod(ops.minimum)

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        return _past(ct, ops.ge(x, y))


def _past(ct: Node, bounded: Node) -> Gradients:
    """The cotangents of what is bounded and of its bound; NaN is not bounded."""
    none = const(ct.dtype, 0)
    return ops.where(bounded, none, ct), ops.where(bounded, ct, none)


class RightAbs(ops.Sloped, ops.Abs):
    """The magnitude. Its slope at 0 is 1, as it is to the right of it.

    With `AtLeast`, whose slope is that of x where x is the bound, smooth sums of both have their slopes of any order.
    """

    name: ClassVar[str] = "right_abs"
    planned = staticmethod(ops.absolute)

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (ops.where(ops.lt(x, const(x.dtype, 0)), ops.neg(ct), ct),)


class LogChance(ops.Sloped, ops.Unary):
    """The logarithm of a probability, -100 at least. Its slope is (1 - x) / (x * (1 - x)), divided by 1e-12 at least.

    So that of a cross-entropy of x with t, as PyTorch's, is (x - t) / (x * (1 - x)), and a number at 0 and at 1.
    """

    name: ClassVar[str] = "log_chance"

    def planned(self, x: Node) -> Node:
        """The larger one."""
        return ops.maximum(ops.log(x), const(x.dtype, -100))

    def evaluate(self, x: Number) -> Number:
        return ops.MAXIMUM.evaluate(ops.LOG.evaluate(x), -100.0)

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        rest = ops.sub(const(x.dtype, 1), x)
        return (ops.div(ops.mul(ct, rest), ops.maximum(ops.mul(x, rest), const(x.dtype, 1e-12))),)


class Length(ops.Sloped, ops.Sqrt):
    """The square root of a sum of squares. Its slope at 0 is 0."""

    name: ClassVar[str] = "length"
    planned = staticmethod(ops.sqrt)

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        none = const(out.dtype, 0)
        zero = ops.eq(out, none)
        twice = ops.mul(ops.where(zero, const(out.dtype, 1), out), const(out.dtype, 2))  # no 0 in slopes of slopes
        return (ops.div(ops.where(zero, none, ct), twice),)


class LengthPower(ops.Sloped, ops.Pow):
    """A power of magnitudes, or of a sum of such. Its slope where they are 0 is 0."""

    name: ClassVar[str] = "length_power"
    planned = staticmethod(ops.power)

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        none, one = const(x.dtype, 0), const(x.dtype, 1)
        zero = ops.eq(x, none)
        slope = ops.mul(y, ops.power(ops.where(zero, one, x), ops.sub(y, one)))
        return ops.mul(ops.where(zero, none, ct), slope), None


@dataclass(frozen=True, slots=True, eq=False)
class Chosen(ops.Sloped, Reduce):
    """A maximum or minimum along axes whose slope is all that of the first of the elements that are equal to it."""

    name: ClassVar[str] = "chosen"

    def planned(self, x: Node) -> Node:
        """The reduction."""
        return reduce(self.kind, x, self.axes)

    def vjp(self, ct: Node, out: Node, x: Node) -> tuple[Node]:
        """The cotangent where the first of them is, or the first NaN if there is one."""
        ct, out = repeated(ct, x, self.axes), repeated(out, x, self.axes)
        line = tuple([n if a in self.axes else 1 for a, n in enumerate(x.shape)])
        count = prod(line)
        number = dtypes.int32 if dtypes.int32.fits(count) else dtypes.int64
        places = expand(reshape(ops.cast(iota(count), number), line), x.shape)
        hit = ops.or_(ops.eq(x, out), ops.ne(x, x))
        first = reduce("min", ops.where(hit, places, const(number, count)), self.axes)
        return (ops.where(ops.eq(places, repeated(first, x, self.axes)), ct, const(ct.dtype, 0)),)
