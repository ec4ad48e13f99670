"""Reductions and scans: many elements to one, or to each prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import InternalError
from intaglio.ir.node import Node, Op, Result, make

KINDS: Final = ("sum", "prod", "max", "min")


@dataclass(frozen=True, slots=True)
class Reduce(Op):
    """A sum, product, maximum or minimum along axes, which go. dtype as the input (callers cast first).

    An empty sum is 0, an empty product 1; an empty maximum or minimum is the dtype's lowest or highest value.
    """

    kind: str
    axes: tuple[int, ...]
    name: ClassVar[str] = "reduce"

    def infer(self, x: Node) -> Result:
        """The shape without the reduced axes."""
        if self.kind not in KINDS or any(not 0 <= axis < x.rank for axis in self.axes):
            raise InternalError(f"reduce: {self.kind} along {self.axes} of shape {x.shape}")
        return x.dtype, tuple(n for axis, n in enumerate(x.shape) if axis not in self.axes)


@dataclass(frozen=True, slots=True)
class Scan(Op):
    """The running sum, product, maximum or minimum along one axis, inclusive."""

    kind: str
    axis: int
    name: ClassVar[str] = "scan"

    def infer(self, x: Node) -> Result:
        """The same shape."""
        if self.kind not in KINDS or not 0 <= self.axis < x.rank:
            raise InternalError(f"scan: {self.kind} along {self.axis} of shape {x.shape}")
        return x.dtype, x.shape


@dataclass(frozen=True, slots=True)
class Fold(Op):
    """A reduction of a scalar expression over ranges. LOOP level. src: (value, range, ...)."""

    kind: str
    name: ClassVar[str] = "fold"

    def infer(self, value: Node, *ranges: Node) -> Result:
        """The value's dtype."""
        return value.dtype, value.shape


@dataclass(frozen=True, slots=True)
class Across(Op):
    """The reduction of a vector's lanes to a scalar. LINEAR level."""

    kind: str
    name: ClassVar[str] = "across"

    def infer(self, vector: Node) -> Result:
        """A scalar."""
        return vector.dtype, ()


@dataclass(frozen=True, slots=True)
class Dot(Op):
    """An accumulator plus the products of the parts of two words. LOOP and LINEAR level.

    src: (x, y, accumulator): uint32 words, as many as lanes. Parts are two bfloat16, summed in float32 with subnormal
    numbers as 0, or (`of` int8) four bytes, x's unsigned and y's signed, summed in int32.
    """

    of: DType
    name: ClassVar[str] = "dot"

    def infer(self, x: Node, y: Node, accumulator: Node) -> Result:
        """As the accumulator."""
        if any(n.dtype is not dtypes.uint32 for n in (x, y)):
            raise InternalError(f"dot: of words, not {x.dtype.name} and {y.dtype.name}")
        return accumulator.dtype, accumulator.shape or x.shape or y.shape

    def evaluate(self, x: int, y: int, accumulator: float) -> float:
        """One lane, with the rounding of fused operations left to the caller's double precision."""
        if self.of is dtypes.int8:
            left = ((x >> k) & 255 for k in (0, 8, 16, 24))
            right = (((y >> k & 255) ^ 128) - 128 for k in (0, 8, 16, 24))
            return accumulator + sum(a * b for a, b in zip(left, right, strict=True))
        for k in (16, 0):
            a, b = (dtypes.float32.from_bits((w >> k & 0xFFFF) << 16) for w in (x, y))
            accumulator = dtypes.float32.wrap(accumulator + a * b)
        return accumulator


def reduce(kind: str, x: Node, axes: tuple[int, ...]) -> Node:
    """x reduced along axes."""
    return make(Reduce(kind, tuple(sorted(axes))), x) if axes else x


def scan(kind: str, x: Node, axis: int) -> Node:
    """The running reduction of x along an axis."""
    return make(Scan(kind, axis), x)
