"""Logarithms of float64, and the inverse hyperbolic functions that are made of them.

A number is 2 ** e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), and log(1 + f) is f - f ** 2 / 2 + s (f ** 2 / 2 + R):
s is f / (2 + f), and R a polynomial of s ** 2. Only f is as large as the result, and what it loses to e log 2 is kept.
Errors in ulp: log 0.9, log2 0.9, log10 0.9, log1p 1.3, asinh 1.6, acosh 1.95, atanh 0.98.
Source: Ng, FDLIBM, 1993 (the form; the coefficients are fits of our own).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ops.approximate import bits, double, f64, i64, magnitude, series
from intaglio.ops.elementwise import (
    add,
    and_,
    bitcast,
    cast,
    copysign,
    div,
    eq,
    fma,
    gt,
    lt,
    mul,
    neg,
    not_,
    rarely,
    sqrt,
    sub,
    where,
)
from intaglio.ops.logarithms import with_edges
from intaglio.ops.memory import const

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.ir.node import Node

ROOT_HALF: Final = 0x3FE6A09E667F3BCD  # the bits of sqrt(1/2)
EXPONENT: Final = 1 << 52  # a step of the exponent
LOG_2: Final = (0.6931471805592082, 7.371002565167799e-13)  # in two parts, the first of few digits
LOG2_E: Final = (1.442695040255785, 6.331784189566044e-10)  # 1 / log 2 likewise
LOG10_E: Final = (0.4342944818781689, 2.5082946711645275e-11)  # 1 / log 10 likewise
LOG10_2: Final = (0.3010299956640665, -8.532344317057107e-14)  # log 2 / log 10 likewise
UPPER: Final = -1 << 32  # the half of a number whose products with such a part are exact
LOG: Final = (
    0.14796105405486168, 0.15314035841626392, 0.18183564866282165, 0.22222198563496587, 0.28571428742474725,
    0.3999999999941432, 0.6666666666666734,
)  # fmt: skip
ATANH: Final = (
    0.22548057369599273, -0.15403548311823964, 0.1457448186880525, 0.014224487659869292, 0.05991536037890634,
    0.05772744846813832, 0.06678148887347266, 0.07691477469996982, 0.0909094945934888, 0.11111109853682576,
    0.14285714308769093, 0.1999999999978737, 0.3333333333333402,
)  # fmt: skip
LARGE: Final = 2.0**28  # from where 1 is nothing beside the square
DENORMAL: Final = 54  # a denormal number times 2 to this power is none


def _exponent(x: Node) -> Node:
    """The e of a positive normal number, where its exponent's bits are."""
    return and_(sub(bits(x), const(i64, ROOT_HALF)), const(i64, -EXPONENT))


def split(x: Node) -> tuple[Node, Node]:
    """(f, e) of a positive normal number; e is a float times EXPONENT."""
    e = _exponent(x)
    return sub(bitcast(sub(bits(x), e), f64), double(1.0)), cast(e, f64)


def _curve(f: Node) -> tuple[Node, Node, Node]:
    """(s, f ** 2 / 2, f ** 2 / 2 + R)."""
    s = div(f, add(f, double(2.0)))
    half, z = mul(mul(f, double(0.5)), f), mul(s, s)
    return s, half, fma(z, series(LOG, z), half)


def _logarithm(f: Node, e: Node, beyond: Node | None = None) -> Node:
    """log(2 ** e (1 + f)), given e times EXPONENT; of what f could not hold, `beyond`, it counts in what matters."""
    s, half, rest = _curve(f)
    low = sub(fma(s, rest, mul(e, double(LOG_2[1] / EXPONENT))), half)
    whole = mul(e, double(LOG_2[0] / EXPONENT))
    high = add(whole, f)
    lost = sub(f, sub(high, whole))
    if beyond is not None:
        lost = add(lost, fma(neg(f), beyond, beyond))
    return add(high, add(lost, low))


def log(x: Node) -> Node:
    """The natural logarithm."""
    return _of_numbers(x, _logarithm)


def log2(x: Node) -> Node:
    """The logarithm to base 2."""
    return _of_numbers(x, _logarithm_to_base_2)


def log10(x: Node) -> Node:
    """The logarithm to base 10."""
    return _of_numbers(x, _logarithm_to_base_10)


def _of_numbers(x: Node, of: Callable[[Node, Node], Node]) -> Node:
    """A logarithm by that of 2 ** e (1 + f)."""
    f, e = split(mul(x, double(2.0**DENORMAL)))
    return with_edges(x, of(*split(x)), of(f, sub(e, double(float(DENORMAL * EXPONENT)))))


def _logarithm_to_base_2(f: Node, e: Node) -> Node:
    """log2(2 ** e (1 + f)), given e times EXPONENT; log(1 + f) by 1 / log 2 in parts, of which the first are exact."""
    exact, more = _mantissa(f, LOG2_E)
    return _with_power(mul(e, double(1.0 / EXPONENT)), exact, more)


def _logarithm_to_base_10(f: Node, e: Node) -> Node:
    """log10(2 ** e (1 + f)) likewise; log10(2) in parts, too."""
    exact, more = _mantissa(f, LOG10_E)
    more = fma(e, double(LOG10_2[1] / EXPONENT), more)
    return _with_power(mul(e, double(LOG10_2[0] / EXPONENT)), exact, more)


def _mantissa(f: Node, factor: tuple[float, float]) -> tuple[Node, Node]:
    """log(1 + f) by a factor in two parts: (what is exact, the rest)."""
    s, half, rest = _curve(f)
    high = bitcast(and_(bits(sub(f, half)), const(i64, UPPER)), f64)
    low = fma(s, rest, sub(sub(f, high), half))
    return mul(high, double(factor[0])), fma(low, double(factor[0]), mul(add(high, low), double(factor[1])))


def _with_power(power: Node, exact: Node, more: Node) -> Node:
    """power + exact + more, where what the first sum loses counts: the power is 0 or the larger one."""
    total = add(power, exact)
    return add(total, add(more, add(sub(power, total), exact)))


def log1p(x: Node) -> Node:
    """log(1 + x): what 1 + x would lose is kept, as x 2 ** -e + (2 ** -e - 1)."""
    inside = and_(gt(x, double(-1.0)), lt(x, double(math.inf)))
    edge = where(eq(x, double(-1.0)), double(-math.inf), where(lt(x, double(-1.0)), double(math.nan), x))
    return rarely(not_(inside), edge, copysign(_log1p(x), x))


def _log1p(x: Node, beyond: Node | None = None) -> Node:
    """log(1 + x + beyond) for a finite x above -1 and what is too small to be held by it."""
    e = _exponent(add(x, double(1.0)))
    four = bitcast(sub(const(i64, 0x4010 << 48), e), f64)  # 4 * 2 ** -e, which is always normal
    scaled, power = bitcast(sub(bits(x), e), f64), fma(four, double(0.25), double(-1.0))
    f = add(scaled, power)
    lost = sub(scaled, sub(f, power))  # the sum is exact where the power is the smaller of the two
    if beyond is not None:
        lost = fma(beyond, mul(four, double(0.25)), lost)
    return _logarithm(f, cast(e, f64), lost)


def asinh(x: Node) -> Node:
    """The inverse of sinh: log(1 + |x| + x ** 2 / (1 + sqrt(x ** 2 + 1))), log(2 |x|) of large numbers."""
    size = magnitude(x)
    square = mul(size, size)
    more = div(square, add(sqrt(add(square, double(1.0))), double(1.0)))
    total = add(size, more)
    found = _log1p(total, sub(more, sub(total, size)))
    return copysign(_unless_large(size, found), x)


def acosh(x: Node) -> Node:
    """The inverse of cosh: log(x + sqrt(x ** 2 - 1)), log(2 x) of large numbers; NaN below 1."""
    above = sub(x, double(1.0))
    root = sqrt(fma(above, above, add(above, above)))
    total = add(root, above)
    found = _log1p(total, sub(above, sub(total, root)))
    return _unless_large(x, where(lt(x, double(1.0)), double(math.nan), found))


def _unless_large(x: Node, found: Node) -> Node:
    """What was found, but log(2 x) of large x; NaN and infinity as they are."""
    f, e = split(x)
    large = where(lt(x, double(math.inf)), _logarithm(f, add(e, double(float(EXPONENT)))), x)
    return rarely(not_(lt(x, double(LARGE))), large, found)


def atanh(x: Node) -> Node:
    """The inverse of tanh: a polynomial near 0, log((1 + x) / (1 - x)) / 2 elsewhere."""
    size, q = magnitude(x), mul(x, x)
    near = fma(mul(x, q), series(ATANH, q), x)
    far = copysign(mul(_log1p(div(add(size, size), sub(double(1.0), size))), double(0.5)), x)
    edge = where(eq(size, double(1.0)), copysign(double(math.inf), x), double(math.nan))
    return rarely(not_(lt(size, double(1.0))), edge, where(lt(size, double(0.5)), near, far))
