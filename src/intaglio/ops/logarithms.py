"""Logarithms of float32 and what is made of them: single precision, and powers in double precision, rounded once.

Errors in ulp: log 0.9, log1p 1.5, atanh 1.3; log2, log10, pow, asinh and acosh 0.501.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import make
from intaglio.ops.approximate import (
    ROUNDING,
    at_least,
    at_most,
    bits,
    by_pairs,
    double,
    f32,
    f64,
    i64,
    like,
    magnitude,
    number,
    polynomial,
    whole,
)
from intaglio.ops.elementwise import (
    TRUNC,
    add,
    and_,
    bitcast,
    cast,
    copysign,
    div,
    eq,
    fma,
    ge,
    gt,
    lt,
    mul,
    ne,
    not_,
    or_,
    rarely,
    shl,
    sqrt,
    sub,
    where,
)
from intaglio.ops.memory import const

if TYPE_CHECKING:
    from intaglio.ir.node import Node

LOG_2: Final = 0.693147182
TWO_THIRDS: Final = (0x3F2AAAAB, 0x3FE5555555555555)  # the bits of 2 / 3, in float32 and in float64
INFINITY: Final = 0x7F800000
ATANH: Final = (1.85139567e-1, 1.69597063e-2, 1.05244763e-1, 1.09294005e-1, 1.42978147e-1, 1.99996218e-1, 3.33333373e-1)
LOG2_SERIES: Final = (
    -0.13612153417963496, 0.14476114350374317, -0.09408108110346591, 0.10149907349602753, -0.121100050652353,
    0.13207904578051702, -0.14422292093256933, 0.16025023835605678, -0.18033821484405402, 0.20610070147309958,
    -0.24044915479872703, 0.28853898844347375, -0.3606737603214881, 0.4808983470678189, -0.7213475204443954,
    1.4426950408888723,
)  # fmt: skip
EXP2_SERIES: Final = (
    1.3255224878668817e-06, 1.5310079402249296e-05, 0.00015403455852453838, 0.0013333450568000645,
    0.009618129159402558, 0.05550410941205933, 0.2402265069581299, 0.6931471805459335, 1.0,
)  # fmt: skip


def _split(x: Node) -> tuple[Node, Node]:
    """(m - 1, e) with x = m * 2 ** e and m in [2/3, 4/3), for a positive normal x; e is a float times 2 ** 23."""
    e = and_(sub(bits(x), whole(TWO_THIRDS[0])), whole(-8388608))
    return sub(bitcast(sub(bits(x), e), f32), number(1.0)), cast(e, f32)


def _curve(x: Node) -> tuple[Node, Node]:
    """(r, q) with r q = log(1 + x) - x for x in [-1/3, 1/3)."""
    q = mul(x, x)
    r = fma(number(-0.130310059), q, number(-0.121483512))
    t = fma(number(0.140869141), q, number(0.139814854))
    r = fma(r, q, number(-0.166846126))
    t = fma(t, q, number(0.200120345))
    r = fma(r, q, number(-0.249996200))
    r = fma(t, x, r)
    r = fma(r, x, number(0.333331972))
    r = fma(r, x, number(-0.5))
    return r, q


def _of_normal(x: Node) -> Node:
    """The natural logarithm of a positive normal number."""
    f, e = _split(x)
    return fma(e, number(LOG_2 * 2.0**-23), fma(*_curve(f), f))


def with_edges(x: Node, of_normal: Node, of_denormal: Node) -> Node:
    """A logarithm by those of normal and of denormal numbers: -inf at 0, NaN below, infinity and NaN as they are."""
    denormal = where(eq(x, like(x, 0.0)), like(x, -math.inf), of_denormal)
    unusual = where(lt(x, like(x, 0.0)), like(x, math.nan), where(lt(x, like(x, 1.0)), denormal, x))
    return rarely(is_unusual(x), unusual, of_normal)


def is_unusual(x: Node) -> Node:
    """Whether x is not a positive normal number: below, 0, denormal, an infinity or NaN."""
    least, beyond = 1 << x.dtype.mantissa, (1 << x.dtype.bits - 1) - (1 << x.dtype.mantissa)  # bits of numbers
    word = dtypes.uint32 if x.dtype is f32 else dtypes.uint64
    return ge(sub(bitcast(x, word), const(word, least)), const(word, beyond - least))


def log(x: Node) -> Node:
    """The natural logarithm."""
    larger = mul(x, number(2.0**23))
    return with_edges(x, _of_normal(x), sub(_of_normal(larger), number(23 * math.log(2))))


def log2(x: Node) -> Node:
    """The logarithm to base 2, in double precision, to which no float32 is denormal."""
    found = cast(_log2_of_double(cast(x, f64)), f32)
    return with_edges(x, found, found)


def log10(x: Node) -> Node:
    """The logarithm to base 10, by that to base 2."""
    found = cast(mul(_log2_of_double(cast(x, f64)), double(math.log10(2))), f32)
    return with_edges(x, found, found)


def log1p(x: Node) -> Node:
    """log(1 + x): what 1 + x would lose is kept, as x 2 ** -e + (2 ** -e - 1)."""
    inside = and_(gt(x, number(-1.0)), lt(x, number(math.inf)))
    edge = where(eq(x, number(-1.0)), number(-math.inf), where(lt(x, number(-1.0)), number(math.nan), x))
    return rarely(not_(inside), edge, _log1p(x))


def _log1p(x: Node) -> Node:
    """log(1 + x) for a finite x above -1."""
    e = and_(sub(bits(add(x, number(1.0))), whole(TWO_THIRDS[0])), whole(-8388608))
    four = bitcast(sub(whole(0x40800000), e), f32)  # 4 * 2 ** -e, which is always normal
    f = add(bitcast(sub(bits(x), e), f32), fma(four, number(0.25), number(-1.0)))
    return copysign(fma(cast(e, f32), number(LOG_2 * 2.0**-23), fma(*_curve(f), f)), x)


def atanh(x: Node) -> Node:
    """The inverse of tanh: a polynomial near 0, log((1 + x) / (1 - x)) / 2 elsewhere."""
    size, q = magnitude(x), mul(x, x)
    near = fma(mul(x, q), polynomial(ATANH, q), x)
    ratio = div(add(size, size), sub(number(1.0), size))
    far = copysign(mul(_log1p(ratio), number(0.5)), x)
    edge = where(eq(size, number(1.0)), copysign(number(math.inf), x), number(math.nan))
    return rarely(not_(lt(size, number(1.0))), edge, where(lt(size, number(0.5)), near, far))


def _log2_of_double(x: Node) -> Node:
    """The logarithm to base 2 of a positive normal float64, to a relative error of 2 ** -43."""
    pattern = bitcast(x, i64)
    e = and_(sub(pattern, const(i64, TWO_THIRDS[1])), const(i64, -1 << 52))
    f = sub(bitcast(sub(pattern, e), f64), double(1))
    return fma(f, by_pairs(LOG2_SERIES, f), mul(cast(e, f64), double(2.0**-52)))


def asinh(x: Node) -> Node:
    """The inverse of sinh: log(|x| + sqrt(x ** 2 + 1)) in double precision, of which the 1 hides small numbers."""
    wide = cast(magnitude(x), f64)
    square = mul(wide, wide)
    far = mul(_log2_of_double(add(wide, sqrt(add(square, double(1))))), double(math.log(2)))
    near = fma(mul(wide, square), double(-1 / 6), wide)
    found = copysign(cast(where(lt(wide, double(2.0**-10)), near, far), f32), x)
    return rarely(not_(lt(magnitude(x), number(math.inf))), x, found)


def acosh(x: Node) -> Node:
    """The inverse of cosh: log(x + sqrt(x ** 2 - 1)) in double precision; NaN below 1."""
    wide = cast(x, f64)
    found = cast(mul(_log2_of_double(add(wide, sqrt(sub(mul(wide, wide), double(1))))), double(math.log(2))), f32)
    inside = and_(ge(x, number(1.0)), lt(x, number(math.inf)))
    return rarely(not_(inside), where(lt(x, number(1.0)), number(math.nan), x), found)


def _exp2_to_float32(x: Node) -> Node:
    """2 ** x of a float64 in [-160, 130] in float32, rounded once."""
    shifted = add(x, double(ROUNDING[f64]))
    p = by_pairs(EXP2_SERIES, sub(x, sub(shifted, double(ROUNDING[f64]))))
    return cast(bitcast(add(bitcast(p, i64), shl(bitcast(shifted, i64), const(i64, 52))), f64), f32)


def power(x: Node, y: Node) -> Node:
    """x ** y with C's edges, as 2 ** (y log2 x)."""
    exponent = mul(cast(y, f64), _log2_of_double(cast(x, f64)))
    below = sub(bitcast(x, dtypes.uint32), const(dtypes.uint32, 1))
    positive = lt(below, const(dtypes.uint32, INFINITY - 1))
    usual = and_(positive, lt(magnitude(exponent), double(126)))
    return rarely(not_(usual), _power_at_edges(x, y), _exp2_to_float32(exponent))


def _power_at_edges(x: Node, y: Node) -> Node:
    """x ** y of all numbers."""
    size, one = magnitude(x), number(1.0)
    logarithm = where(eq(size, number(0.0)), double(-math.inf), _log2_of_double(cast(size, f64)))
    logarithm = where(lt(size, number(math.inf)), logarithm, double(math.inf))
    exponent = where(eq(size, one), double(0), mul(cast(y, f64), logarithm))
    result = _exp2_to_float32(at_least(at_most(exponent, 130), -160))
    half = mul(y, number(0.5))
    is_whole, is_even = eq(make(TRUNC, y), y), eq(make(TRUNC, half), half)  # so are infinities
    result = where(and_(is_whole, not_(is_even)), copysign(result, x), result)
    is_real = or_(is_whole, or_(ge(x, number(0.0)), eq(size, number(math.inf))))
    result = where(is_real, result, number(math.nan))
    result = where(or_(ne(x, x), ne(y, y)), add(x, y), result)
    return where(or_(eq(y, number(0.0)), eq(x, one)), one, result)
