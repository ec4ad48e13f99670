"""Functions of angles and angles of numbers, in float32.

An angle is reduced to quarter turns and a rest: in single precision if it is small, and only where some lane asks for
it by double precision or the bits of 2 / pi. Errors in ulp: sin and cos 1.3, tan 1.6, asin and acos 1.2, atan 1.2,
atan2 1.9.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ops.approximate import ROUNDING, bits, double, f32, f64, i32, i64, magnitude, number, polynomial, whole
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
    maximum,
    mul,
    neg,
    not_,
    or_,
    rarely,
    round_,
    shl,
    shr,
    sqrt,
    sub,
    where,
    xor,
)
from intaglio.ops.memory import const

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.ir.node import Node

# pi / 2 in parts: times a whole number below 2 ** 13 the first three are exact, with a fused multiply-add or without
HALF_PI: Final = (1.5703125, 4.837512969970703125e-4, 7.549533620476723e-08, 2.5633440682570896e-12)
HALF_PI_DOUBLE: Final = (1.5707963109016418, 1.5893254712295857e-08, 6.123233995736766e-17)  # below 2 ** 28
LARGE: Final = 2.0**28  # from where two words of pi are too few
FAR: Final = 8192.0  # from where short parts are
COSINE: Final = (2.44677067e-5, -1.38877297e-3, 4.16666567e-2, -0.5)
SINE: Final = (-2.86567956e-6, 1.98559923e-4, -8.33338592e-3, 1.66666672e-1)  # r ** 3 times this is r - sin(r)
TANGENT: Final = (
    4.37192339e-3,
    9.95157243e-5,
    1.08267004e-2,
    2.12863889e-2,
    5.40588982e-2,
    1.33326754e-1,
    3.33333492e-1,
)
ARCSINE: Final = (4.74923737e-2, 6.73601544e-3, 3.40125486e-2, 4.42319959e-2, 7.50209838e-2, 1.66666314e-1)
STEEP: Final = 0.5625  # from where arcsines are taken of the other side
ARCTANGENT: Final = (
    -1.7875476e-3, 1.08873611e-2, -3.11270021e-2, 5.79065457e-2, -8.40047523e-2, 1.09511748e-1, -1.4264052e-1,
    1.9998531e-1, -3.33332986e-1,
)  # fmt: skip
PI_2: Final = (1.57079637, -4.37113883e-8)  # pi / 2 in two parts


def _quarters(x: Node) -> tuple[Node, Node, Node]:
    """(whole quarter turns, the rest in radians, by how much that is too large) of a float32 that is not large."""
    rounded = fma(x, number(2 / math.pi), number(ROUNDING))
    j = sub(rounded, number(ROUNDING))
    exact = fma(j, number(-HALF_PI[1]), fma(j, number(-HALF_PI[0]), x))
    r = fma(j, number(-HALF_PI[2]), exact)
    taken = sub(r, exact)
    over = add(fma(j, number(HALF_PI[2]), taken), sub(r, add(exact, taken)))
    return bits(rounded), r, fma(j, number(HALF_PI[3]), over)


def _quarters_of_far(x: Node) -> tuple[Node, Node, Node]:
    """As `_quarters`, of a float32 of any size."""
    wide = cast(x, f64)
    j = round_(mul(wide, double(2 / math.pi)))
    near_rest = wide
    for part in HALF_PI_DOUBLE:
        near_rest = fma(j, double(-part), near_rest)
    large = lt(number(LARGE), magnitude(x))
    large_turns, large_rest = _quarters_of_large(x)
    rest = where(large, large_rest, near_rest)
    r = cast(rest, f32)
    return cast(where(large, large_turns, cast(j, i64)), i32), r, cast(sub(cast(r, f64), rest), f32)


def _by_quarters(x: Node, of: Callable[[Node, Node, Node], Node]) -> Node:
    """A function of an angle by that of (quarter turns, the rest, its excess); NaN of what is not finite."""
    size = magnitude(x)
    far = where(lt(size, number(math.inf)), of(*_quarters_of_far(x)), number(math.nan))
    return rarely(not_(lt(size, number(FAR))), far, of(*_quarters(x)))


def _sine(turns: Node, r: Node, over: Node) -> Node:
    """The sine of some quarter turns and r - over."""
    q = mul(r, r)
    c = fma(q, polynomial(COSINE, q), number(1.0))
    s = sub(r, fma(mul(r, q), polynomial(SINE, q), over))
    picked = where(eq(and_(turns, whole(1)), whole(0)), s, c)
    return bitcast(xor(bits(picked), and_(shl(turns, whole(30)), whole(-1 << 31))), f32)


def sin(x: Node) -> Node:
    """The sine."""
    return _by_quarters(x, _sine)


def cos(x: Node) -> Node:
    """The cosine."""
    return _by_quarters(x, lambda turns, r, over: _sine(add(turns, whole(1)), r, over))


def tan(x: Node) -> Node:
    """The tangent."""
    return _by_quarters(x, _tangent)


def _tangent(turns: Node, r: Node, over: Node) -> Node:
    """The tangent of some quarter turns and r - over: that of the rest, or -1 by it, what it lost counted in."""
    q = mul(r, r)
    more = sub(mul(mul(r, q), polynomial(TANGENT, q)), over)
    even = add(r, more)
    lost = add(sub(r, even), more)
    odd = div(number(-1.0), even)
    odd = fma(odd, fma(odd, lost, fma(odd, even, number(1.0))), odd)
    return where(eq(and_(turns, whole(1)), whole(0)), even, odd)


def _arcsine_parts(x: Node) -> tuple[Node, Node, Node]:
    """(whether |x| is large, s, what its arcsine is more than s): s is |x|, or sqrt((1 - |x|) / 2) if it is."""
    size = magnitude(x)
    large = gt(size, number(STEEP))
    z = where(large, fma(size, number(-0.5), number(0.5)), mul(size, size))
    s = where(large, sqrt(z), size)
    return large, s, mul(mul(s, z), polynomial(ARCSINE, z))


def asin(x: Node) -> Node:
    """The angle in [-pi/2, pi/2] whose sine is x; of a large one pi/2 less the angle on the other side."""
    large, s, more = _arcsine_parts(x)
    other = fma(number(-2.0), add(s, sub(more, number(PI_2[1] / 2))), number(PI_2[0]))
    return copysign(where(large, other, add(s, more)), x)


def acos(x: Node) -> Node:
    """The angle in [0, pi] whose cosine is x."""
    large, s, more = _arcsine_parts(x)
    right = sub(number(PI_2[0]), add(copysign(s, x), sub(copysign(more, x), number(PI_2[1]))))
    twice = add(s, more)
    twice = add(twice, twice)
    behind = sub(number(2 * PI_2[0]), sub(twice, number(2 * PI_2[1])))
    return where(large, where(lt(x, number(0.0)), behind, twice), right)


def _arctangent_more(w: Node) -> Node:
    """What the arctangent of a number in [-1, 1] is more than it."""
    q = mul(w, w)
    return mul(mul(w, q), polynomial(ARCTANGENT, q))


def atan(x: Node) -> Node:
    """The angle in [-pi/2, pi/2] whose tangent is x; beyond 1 pi/2 less that of 1 / x."""
    size = magnitude(x)
    far = gt(size, number(1.0))
    w = where(far, div(number(-1.0), size), size)
    more = add(_arctangent_more(w), where(far, number(PI_2[1]), number(0.0)))
    return copysign(add(where(far, number(PI_2[0]), number(0.0)), add(w, more)), x)


def atan2(y: Node, x: Node) -> Node:
    """The angle of the point (x, y) in [-pi, pi], by that of its eighth of the plane."""
    high, wide = magnitude(y), magnitude(x)
    steep = gt(high, wide)
    short, long = where(steep, wide, high), where(steep, high, wide)
    level = eq(short, long)
    usual = and_(lt(number(0.0), long), and_(lt(long, number(math.inf)), lt(short, number(math.inf))))
    edge = where(level, where(eq(long, number(0.0)), number(0.0), number(1.0)), div(short, long))
    w = rarely(not_(usual), edge, div(short, long))
    more = _arctangent_more(w)
    near = where(steep, sub(number(PI_2[0]), add(w, sub(more, number(PI_2[1])))), add(w, more))
    behind = sub(number(2 * PI_2[0]), sub(near, number(2 * PI_2[1])))
    return copysign(where(lt(bits(x), whole(0)), behind, near), y)


def _words_of_two_over_pi(count: int) -> tuple[int, ...]:
    """The first 64-bit words of the binary fraction 2 / pi, by Machin's formula for pi in whole numbers."""
    digits = 64 * count + 64

    def arctangent_of_inverse(n: int) -> int:
        term = (1 << digits) // n
        total, k = term, 1
        while term:
            term //= -n * n
            k += 2
            total += term // k
        return total

    pi = 16 * arctangent_of_inverse(5) - 4 * arctangent_of_inverse(239)
    fraction = (2 << (2 * digits)) // pi >> 64
    return tuple((fraction >> (64 * (count - 1 - k))) & 0xFFFFFFFFFFFFFFFF for k in range(count))


WORDS: Final = _words_of_two_over_pi(5)


def _quarters_of_large(x: Node) -> tuple[Node, Node]:
    """(whole quarter turns modulo 4, the rest in radians) of a float32 of any size.

    x = m * 2 ** e with whole m, so only the bits of 2 / pi from place e - 2 on matter: those before give whole turns.
    Source: Payne & Hanek, Radian reduction for trigonometric functions, SIGNUM Newsletter 18(1), 1983.
    """
    pattern = cast(bits(magnitude(x)), i64)
    field = shr(pattern, const(i64, 23))
    m = or_(and_(pattern, const(i64, 0x7FFFFF)), const(i64, 0x800000))
    start = maximum(sub(field, const(i64, 152)), const(i64, 0))  # e - 2: the first bit of 2 / pi that is kept
    word, shift = shr(start, const(i64, 6)), and_(start, const(i64, 63))

    def pick(after: int) -> Node:
        chosen = const(i64, WORDS[2 + after])
        for k in (1, 0):
            chosen = where(eq(word, const(i64, k)), const(i64, WORDS[k + after]), chosen)
        return chosen

    def from_bit(high: Node, low: Node) -> Node:
        back = sub(const(i64, 63), shift)
        rest = and_(shr(shr(low, const(i64, 1)), back), sub(shl(const(i64, 1), shift), const(i64, 1)))
        return or_(shl(high, shift), rest)

    first = from_bit(pick(0), pick(1))
    second = and_(shr(from_bit(pick(1), pick(2)), const(i64, 32)), const(i64, 0xFFFFFFFF))
    product = add(mul(m, first), shr(mul(m, second), const(i64, 32)))  # weight 2 ** -62 a bit, modulo 4
    half = const(i64, 1 << 61)
    turns = shr(add(product, half), const(i64, 62))
    rest = sub(product, shl(turns, const(i64, 62)))
    radians = mul(cast(rest, f64), const(f64, math.pi / 2 * 2.0**-62))
    negative = lt(x, number(0.0))
    return where(negative, neg(turns), turns), where(negative, neg(radians), radians)
