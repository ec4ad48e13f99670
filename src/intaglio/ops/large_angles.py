"""Angles of float32 that are not small, in quarter turns: by double precision, or by the bits of 2 / pi."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ops.approximate import bits, double, f32, f64, i32, i64, magnitude, number
from intaglio.ops.elementwise import add, and_, cast, eq, fma, lt, maximum, mul, neg, or_, round_, shl, shr, sub, where
from intaglio.ops.memory import const

if TYPE_CHECKING:
    from intaglio.ir.node import Node

HALF_PI_DOUBLE: Final = (1.5707963109016418, 1.5893254712295857e-08, 6.123233995736766e-17)  # below 2 ** 28
LARGE: Final = 2.0**28  # from where two words of pi are too few


def quarters_of_far(x: Node) -> tuple[Node, Node, Node]:
    """(whole quarter turns, the rest in radians, by how much that is too large) of a float32 of any size."""
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
