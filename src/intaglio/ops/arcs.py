"""Angles of numbers, in float32 and float64.

Coefficients are minimax fits. Errors in ulp: asin and acos 1.2, atan 1.2, of float64 1.7, atan2 1.9.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ops.approximate import WORDS, bits, f32, f64, like, magnitude, series
from intaglio.ops.elementwise import (
    add,
    and_,
    copysign,
    div,
    eq,
    fma,
    gt,
    lt,
    mul,
    not_,
    rarely,
    sqrt,
    sub,
    where,
)
from intaglio.ops.memory import const

if TYPE_CHECKING:
    from intaglio.ir.node import Node

PI_2: Final = {f32: (1.57079637, -4.37113883e-8), f64: (1.5707963267948966, 6.123233995736766e-17)}  # in two parts
STEEP: Final = 0.5625  # from where arcsines are taken of the other side
ARCSINE: Final = {
    f32: (4.74923737e-2, 6.73601544e-3, 3.40125486e-2, 4.42319959e-2, 7.50209838e-2, 1.66666314e-1),
    f64: (
        0.05994463042462764, -0.07703138938171701, 0.06889223192245539, -0.021842368438040768, 0.017553225768350094,
        0.0077467544736047715, 0.011866589759748403, 0.013929916298756482, 0.017355477404991246,
        0.02237201592037696, 0.030381949320609423, 0.04464285704458544, 0.07500000000099975, 0.1666666666666631,
    ),
}  # fmt: skip
ARCTANGENT: Final = {
    f32: (
        -1.7875476e-3, 1.08873611e-2, -3.11270021e-2, 5.79065457e-2, -8.40047523e-2, 1.09511748e-1, -1.4264052e-1,
        1.9998531e-1, -3.33332986e-1,
    ),
    f64: (
        1.3489379024816669e-05, -0.00015479809821584674, 0.0008434897692520595, -0.002919357950837761,
        0.007263392906333363, -0.013995045164469408, 0.022085225518626548, -0.029985644670193493,
        0.03669358345967521, -0.04221721036884126, 0.047232947591568625, -0.052538060173270444,
        0.05880592671842439, -0.06666415019732475, 0.07692281189830885, -0.09090907119549821,
        0.11111111013669099, -0.14285714282802892, 0.19999999999955448, -0.33333333333333093,
    ),
}  # fmt: skip


def _arcsine_parts(x: Node) -> tuple[Node, Node, Node]:
    """(whether |x| is large, s, what its arcsine is more than s): s is |x|, or sqrt((1 - |x|) / 2) if it is."""
    size = magnitude(x)
    large = gt(size, like(x, STEEP))
    z = where(large, fma(size, like(x, -0.5), like(x, 0.5)), mul(size, size))
    s = where(large, sqrt(z), size)
    return large, s, mul(mul(s, z), series(ARCSINE[x.dtype], z))


def asin(x: Node) -> Node:
    """The angle in [-pi/2, pi/2] whose sine is x; of a large one pi/2 less the angle on the other side."""
    right, missing = PI_2[x.dtype]
    large, s, more = _arcsine_parts(x)
    other = fma(like(x, -2.0), add(s, sub(more, like(x, missing / 2))), like(x, right))
    return copysign(where(large, other, add(s, more)), x)


def acos(x: Node) -> Node:
    """The angle in [0, pi] whose cosine is x."""
    right, missing = PI_2[x.dtype]
    large, s, more = _arcsine_parts(x)
    across = sub(like(x, right), add(copysign(s, x), sub(copysign(more, x), like(x, missing))))
    twice = add(s, more)
    twice = add(twice, twice)
    behind = sub(like(x, 2 * right), sub(twice, like(x, 2 * missing)))
    return where(large, where(lt(x, like(x, 0.0)), behind, twice), across)


def _arctangent_more(w: Node) -> Node:
    """What the arctangent of a number in [-1, 1] is more than it."""
    q = mul(w, w)
    return mul(mul(w, q), series(ARCTANGENT[w.dtype], q))


def atan(x: Node) -> Node:
    """The angle in [-pi/2, pi/2] whose tangent is x; beyond 1 pi/2 less that of 1 / x."""
    right, missing = PI_2[x.dtype]
    size = magnitude(x)
    far = gt(size, like(x, 1.0))
    w = where(far, div(like(x, -1.0), size), size)
    more = add(_arctangent_more(w), where(far, like(x, missing), like(x, 0.0)))
    return copysign(add(where(far, like(x, right), like(x, 0.0)), add(w, more)), x)


def atan2(y: Node, x: Node) -> Node:
    """The angle of the point (x, y) in [-pi, pi], by that of its eighth of the plane."""
    right, missing = PI_2[x.dtype]
    none, infinity = like(x, 0.0), like(x, math.inf)
    high, wide = magnitude(y), magnitude(x)
    steep = gt(high, wide)
    short, long = where(steep, wide, high), where(steep, high, wide)
    level = eq(short, long)
    usual = and_(lt(none, long), and_(lt(long, infinity), lt(short, infinity)))
    edge = where(level, where(eq(long, none), none, like(x, 1.0)), div(short, long))
    w = rarely(not_(usual), edge, div(short, long))
    more = _arctangent_more(w)
    near = where(steep, sub(like(x, right), add(w, sub(more, like(x, missing)))), add(w, more))
    behind = sub(like(x, 2 * right), sub(near, like(x, 2 * missing)))
    return copysign(where(lt(bits(x), const(WORDS[x.dtype], 0)), behind, near), y)
