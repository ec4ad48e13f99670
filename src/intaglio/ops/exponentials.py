"""Exponentials and what is made of them, in float32.

Coefficients are minimax fits on the reduced ranges. Errors in ulp: exp 0.9, exp2 0.9, expm1 1.5, sinh 1.5, cosh 1.9,
tanh 1.4, erf 1.0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ops.approximate import ROUNDING, at_least, at_most, magnitude, number, polynomial
from intaglio.ops.elementwise import add, copysign, div, fma, gt, ldexp, lt, mul, neg, sub, where

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.ir.node import Node

LOG2_E: Final = 1.442695
LOG_2: Final = (6.93145752e-1, 1.42860677e-6)  # log 2 in two parts, the first of few digits
EXP: Final = (1.37805939e-3, 8.37312452e-3, 4.16695364e-2, 1.66664720e-1, 4.99999851e-1, 1.0, 1.0)
EXP2: Final = (1.5329264e-4, 1.33909693e-3, 9.61849932e-3, 5.55035956e-2, 2.40226477e-1, 6.93147182e-1, 1.0)
EXPM1: Final = (2.00854323e-4, 1.401074e-3, 8.33285414e-3, 4.1664958e-2, 1.66666687e-1, 5.0000006e-1)
SINH: Final = (1.99650487e-4, 8.33317451e-3, 1.66666672e-1)
COSH: Final = (1.39354414e-3, 4.16664593e-2, 0.5)
TANH: Final = (-5.64116985e-3, 2.05827542e-2, -5.37227094e-2, 1.33312419e-1, -3.33332747e-1)
ERF_NEAR: Final = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)


def exp(x: Node) -> Node:
    """e ** x."""
    return _unless_gone(x, -104.0, 89.0, _exp)


def _unless_gone(x: Node, least: float, most: float, power: Callable[[Node], Node]) -> Node:
    """A power of x, 0 below the least: not by way of numbers too small to hold, which processors take long for."""
    gone = lt(x, number(least))
    return where(gone, number(0.0), power(where(gone, number(0.0), at_most(x, most))))


def _exp(x: Node) -> Node:
    """e ** x for x in [-104, 89]: x = j log 2 + t, |t| <= log(2) / 2."""
    j = _nearest(x, LOG2_E)
    return ldexp(polynomial(EXP, _rest(x, j)), j)


def _nearest(x: Node, factor: float) -> Node:
    """The whole number nearest to x times a factor; never -0."""
    return sub(fma(x, number(factor), number(ROUNDING)), number(ROUNDING))


def _rest(x: Node, j: Node) -> Node:
    """x - j log 2."""
    return fma(j, number(-LOG_2[1]), fma(j, number(-LOG_2[0]), x))


def _unless_near_zero(j: Node, x: Node) -> Node:
    """j, but 0 where |x| < 1/2: nothing that is near the result is taken away from what is."""
    return where(lt(magnitude(x), number(0.5)), number(0.0), j)


def exp2(x: Node) -> Node:
    """2 ** x: the whole part exactly, the rest by a polynomial."""

    def power(a: Node) -> Node:
        j = _nearest(a, 1.0)
        return ldexp(polynomial(EXP2, sub(a, j)), j)

    return _unless_gone(x, -150.0, 129.0, power)


def expm1(x: Node) -> Node:
    """e ** x - 1 as 2 ** j (e ** t - 1) + 2 ** j - 1; halved on the way, so that 2 ** j is a number."""
    a = at_least(at_most(x, 89.0), -18.0)
    j = _unless_near_zero(_nearest(a, LOG2_E), a)
    t = _rest(a, j)
    power = ldexp(number(0.5), j)
    half = fma(power, fma(mul(t, t), polynomial(EXPM1, t), t), sub(power, number(0.5)))
    return copysign(add(half, half), x)


def sinh(x: Node) -> Node:
    """The hyperbolic sine, by those of x = j log 2 + t: (2 ** j e ** t - 2 ** -j e ** -t) / 2."""
    a = at_least(at_most(x, 89.7), -89.7)
    j = _unless_near_zero(_nearest(a, LOG2_E), a)
    total, difference, c, s = _even_and_odd(a, j)
    half = add(difference, fma(difference, c, mul(total, s)))
    return copysign(add(half, half), x)


def cosh(x: Node) -> Node:
    """The hyperbolic cosine."""
    a = at_least(at_most(x, 89.7), -89.7)
    total, difference, c, s = _even_and_odd(a, _nearest(a, LOG2_E))
    half = add(total, fma(total, c, mul(difference, s)))
    return add(half, half)


def _even_and_odd(x: Node, j: Node) -> tuple[Node, Node, Node, Node]:
    """(2 ** (j - 2) + 2 ** (-j - 2), their difference, cosh(t) - 1, sinh(t)) for x = j log 2 + t."""
    t = _rest(x, j)
    q = mul(t, t)
    up, down = ldexp(number(0.25), j), ldexp(number(0.25), neg(j))
    return add(up, down), sub(up, down), mul(q, polynomial(COSH, q)), fma(mul(t, q), polynomial(SINH, q), t)


def tanh(x: Node) -> Node:
    """The hyperbolic tangent: a polynomial near 0, by exp(2 |x|) elsewhere."""
    size = magnitude(x)
    t = at_most(size, 9.1)  # where it is 1
    j = _nearest(t, 2 * LOG2_E)
    r = fma(j, number(-math.log(2) / 2), t)
    e = ldexp(polynomial([c * 2.0 ** (len(EXP) - 1 - k) for k, c in enumerate(EXP)], r), j)
    far = sub(number(1.0), div(number(2.0), add(e, number(1.0))))
    q = mul(x, x)
    near = fma(mul(x, q), polynomial(TANH, q), x)
    return copysign(where(gt(size, number(0.625)), far, near), x)


def erf(x: Node) -> Node:
    """The error function: a polynomial near 0, 1 - exp(a polynomial) elsewhere."""
    size = magnitude(x)
    t = at_most(size, 4.0)  # where it is 1: no denormals, which are slow
    q = mul(t, t)
    r = fma(number(-1.72853470e-5), t, number(3.83197126e-4))
    u = fma(number(-3.88396438e-3), t, number(2.42546219e-2))
    r = fma(r, q, u)
    for c in (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1):
        r = fma(r, t, number(c))
    r = fma(r, t, neg(t))
    far = copysign(sub(number(1.0), _exp(r)), x)
    near = fma(x, polynomial(ERF_NEAR, q), x)
    return where(gt(size, number(0.927734375)), far, near)
