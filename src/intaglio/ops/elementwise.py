"""Elementwise arithmetic: what each op means, its edges, and its gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import InternalError
from intaglio.ir.node import Interned, Node, Op, Result, make
from intaglio.ops.memory import const

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.ir.node import Shape

Number: TypeAlias = int | float | bool
Gradients: TypeAlias = "tuple[Node | None, ...]"

decompositions: Final[dict[str, Callable[..., Node]]] = {}  # op name -> its value by primitive ops; see transcendental


class Elementwise(Op):
    """An op on elements at the same position. Operands have one dtype and one shape; a scalar goes with any shape."""

    arity: ClassVar[int] = 1
    primitive: ClassVar[bool] = True  # every renderer spells it; others are decomposed
    commutative: ClassVar[bool] = False

    # The reference meaning on Python numbers (the caller wraps the result to the dtype), and the cotangents of the
    # inputs given that of the output. Each op takes its own inputs.
    evaluate: ClassVar[Callable[..., Number]]
    vjp: ClassVar[Callable[..., Gradients]]

    def is_decomposed(self, dtype: DType) -> bool:
        """Whether it is replaced by its decomposition for a dtype."""
        return not self.primitive

    def decompose(self, *src: Node) -> Node:
        """The same value by primitive ops."""
        return decompositions[self.name](*src)


class Sloped(Op):
    """An op with the value of another and a slope of its own. Where a program is planned, the other takes its place."""

    planned: ClassVar[Callable[..., Node]]  # the other op, on the same inputs


def _shape(op: Elementwise, src: tuple[Node, ...]) -> Shape:
    """The common shape of operands."""
    shape: Shape = ()
    for node in src:
        if node.shape != shape and node.shape:
            if shape:
                raise InternalError(f"{op.name}: operand shapes {[n.shape for n in src]} differ")
            shape = node.shape
    return shape


class Unary(Elementwise):
    """One operand; the result has its dtype."""

    def infer(self, x: Node) -> Result:
        """As the operand."""
        return x.dtype, x.shape


class Binary(Elementwise):
    """Two operands of one dtype."""

    arity: ClassVar[int] = 2

    def infer(self, x: Node, y: Node) -> Result:
        """The operands' dtype and common shape."""
        if x.dtype is not y.dtype:
            raise InternalError(f"{self.name}: operands are {x.dtype.name} and {y.dtype.name}")
        return x.dtype, x.shape if x.shape == y.shape or not y.shape else _shape(self, (x, y))


class _Division(Binary):
    """What the library finds lane by lane, unless it is decomposed."""

    def is_decomposed(self, dtype: DType) -> bool:
        """Floats up to single precision are."""
        return dtype.is_float and dtype is not dtypes.float64


class Comparison(Binary):
    """Two operands of one dtype; the result is bool."""

    def infer(self, x: Node, y: Node) -> Result:
        """Bool, of the operands' common shape."""
        if x.dtype is not y.dtype:
            raise InternalError(f"{self.name}: operands are {x.dtype.name} and {y.dtype.name}")
        return dtypes.bool, x.shape if x.shape == y.shape or not y.shape else _shape(self, (x, y))

    def vjp(self, ct: Node, out: Node, *src: Node) -> Gradients:
        """None: a step has no slope."""
        return None, None


class Neg(Unary):
    """-x; the lowest integer stays."""

    name: ClassVar[str] = "neg"

    def evaluate(self, x: Number) -> Number:
        return -x

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (neg(ct),)


class Not(Unary):
    """Each bit inverted; for bool, logical not."""

    name: ClassVar[str] = "not"

    def evaluate(self, x: Number) -> Number:
        return (not x) if x is True or x is False else ~int(x)

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (None,)


class Abs(Unary):
    """The magnitude; the lowest integer stays."""

    name: ClassVar[str] = "abs"

    def evaluate(self, x: Number) -> Number:
        return abs(x)

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (mul(ct, sign(x)),)


class Detach(Unary):
    """The value itself, through which no gradient flows. It goes when the value is scheduled."""

    name: ClassVar[str] = "detach"

    def evaluate(self, x: Number) -> Number:
        return x

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (None,)


class Flat(Sloped, Unary):
    """The value itself, with a slope of 0."""

    name: ClassVar[str] = "flat"

    def planned(self, x: Node) -> Node:
        """The value."""
        return x

    def evaluate(self, x: Number) -> Number:
        return x

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (mul(ct, const(ct.dtype, 0)),)


class Sqrt(Unary):
    """The square root; NaN below zero."""

    name: ClassVar[str] = "sqrt"

    def evaluate(self, x: Number) -> Number:
        return math.sqrt(x) if x >= 0 else (x if x != x else math.nan)

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (div(ct, mul(out, const(out.dtype, 2))),)


class _Rounding(Unary):
    """A float to a whole number, kept a float."""

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (mul(ct, const(ct.dtype, 0)),)


class Floor(_Rounding):
    """The next whole number down."""

    name: ClassVar[str] = "floor"

    def evaluate(self, x: Number) -> Number:
        return math.copysign(float(math.floor(x)), x) if math.isfinite(x) and x != 0 else x


class Ceil(_Rounding):
    """The next whole number up."""

    name: ClassVar[str] = "ceil"

    def evaluate(self, x: Number) -> Number:
        return math.copysign(float(math.ceil(x)), x) if math.isfinite(x) and x != 0 else x


class Trunc(_Rounding):
    """The whole part."""

    name: ClassVar[str] = "trunc"

    def evaluate(self, x: Number) -> Number:
        return math.copysign(float(math.trunc(x)), x) if math.isfinite(x) and x != 0 else x


class Round(_Rounding):
    """The nearest whole number, halves to even."""

    name: ClassVar[str] = "round"

    def evaluate(self, x: Number) -> Number:
        return math.copysign(float(round(x)), x) if math.isfinite(x) and x != 0 else x


class Add(Binary):
    """x + y; integers wrap; on bool, or."""

    name: ClassVar[str] = "add"
    commutative: ClassVar[bool] = True

    def evaluate(self, x: Number, y: Number) -> Number:
        return x + y

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        return ct, ct


class Sub(Binary):
    """x - y; integers wrap."""

    name: ClassVar[str] = "sub"

    def evaluate(self, x: Number, y: Number) -> Number:
        return x - y

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        return ct, neg(ct)


class Mul(Binary):
    """x * y; integers wrap; on bool, and."""

    name: ClassVar[str] = "mul"
    commutative: ClassVar[bool] = True

    def evaluate(self, x: Number, y: Number) -> Number:
        return x * y

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        return mul(ct, y), mul(ct, x)


class Div(Binary):
    """The true quotient of floats, as IEEE: x / 0 is an infinity or NaN."""

    name: ClassVar[str] = "div"

    def evaluate(self, x: Number, y: Number) -> Number:
        if y != 0:
            return x / y
        if x == 0 or x != x or y != y:
            return math.nan
        return math.copysign(math.inf, math.copysign(1.0, x) * math.copysign(1.0, y))

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        return div(ct, y), neg(div(mul(ct, out), y))


class FloorDiv(_Division):
    """The quotient rounded down. Integers: x // 0 is 0, the lowest by -1 wraps. Floats as NumPy."""

    name: ClassVar[str] = "floor_div"

    def evaluate(self, x: Number, y: Number) -> Number:
        if isinstance(x, float) or isinstance(y, float):
            if y == 0 or not math.isfinite(x) or math.isnan(y):
                return Div.evaluate(DIV, x, y) if y == 0 or math.isnan(y) or math.isnan(x) else math.nan
            if math.isinf(y):
                return math.copysign(0.0, x * y) if x == 0 or (x > 0) == (y > 0) else -1.0
            return float(x // y)
        return x // y if y else 0

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        return None, None


class Mod(_Division):
    """The remainder with the divisor's sign. Integers: x % 0 is 0. Floats as NumPy: x % 0 is NaN."""

    name: ClassVar[str] = "mod"

    def evaluate(self, x: Number, y: Number) -> Number:
        if isinstance(x, float) or isinstance(y, float):
            if y == 0 or not math.isfinite(x) or math.isnan(y):
                return math.nan
            if math.isinf(y):
                return x if x == 0 or (x > 0) == (y > 0) else y
            return math.copysign(x % y, y) if x % y == 0 else x % y
        return x % y if y else 0

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        return ct, neg(mul(ct, floor(div(x, y)))) if y.dtype.is_float else None


class Maximum(Binary):
    """The larger; NaN if either is."""

    name: ClassVar[str] = "maximum"
    commutative: ClassVar[bool] = True

    def evaluate(self, x: Number, y: Number) -> Number:
        return x if x != x or x > y else y

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        return _share(ct, lt(x, y), eq(x, y)), _share(ct, gt(x, y), eq(x, y))


class Minimum(Binary):
    """The smaller; NaN if either is."""

    name: ClassVar[str] = "minimum"
    commutative: ClassVar[bool] = True

    def evaluate(self, x: Number, y: Number) -> Number:
        return x if x != x or x < y else y

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        return _share(ct, gt(x, y), eq(x, y)), _share(ct, lt(x, y), eq(x, y))


def _share(ct: Node, loses: Node, ties: Node) -> Node:
    """None of the cotangent where an operand loses, half where both are equal, else all of it."""
    half = mul(ct, const(ct.dtype, 0.5))
    return where(loses, const(ct.dtype, 0), where(ties, half, ct))


class And(Binary):
    """Bits set in both."""

    name: ClassVar[str] = "and"
    commutative: ClassVar[bool] = True

    def evaluate(self, x: Number, y: Number) -> Number:
        return int(x) & int(y)

    def vjp(self, ct: Node, out: Node, *src: Node) -> Gradients:
        return None, None


class Or(Binary):
    """Bits set in either."""

    name: ClassVar[str] = "or"
    commutative: ClassVar[bool] = True

    def evaluate(self, x: Number, y: Number) -> Number:
        return int(x) | int(y)

    def vjp(self, ct: Node, out: Node, *src: Node) -> Gradients:
        return None, None


class Xor(Binary):
    """Bits set in one."""

    name: ClassVar[str] = "xor"
    commutative: ClassVar[bool] = True

    def evaluate(self, x: Number, y: Number) -> Number:
        return int(x) ^ int(y)

    def vjp(self, ct: Node, out: Node, *src: Node) -> Gradients:
        return None, None


class Shl(Binary):
    """x shifted left; 0 for a negative count or one of the width or more."""

    name: ClassVar[str] = "shl"

    def evaluate(self, x: Number, y: Number) -> Number:
        return int(x) << int(y) if 0 <= y < 64 else 0

    def vjp(self, ct: Node, out: Node, *src: Node) -> Gradients:
        return None, None


class Shr(Binary):
    """x shifted right, keeping the sign; by the width or more (or a negative count) 0, or -1 below zero."""

    name: ClassVar[str] = "shr"

    def evaluate(self, x: Number, y: Number) -> Number:
        return int(x) >> int(y) if 0 <= y < 64 else (-1 if x < 0 else 0)

    def vjp(self, ct: Node, out: Node, *src: Node) -> Gradients:
        return None, None


class Lt(Comparison):
    """x < y."""

    name: ClassVar[str] = "lt"

    def evaluate(self, x: Number, y: Number) -> Number:
        return x < y


class Le(Comparison):
    """x <= y."""

    name: ClassVar[str] = "le"

    def evaluate(self, x: Number, y: Number) -> Number:
        return x <= y


class Eq(Comparison):
    """x == y."""

    name: ClassVar[str] = "eq"
    commutative: ClassVar[bool] = True

    def evaluate(self, x: Number, y: Number) -> Number:
        return x == y


class Ne(Comparison):
    """x != y (true for NaN)."""

    name: ClassVar[str] = "ne"
    commutative: ClassVar[bool] = True

    def evaluate(self, x: Number, y: Number) -> Number:
        return x != y


class Where(Elementwise):
    """x where the condition holds, else y."""

    name: ClassVar[str] = "where"
    arity: ClassVar[int] = 3

    def infer(self, condition: Node, x: Node, y: Node) -> Result:
        """The choices' dtype."""
        if condition.dtype is not dtypes.bool or x.dtype is not y.dtype:
            raise InternalError(f"where: operands are {condition.dtype.name}, {x.dtype.name}, {y.dtype.name}")
        return x.dtype, _shape(self, (condition, x, y))

    def evaluate(self, condition: Number, x: Number, y: Number) -> Number:
        return x if condition else y

    def vjp(self, ct: Node, out: Node, condition: Node, x: Node, y: Node) -> Gradients:
        none = const(ct.dtype, 0)
        return None, where(condition, ct, none), where(condition, none, ct)


class Rarely(Where):
    """x where the condition holds, which is rare, else y: what only x needs runs only if some lane asks for it."""

    name: ClassVar[str] = "rarely"


class Fma(Elementwise):
    """x * y + z rounded once (twice on hosts without the instruction)."""

    name: ClassVar[str] = "fma"
    arity: ClassVar[int] = 3

    def infer(self, x: Node, y: Node, z: Node) -> Result:
        """The operands' dtype."""
        if x.dtype is not y.dtype or x.dtype is not z.dtype:
            raise InternalError(f"fma: operands are {x.dtype.name}, {y.dtype.name}, {z.dtype.name}")
        return x.dtype, _shape(self, (x, y, z))

    def evaluate(self, x: Number, y: Number, z: Number) -> Number:
        from fractions import Fraction

        if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
            return x * y + z
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        try:
            return float(exact) if exact else x * y + z
        except OverflowError:
            return math.inf if exact > 0 else -math.inf

    def vjp(self, ct: Node, out: Node, x: Node, y: Node, z: Node) -> Gradients:
        return mul(ct, y), mul(ct, x), ct


class MulLow(Binary):
    """What x * y loses by rounding, so that the product is mul(x, y) and this; of float64, and no tiny product."""

    name: ClassVar[str] = "mul_low"
    commutative: ClassVar[bool] = True

    def evaluate(self, x: Number, y: Number) -> Number:
        return FMA.evaluate(x, y, -(x * y))

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        return None, None


class CopySign(Binary):
    """The magnitude of x with the sign of y."""

    name: ClassVar[str] = "copysign"

    def evaluate(self, x: Number, y: Number) -> Number:
        return math.copysign(x, y)

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        one = const(x.dtype, 1)
        return mul(ct, mul(copysign(one, x), copysign(one, y))), None  # not of x * y: 0 * inf has no sign


class Ldexp(Binary):
    """x * 2 ** n, rounded once, for |x| < 2 and a whole n: in [-250, 250] of float32, [-2000, 2000] of float64."""

    name: ClassVar[str] = "ldexp"

    def evaluate(self, x: Number, n: Number) -> Number:
        try:
            return math.ldexp(x, int(n)) if n == n else n
        except OverflowError:
            return math.copysign(math.inf, x)

    def vjp(self, ct: Node, out: Node, x: Node, n: Node) -> Gradients:
        return ldexp(ct, n), None


@dataclass(frozen=True, slots=True, eq=False)
class Cast(Interned, Elementwise):
    """The nearest value of another dtype; floats to integers truncate (out of range: see `DType.convert`)."""

    to: DType
    name: ClassVar[str] = "cast"

    def infer(self, x: Node) -> Result:
        """The new dtype."""
        return self.to, x.shape

    def evaluate(self, x: Number) -> Number:
        return self.to.wrap(x)

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (cast(ct, x.dtype) if x.dtype.is_float else None,)


@dataclass(frozen=True, slots=True)
class Bitcast(Elementwise):
    """The same bits as another dtype of the same size."""

    to: DType
    name: ClassVar[str] = "bitcast"

    def infer(self, x: Node) -> Result:
        """The new dtype."""
        if x.dtype.bits != self.to.bits:
            raise InternalError(f"bitcast: {x.dtype.name} to {self.to.name}")
        return self.to, x.shape

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (None,)


class _Function(Unary):
    """A function of a float, by its decomposition."""

    primitive: ClassVar[bool] = False
    of: ClassVar[Callable[[float], float]]

    def evaluate(self, x: Number) -> Number:
        try:
            return type(self).of(float(x))
        except (ValueError, ZeroDivisionError):
            return math.nan
        except OverflowError:
            return math.inf


class Exp(_Function):
    """e to the power x."""

    name: ClassVar[str] = "exp"
    of = math.exp

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (mul(ct, out),)


class Exp2(_Function):
    """2 to the power x."""

    name: ClassVar[str] = "exp2"
    of = math.exp2

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (mul(mul(ct, out), const(x.dtype, math.log(2))),)


class Expm1(_Function):
    """exp(x) - 1, exact near 0."""

    name: ClassVar[str] = "expm1"
    of = math.expm1

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (mul(ct, add(out, const(x.dtype, 1))),)


def _log(f: Callable[[float], float]) -> Callable[[float], float]:
    """A logarithm with its edge at 0."""
    return lambda x: -math.inf if x == 0 else f(x)


class Log(_Function):
    """The natural logarithm; -inf at 0, NaN below."""

    name: ClassVar[str] = "log"
    of = staticmethod(_log(math.log))

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (div(ct, x),)


class Log2(_Function):
    """The logarithm to base 2."""

    name: ClassVar[str] = "log2"
    of = staticmethod(_log(math.log2))

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (div(ct, mul(x, const(x.dtype, math.log(2)))),)


class Log10(_Function):
    """The logarithm to base 10."""

    name: ClassVar[str] = "log10"
    of = staticmethod(_log(math.log10))

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (div(ct, mul(x, const(x.dtype, math.log(10)))),)


def _log1p(x: float) -> float:
    """log(1 + x) with its edge at -1."""
    return -math.inf if x == -1 else math.log1p(x)


class Log1p(_Function):
    """log(1 + x), exact near 0."""

    name: ClassVar[str] = "log1p"
    of = staticmethod(_log1p)

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (div(ct, add(x, const(x.dtype, 1))),)


class Sin(_Function):
    """The sine of an angle in radians."""

    name: ClassVar[str] = "sin"
    of = math.sin

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (mul(ct, cos(x)),)


class Cos(_Function):
    """The cosine of an angle in radians."""

    name: ClassVar[str] = "cos"
    of = math.cos

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (neg(mul(ct, sin(x))),)


class Tan(_Function):
    """The tangent of an angle in radians."""

    name: ClassVar[str] = "tan"
    of = math.tan

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (mul(ct, add(mul(out, out), const(x.dtype, 1))),)


class Asin(_Function):
    """The angle in [-pi/2, pi/2] whose sine is x."""

    name: ClassVar[str] = "asin"
    of = math.asin

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (div(ct, sqrt(sub(const(x.dtype, 1), mul(x, x)))),)


class Acos(_Function):
    """The angle in [0, pi] whose cosine is x."""

    name: ClassVar[str] = "acos"
    of = math.acos

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (neg(div(ct, sqrt(sub(const(x.dtype, 1), mul(x, x))))),)


class Atan(_Function):
    """The angle in [-pi/2, pi/2] whose tangent is x."""

    name: ClassVar[str] = "atan"
    of = math.atan

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (div(ct, add(mul(x, x), const(x.dtype, 1))),)


def _sinh(x: float) -> float:
    """The hyperbolic sine, infinite where it overflows."""
    return math.sinh(x) if abs(x) < 709 else math.copysign(math.inf, x) if x == x else x


class Sinh(_Function):
    """The hyperbolic sine."""

    name: ClassVar[str] = "sinh"
    of = staticmethod(_sinh)

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (mul(ct, cosh(x)),)


class Cosh(_Function):
    """The hyperbolic cosine."""

    name: ClassVar[str] = "cosh"
    of = math.cosh

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (mul(ct, sinh(x)),)


class Tanh(_Function):
    """The hyperbolic tangent."""

    name: ClassVar[str] = "tanh"
    of = math.tanh

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (mul(ct, sub(const(x.dtype, 1), mul(out, out))),)


class Asinh(_Function):
    """The inverse of sinh."""

    name: ClassVar[str] = "asinh"
    of = math.asinh

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (div(ct, sqrt(add(mul(x, x), const(x.dtype, 1)))),)


class Acosh(_Function):
    """The inverse of cosh; NaN below 1."""

    name: ClassVar[str] = "acosh"
    of = math.acosh

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (div(ct, sqrt(sub(mul(x, x), const(x.dtype, 1)))),)


def _atanh(x: float) -> float:
    """The inverse of tanh with its edges at 1 and -1."""
    return math.copysign(math.inf, x) if abs(x) == 1 else math.atanh(x)


class Atanh(_Function):
    """The inverse of tanh; an infinity at 1 and -1."""

    name: ClassVar[str] = "atanh"
    of = staticmethod(_atanh)

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (div(ct, sub(const(x.dtype, 1), mul(x, x))),)


class Erf(_Function):
    """The error function."""

    name: ClassVar[str] = "erf"
    of = math.erf

    def vjp(self, ct: Node, out: Node, x: Node) -> Gradients:
        return (mul(mul(ct, const(x.dtype, 2 / math.sqrt(math.pi))), exp(neg(mul(x, x)))),)


@dataclass(frozen=True, slots=True)
class Library(Elementwise):
    """A function of float64 as the C library finds it, lane by lane: for the few numbers that no vector form is for."""

    function: str
    name: ClassVar[str] = "library"

    def infer(self, *src: Node) -> Result:
        """As the operands."""
        return src[0].dtype, _shape(self, src)

    def evaluate(self, *src: Number) -> Number:
        stood_for = Op.single(Op.registry[self.function])
        assert isinstance(stood_for, Elementwise)
        return stood_for.evaluate(*src)

    def vjp(self, ct: Node, out: Node, *src: Node) -> Gradients:
        """None: it stands for an op in its decomposition alone, and that op has the gradient."""
        raise InternalError(f"library: {self.function} is not pulled back")


class Pow(Binary):
    """x to the power y, for floats, with C's edges: pow(x, 0) and pow(1, y) are 1."""

    name: ClassVar[str] = "pow"
    primitive: ClassVar[bool] = False

    def evaluate(self, x: Number, y: Number) -> Number:
        try:
            return math.pow(x, y)
        except OverflowError:
            return -math.inf if x < 0 and y % 2 == 1 else math.inf
        except ValueError:
            if x == 0 and y < 0:
                return math.copysign(math.inf, x) if y % 2 == 1 else math.inf
            return math.nan

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        one, none = const(x.dtype, 1), const(x.dtype, 0)
        base = where(eq(y, none), none, mul(y, power(x, sub(y, one))))
        flat = and_(eq(x, none), ge(y, none))
        slope = where(flat, none, mul(out, log(where(flat, one, x))))
        return mul(ct, base), mul(ct, slope)


class Atan2(Binary):
    """The angle of the point (x = second, y = first) in [-pi, pi]."""

    name: ClassVar[str] = "atan2"
    primitive: ClassVar[bool] = False

    def evaluate(self, x: Number, y: Number) -> Number:
        return math.atan2(x, y)

    def vjp(self, ct: Node, out: Node, x: Node, y: Node) -> Gradients:
        square = add(mul(x, x), mul(y, y))
        square = where(eq(square, const(square.dtype, 0)), const(square.dtype, 1), square)  # at (0, 0) both are 0
        return div(mul(ct, y), square), neg(div(mul(ct, x), square))


NEG, NOT, ABS, SQRT, FLOOR, CEIL, TRUNC, ROUND = Neg(), Not(), Abs(), Sqrt(), Floor(), Ceil(), Trunc(), Round()
DETACH, FLAT = Detach(), Flat()
ADD, SUB, MUL, DIV, FLOOR_DIV, MOD = Add(), Sub(), Mul(), Div(), FloorDiv(), Mod()
MAXIMUM, MINIMUM, AND, OR, XOR, SHL, SHR = Maximum(), Minimum(), And(), Or(), Xor(), Shl(), Shr()
LT, LE, EQ, NE, WHERE, FMA, COPYSIGN = Lt(), Le(), Eq(), Ne(), Where(), Fma(), CopySign()
RARELY, LDEXP, MUL_LOW = Rarely(), Ldexp(), MulLow()
EXP, EXP2, EXPM1 = Exp(), Exp2(), Expm1()
LOG, LOG2, LOG10, LOG1P = Log(), Log2(), Log10(), Log1p()
SIN, COS, TAN, ASIN, ACOS, ATAN = Sin(), Cos(), Tan(), Asin(), Acos(), Atan()
SINH, COSH, TANH, ASINH, ACOSH, ATANH, ERF = Sinh(), Cosh(), Tanh(), Asinh(), Acosh(), Atanh(), Erf()
POW, ATAN2 = Pow(), Atan2()


def cast(x: Node, dtype: DType) -> Node:
    """x as another dtype."""
    return x if x.dtype is dtype else make(Cast(dtype), x)


def bitcast(x: Node, dtype: DType) -> Node:
    """The bits of x as another dtype of the same size."""
    return x if x.dtype is dtype else make(Bitcast(dtype), x)


def neg(x: Node) -> Node:
    """-x."""
    return make(NEG, x)


def detach(x: Node) -> Node:
    """x, through which no gradient flows."""
    return make(DETACH, x)


def not_(x: Node) -> Node:
    """x with each bit inverted."""
    return make(NOT, x)


def absolute(x: Node) -> Node:
    """The magnitude of x."""
    return make(ABS, x)


def sqrt(x: Node) -> Node:
    """The square root of x."""
    return make(SQRT, x)


def floor(x: Node) -> Node:
    """x rounded down."""
    return make(FLOOR, x)


def ceil(x: Node) -> Node:
    """x rounded up."""
    return make(CEIL, x)


def trunc(x: Node) -> Node:
    """x rounded toward zero."""
    return make(TRUNC, x)


def round_(x: Node) -> Node:
    """x rounded to nearest, halves to even."""
    return make(ROUND, x)


def add(x: Node, y: Node) -> Node:
    """x + y."""
    return make(ADD, x, y)


def sub(x: Node, y: Node) -> Node:
    """x - y."""
    return make(SUB, x, y)


def mul(x: Node, y: Node) -> Node:
    """x * y."""
    return make(MUL, x, y)


def div(x: Node, y: Node) -> Node:
    """x / y of floats."""
    return make(DIV, x, y)


def floor_div(x: Node, y: Node) -> Node:
    """x / y rounded down."""
    return make(FLOOR_DIV, x, y)


def mod(x: Node, y: Node) -> Node:
    """The remainder of floor_div."""
    return make(MOD, x, y)


def maximum(x: Node, y: Node) -> Node:
    """The larger of x and y."""
    return make(MAXIMUM, x, y)


def minimum(x: Node, y: Node) -> Node:
    """The smaller of x and y."""
    return make(MINIMUM, x, y)


def and_(x: Node, y: Node) -> Node:
    """x & y."""
    return make(AND, x, y)


def or_(x: Node, y: Node) -> Node:
    """x | y."""
    return make(OR, x, y)


def xor(x: Node, y: Node) -> Node:
    """x ^ y."""
    return make(XOR, x, y)


def shl(x: Node, y: Node) -> Node:
    """x << y."""
    return make(SHL, x, y)


def shr(x: Node, y: Node) -> Node:
    """x >> y."""
    return make(SHR, x, y)


def lt(x: Node, y: Node) -> Node:
    """x < y."""
    return make(LT, x, y)


def le(x: Node, y: Node) -> Node:
    """x <= y."""
    return make(LE, x, y)


def gt(x: Node, y: Node) -> Node:
    """x > y."""
    return make(LT, y, x)


def ge(x: Node, y: Node) -> Node:
    """x >= y."""
    return make(LE, y, x)


def eq(x: Node, y: Node) -> Node:
    """x == y."""
    return make(EQ, x, y)


def ne(x: Node, y: Node) -> Node:
    """x != y."""
    return make(NE, x, y)


def where(condition: Node, x: Node, y: Node) -> Node:
    """x where the condition holds, else y."""
    return make(WHERE, condition, x, y)


def rarely(condition: Node, x: Node, y: Node) -> Node:
    """x where the condition holds, else y; x is not computed where no lane asks for it."""
    return make(RARELY, condition, x, y)


def fma(x: Node, y: Node, z: Node) -> Node:
    """x * y + z."""
    return make(FMA, x, y, z)


def mul_low(x: Node, y: Node) -> Node:
    """What x * y loses by rounding."""
    return make(MUL_LOW, x, y)


def copysign(x: Node, y: Node) -> Node:
    """|x| with the sign of y."""
    return make(COPYSIGN, x, y)


def ldexp(x: Node, n: Node) -> Node:
    """x * 2 ** n, for |x| < 2 and a whole n."""
    return make(LDEXP, x, n)


def exp(x: Node) -> Node:
    """e ** x."""
    return make(EXP, x)


def log(x: Node) -> Node:
    """The natural logarithm."""
    return make(LOG, x)


def sin(x: Node) -> Node:
    """The sine."""
    return make(SIN, x)


def cos(x: Node) -> Node:
    """The cosine."""
    return make(COS, x)


def sinh(x: Node) -> Node:
    """The hyperbolic sine."""
    return make(SINH, x)


def cosh(x: Node) -> Node:
    """The hyperbolic cosine."""
    return make(COSH, x)


def power(x: Node, y: Node) -> Node:
    """x ** y of floats."""
    return make(POW, x, y)


def sign(x: Node) -> Node:
    """-1, 0 or 1 by the sign of x, of -0 as of 0; NaN stays. Its slope is 0."""
    none = const(x.dtype, 0)
    rest = make(FLAT, add(x, none)) if x.dtype.is_float else x
    return where(gt(x, none), const(x.dtype, 1), where(lt(x, none), const(x.dtype, -1), rest))
