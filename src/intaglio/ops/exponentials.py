"""Exponentials and what is made of them, in float32 and float64.

Coefficients are minimax fits on the reduced ranges. Errors in ulp of float32 and float64: exp 0.9 and 0.96, exp2 0.9
and 0.98, expm1 1.5 and 1.25, sinh 1.5 and 1.55, cosh 1.9 and 1.55, tanh 1.4 and 1.6.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ops.approximate import at_least, at_most, f32, f64, like, magnitude, nearest, series
from intaglio.ops.elementwise import add, copysign, div, fma, gt, ldexp, lt, mul, neg, sub, where

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.ir.node import Node

# x from where exp(x) is infinite and up to where it is 0, the same of exp2; -1 of expm1; infinite of sinh and cosh; 1
# of tanh
EXP_RANGE: Final = {f32: (89.0, -104.0), f64: (710.0, -746.0)}
EXP2_RANGE: Final = {f32: (129.0, -150.0), f64: (1025.0, -1075.0)}
EXPM1_RANGE: Final = {f32: (89.0, -18.0), f64: (710.0, -38.0)}
SINH_RANGE: Final = {f32: 89.7, f64: 710.8}
TANH_RANGE: Final = {f32: 9.1, f64: 19.1}

LOG2_E: Final = {f32: 1.442695, f64: math.log2(math.e)}
LOG_2: Final = {  # log 2 in two parts, the first of few digits
    f32: (6.93145752e-1, 1.42860677e-6),
    f64: (0.6931471805592082, 7.371002565167799e-13),
}
# what the leading terms (1 + t of e ** t, 1 of 2 ** t and cosh, t of the others) leave of a function, by the next power
EXP: Final = {
    f32: (1.37805939e-3, 8.37312452e-3, 4.16695364e-2, 1.66664720e-1, 4.99999851e-1),
    f64: (
        2.500005809948078e-08, 2.763024841018149e-07, 2.755758638480903e-06, 2.4801493098826777e-05,
        0.00019841269506566493, 0.0013888888943630175, 0.008333333333494466, 0.041666666666530155,
        0.16666666666666413, 0.5000000000000011,
    ),
}  # fmt: skip
EXP2: Final = {
    f32: (1.5329264e-4, 1.33909693e-3, 9.61849932e-3, 5.55035956e-2, 2.40226477e-1, 6.93147182e-1),
    f64: (
        4.434770643649389e-10, 7.073783993244615e-09, 1.0178199582177723e-07, 1.3215435278251153e-06,
        1.525273349308791e-05, 0.00015403530457119607, 0.0013333558146774677, 0.009618129107594115,
        0.055504108664820084, 0.2402265069591013, 0.6931471805599453,
    ),
}  # fmt: skip
EXPM1: Final = {
    f32: (2.00854323e-4, 1.401074e-3, 8.33285414e-3, 4.1664958e-2, 1.66666687e-1, 5.0000006e-1),
    f64: (
        1.6130579905387008e-10, 2.0970097773979576e-09, 2.5051844622406862e-08, 2.7557027568104235e-07,
        2.755731970805835e-06, 2.4801587738699054e-05, 0.00019841269840813295, 0.001388888888857071,
        0.008333333333333536, 0.04166666666666766, 0.16666666666666666, 0.5,
    ),
}  # fmt: skip
SINH: Final = {
    f32: (1.99650487e-4, 8.33317451e-3, 1.66666672e-1),
    f64: (
        1.612526366392408e-10, 2.505188446968198e-08, 2.755731959631172e-06, 0.00019841269840956886,
        0.008333333333333455, 0.16666666666666666,
    ),
}  # fmt: skip
COSH: Final = {
    f32: (1.39354414e-3, 4.16664593e-2, 0.5),
    f64: (2.763157000312272e-07, 2.480148914775203e-05, 0.0013888888947770292, 0.04166666666651255, 0.5000000000000013),
}
TANH: Final = {
    f32: (-5.64116985e-3, 2.05827542e-2, -5.37227094e-2, 1.33312419e-1, -3.33332747e-1),
    f64: (
        6.055642211624113e-06, -3.021798456190356e-05, 9.158981844281697e-05, -0.0002370301300388384,
        0.0005894586254082232, -0.0014557276175417289, 0.003592114271431953, -0.008863234341520403,
        0.021869488470655372, -0.05396825396613447, 0.1333333333332989, -0.33333333333333315,
    ),
}  # fmt: skip


def exp(x: Node) -> Node:
    """e ** x."""
    return _unless_gone(x, *EXP_RANGE[x.dtype], bounded_exp)


def _unless_gone(x: Node, most: float, least: float, power: Callable[[Node], Node]) -> Node:
    """A power of x, 0 below the least: not by way of numbers too small to hold, which processors take long for."""
    gone = lt(x, like(x, least))
    return where(gone, like(x, 0.0), power(where(gone, like(x, 0.0), at_most(x, most))))


def bounded_exp(x: Node) -> Node:
    """e ** x for x that is at most a little beyond what has a number: x = j log 2 + t, |t| <= log(2) / 2."""
    _, j = nearest(x, LOG2_E[x.dtype])
    return ldexp(_exp_of_rest(_rest(x, j)), j)


def _exp_of_rest(t: Node, of: int = 1) -> Node:
    """e ** (of t), for |of t| <= log(2) / 2 and a power of two `of`.

    Of float64, the error is at most 0.951 ulp, near t = -0.337: 1/2 of the result, 0.17 of 1 + t ..., by which t is
    multiplied, 0.18 of t itself, 0.03 of the polynomial's sums and 0.07 of its coefficients.
    """
    coefficients = EXP[t.dtype]
    scaled = [c * float(of) ** (len(coefficients) + 1 - k) for k, c in enumerate(coefficients)]
    return fma(fma(series(scaled, t), t, like(t, float(of))), t, like(t, 1.0))


def _rest(x: Node, j: Node) -> Node:
    """x - j log 2."""
    high, low = LOG_2[x.dtype]
    return fma(j, like(x, -low), fma(j, like(x, -high), x))


def _unless_near_zero(j: Node, x: Node) -> Node:
    """j, but 0 where |x| < 1/2: nothing that is near the result is taken away from what is."""
    return where(lt(magnitude(x), like(x, 0.5)), like(x, 0.0), j)


def exp2(x: Node) -> Node:
    """2 ** x."""
    return _unless_gone(x, *EXP2_RANGE[x.dtype], bounded_exp2)


def bounded_exp2(x: Node) -> Node:
    """2 ** x for x likewise: the whole part exactly, the rest by a polynomial."""
    _, j = nearest(x, 1.0)
    return ldexp(exp2_of_rest(sub(x, j)), j)


def exp2_of_rest(t: Node) -> Node:
    """2 ** t for |t| <= 1/2."""
    *higher, first = EXP2[t.dtype]
    return fma(fma(series(higher, t), t, like(t, first)), t, like(t, 1.0))


def expm1(x: Node) -> Node:
    """e ** x - 1 as 2 ** j (e ** t - 1) + 2 ** j - 1; halved on the way, so that 2 ** j is a number."""
    most, least = EXPM1_RANGE[x.dtype]
    a = at_least(at_most(x, most), least)
    j = _unless_near_zero(nearest(a, LOG2_E[x.dtype])[1], a)
    t = _rest(a, j)
    power = ldexp(like(x, 0.5), j)
    half = fma(power, fma(mul(t, t), series(EXPM1[x.dtype], t), t), sub(power, like(x, 0.5)))
    return copysign(add(half, half), x)


def sinh(x: Node) -> Node:
    """The hyperbolic sine, by those of x = j log 2 + t: (2 ** j e ** t - 2 ** -j e ** -t) / 2."""
    a = at_most(magnitude(x), SINH_RANGE[x.dtype])
    up, down, c, s = _even_and_odd(a, _unless_near_zero(nearest(a, LOG2_E[x.dtype])[1], a))
    difference = sub(up, down)
    lost = sub(sub(up, difference), down)
    half = add(difference, fma(difference, c, fma(add(up, down), s, lost)))
    return copysign(add(half, half), x)


def cosh(x: Node) -> Node:
    """The hyperbolic cosine."""
    a = at_most(magnitude(x), SINH_RANGE[x.dtype])
    up, down, c, s = _even_and_odd(a, nearest(a, LOG2_E[x.dtype])[1])
    total = add(up, down)
    lost = sub(down, sub(total, up))
    half = add(total, fma(total, c, fma(sub(up, down), s, lost)))
    return add(half, half)


def _even_and_odd(x: Node, j: Node) -> tuple[Node, Node, Node, Node]:
    """(2 ** (j - 2), 2 ** (-j - 2), cosh(t) - 1, sinh(t)) for x = j log 2 + t, both not negative.

    Their sum and difference lose up to half a unit, where one is about 2 ** 54 times the other.
    """
    t = _rest(x, j)
    q = mul(t, t)
    up, down = ldexp(like(x, 0.25), j), ldexp(like(x, 0.25), neg(j))
    odd = fma(mul(t, q), series(SINH[x.dtype], q), t)
    return up, down, mul(q, series(COSH[x.dtype], q)), odd


def tanh(x: Node) -> Node:
    """The hyperbolic tangent: a polynomial near 0, by exp(2 |x|) elsewhere."""
    size = magnitude(x)
    t = at_most(size, TANH_RANGE[x.dtype])
    _, j = nearest(t, 2 * LOG2_E[x.dtype])
    e = ldexp(_exp_of_rest(fma(j, like(x, -math.log(2) / 2), t), of=2), j)
    far = sub(like(x, 1.0), div(like(x, 2.0), add(e, like(x, 1.0))))
    q = mul(x, x)
    near = fma(mul(x, q), series(TANH[x.dtype], q), x)
    return copysign(where(gt(size, like(x, 0.625)), far, near), x)
