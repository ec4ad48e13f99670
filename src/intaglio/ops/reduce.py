"""Reductions and scans: many elements to one, or to each prefix; and what joins the elements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import InternalError
from intaglio.ir.composite import Composite
from intaglio.ir.node import Interned, Node, Op, Result, make
from intaglio.ops.elementwise import ADD, MAXIMUM, MINIMUM, MUL, add, and_, cast, div, eq, mul, where
from intaglio.ops.memory import const, iota, put
from intaglio.ops.movement import expand, flip, pad, permute, reshape, shrink

if TYPE_CHECKING:
    from intaglio.ops.elementwise import Binary, Number


@dataclass(frozen=True, slots=True)
class Combine:
    """What joins the values of a reduction, a scan or a scatter: all that the kinds of those differ in.

    Attributes:
        name: What reductions and scans call it.
        scatter: What scatters call it.
        op: The op that joins two values.
    """

    name: str
    scatter: str
    op: Binary

    def identity(self, dtype: DType) -> Node:
        """What leaves every value that it is joined with as it is."""
        raise NotImplementedError

    def carrier(self, dtype: DType) -> DType:
        """What many values of a dtype are joined in: float32 for half precision, which would lose them."""
        return dtypes.float32 if dtype in (dtypes.float16, dtypes.bfloat16) else dtype

    def reduce_vjp(self, ct: Node, out: Node, x: Node, axes: tuple[int, ...]) -> Node:
        """The cotangent of x, where out is its reduction along axes; `ct` and `out` are repeated along them."""
        raise NotImplementedError

    def scan_vjp(self, ct: Node, out: Node, x: Node, axis: int) -> Node:
        """The cotangent of x, where out is its scan along an axis."""
        raise NotImplementedError


class Sum(Combine):
    """The sum; on bool, or."""

    __slots__ = ()

    def identity(self, dtype: DType) -> Node:
        return const(dtype, 0)

    def reduce_vjp(self, ct: Node, out: Node, x: Node, axes: tuple[int, ...]) -> Node:
        return ct

    def scan_vjp(self, ct: Node, out: Node, x: Node, axis: int) -> Node:
        """Each element goes into all sums from its own on."""
        return _sums_from(ct, axis)


class Product(Combine):
    """The product."""

    __slots__ = ()

    def identity(self, dtype: DType) -> Node:
        return const(dtype, 1)

    def reduce_vjp(self, ct: Node, out: Node, x: Node, axes: tuple[int, ...]) -> Node:
        """The product of the others."""
        return mul(ct, make(Others(axes), x))

    def scan_vjp(self, ct: Node, out: Node, x: Node, axis: int) -> Node:
        """The sum of what the products from this one on get, each without this one."""
        return make(RunningOthers(axis), x, ct)


class Extreme(Combine):
    """The largest or least value; NaN if there is one."""

    __slots__ = ()

    def identity(self, dtype: DType) -> Node:
        return const(dtype, dtype.min if self.op is MAXIMUM else dtype.max)

    def carrier(self, dtype: DType) -> DType:
        """The same: it is one of them."""
        return dtype

    def reduce_vjp(self, ct: Node, out: Node, x: Node, axes: tuple[int, ...]) -> Node:
        """Equals share it."""
        hit = cast(eq(x, out), x.dtype)
        return div(mul(ct, hit), repeated(reduce("sum", hit, axes), x, axes))

    def scan_vjp(self, ct: Node, out: Node, x: Node, axis: int) -> Node:
        """All of it goes to where the value came from: the last element before it that equals it."""
        source = scan("max", where(eq(x, out), _places(x, axis), const(dtypes.int64, -1)), axis)
        indices = [source if a == axis else _places(x, a) for a in range(x.rank)]
        return put("add", expand(const(x.dtype, 0), x.shape), ct, *indices)


SUM: Final = Sum("sum", "add", ADD)
PROD: Final = Product("prod", "mul", MUL)
MAX: Final = Extreme("max", "max", MAXIMUM)
MIN: Final = Extreme("min", "min", MINIMUM)
KINDS: Final = {c.name: c for c in (SUM, PROD, MAX, MIN)}
EXTREMES: Final = (MAX.name, MIN.name)
COMBINES: Final[dict[str, Combine]] = {**KINDS, **{c.scatter: c for c in KINDS.values()}}


@dataclass(frozen=True, slots=True, eq=False)
class Reduce(Interned, Op):
    """A sum, product, maximum or minimum along axes, which go. dtype as the input (callers cast first).

    An empty sum is 0, an empty product 1; an empty maximum or minimum is the dtype's lowest or highest value.
    """

    kind: str
    axes: tuple[int, ...]
    name: ClassVar[str] = "reduce"

    def infer(self, x: Node) -> Result:
        """The shape without the reduced axes."""
        if self.kind not in KINDS or not {*self.axes}.issubset(range(len(x.shape))):
            raise InternalError(f"reduce: {self.kind} along {self.axes} of shape {x.shape}")
        return x.dtype, tuple([n for axis, n in enumerate(x.shape) if axis not in self.axes])

    def vjp(self, ct: Node, out: Node, x: Node) -> tuple[Node]:
        """The cotangent of x, given that of the result."""
        ct, out = repeated(ct, x, self.axes), repeated(out, x, self.axes)
        return (COMBINES[self.kind].reduce_vjp(ct, out, x, self.axes),)


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

    def vjp(self, ct: Node, out: Node, x: Node) -> tuple[Node]:
        """The cotangent of x, given that of the result."""
        return (COMBINES[self.kind].scan_vjp(ct, out, x, self.axis),)


@dataclass(frozen=True, slots=True)
class Others(Composite):
    """The product of all others along some axes, for each element."""

    axes: tuple[int, ...]
    name: ClassVar[str] = "others"

    def infer(self, x: Node) -> Result:
        """As the operand."""
        return x.dtype, x.shape

    def written_out(self, x: Node) -> Node:
        """That of all by this one, if none is 0; if only this one is 0, that of the rest."""
        none, one = const(x.dtype, 0), const(x.dtype, 1)
        zero = eq(x, none)
        safe = where(zero, one, x)
        zeros = repeated(reduce("sum", cast(zero, x.dtype), self.axes), x, self.axes)
        rest = repeated(reduce("prod", safe, self.axes), x, self.axes)
        only = where(and_(zero, eq(zeros, one)), rest, none)
        return where(eq(zeros, none), div(repeated(reduce("prod", x, self.axes), x, self.axes), safe), only)

    def differentiable(self, *src: Node) -> Node:
        """The product of those before by the product of those after: where some are 0, its slopes are not 0 as well."""
        (x,) = src
        order = (*(a for a in range(x.rank) if a not in self.axes), *self.axes)
        last = x.rank - len(self.axes)
        moved = permute(x, order)
        line = reshape(moved, (*moved.shape[:last], math.prod(moved.shape[last:])))
        after = flip(_before(flip(line, (last,)), last), (last,))
        found = reshape(mul(_before(line, last), after), moved.shape)
        return permute(found, tuple(order.index(a) for a in range(x.rank)))


@dataclass(frozen=True, slots=True)
class RunningOthers(Composite):
    """The cotangent of what running products are of. src: (x, that of the products)."""

    axis: int
    name: ClassVar[str] = "running_others"

    def infer(self, x: Node, ct: Node) -> Result:
        """As the operand."""
        return x.dtype, x.shape

    def written_out(self, x: Node, ct: Node) -> Node:
        """As of a sum, by this one up to the first 0; there of products without it; nothing after it."""
        axis = self.axis
        none, one = const(x.dtype, 0), const(x.dtype, 1)
        zero = eq(x, none)
        zeros = scan("sum", cast(zero, dtypes.int64), axis)
        first = and_(zero, eq(zeros, const(dtypes.int64, 1)))
        up_to = div(_sums_from(mul(ct, scan("prod", x, axis)), axis), where(zero, one, x))
        without = scan("prod", where(first, one, x), axis)
        at = _sums_from(where(eq(zeros, const(dtypes.int64, 0)), none, mul(ct, without)), axis)
        return where(zero, where(first, at, none), up_to)

    def differentiable(self, *src: Node) -> Node:
        """The product of those before by s, where s = ct + (next x) (next s): in rounds, each over twice as many."""
        x, ct = src
        axis = self.axis
        slope, total = _later(x, axis, 1), ct
        step = 1
        while step < x.shape[axis]:
            total = add(total, mul(slope, _later(total, axis, step)))
            slope = mul(slope, _later(slope, axis, step))
            step *= 2
        return mul(_before(x, axis), total)


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

    def evaluate(self, x: Number, y: Number) -> Number:
        """Two lanes joined."""
        return COMBINES[self.kind].op.evaluate(x, y)


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
    return make(reduction(kind, axes), x) if axes else x


@lru_cache(maxsize=1024)
def reduction(kind: str, axes: tuple[int, ...]) -> Reduce:
    """The op of a reduction along axes in any order."""
    return Reduce(kind, tuple(sorted(axes)))


def scan(kind: str, x: Node, axis: int) -> Node:
    """The running reduction of x along an axis."""
    return make(Scan(kind, axis), x)


def repeated(node: Node, x: Node, axes: tuple[int, ...]) -> Node:
    """A value of x reduced along axes, in x's shape."""
    return expand(reshape(node, tuple(1 if a in axes else n for a, n in enumerate(x.shape))), x.shape)


def _sums_from(x: Node, axis: int) -> Node:
    """The sum of each element and those after it."""
    return flip(scan("sum", flip(x, (axis,)), axis), (axis,))


def _before(x: Node, axis: int) -> Node:
    """The product of the elements before each one."""
    n = x.shape[axis]
    if n < 2:
        return expand(const(x.dtype, 1), x.shape)
    ends = tuple((0, n - 1) if a == axis else (0, m) for a, m in enumerate(x.shape))
    moved = pad(shrink(scan("prod", x, axis), ends), tuple((int(a == axis), 0) for a in range(x.rank)))
    return where(eq(_places(x, axis), const(dtypes.int64, 0)), const(x.dtype, 1), moved)


def _later(x: Node, axis: int, step: int) -> Node:
    """The element some steps after each one, 0 past the end."""
    n = x.shape[axis]
    ends = tuple((min(step, n), n) if a == axis else (0, m) for a, m in enumerate(x.shape))
    return pad(shrink(x, ends), tuple((0, min(step, n) if a == axis else 0) for a in range(x.rank)))


def _places(x: Node, axis: int) -> Node:
    """The position of each element of x along an axis."""
    n = x.shape[axis]
    return expand(reshape(iota(n), tuple(n if a == axis else 1 for a in range(x.rank))), x.shape)
