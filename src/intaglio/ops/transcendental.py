"""Transcendental functions by primitive ops: range reduction and polynomials in float32, the C library in float64.

Coefficients are minimax fits on the reduced ranges. Errors: exp 0.9 ulp, log 0.9, sin and cos 1.5, tanh 1.8, erf 1.0.
Powers and logarithms to base 2 are worked out in float64 by series, and rounded once: 0.501 ulp.
Functions with no float32 form of their own are computed in float64 and rounded once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Node, Op, make
from intaglio.ops.elementwise import (
    ABS,
    TRUNC,
    Elementwise,
    add,
    and_,
    bitcast,
    cast,
    copysign,
    decompositions,
    div,
    eq,
    fma,
    ge,
    gt,
    lt,
    maximum,
    mul,
    ne,
    neg,
    not_,
    or_,
    rarely,
    round_,
    shl,
    shr,
    sub,
    where,
    xor,
)  # fmt: skip
from intaglio.ops.memory import const

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

f32: Final = dtypes.float32
i32: Final = dtypes.int32
i64: Final = dtypes.int64
f64: Final = dtypes.float64


def number(value: float) -> Node:
    """A float32 constant."""
    return const(f32, value)


def whole(value: int) -> Node:
    """An int32 constant."""
    return const(i32, value)


def polynomial(coefficients: tuple[float, ...], x: Node) -> Node:
    """A polynomial, highest power first, by Horner's rule."""
    total = number(coefficients[0])
    for c in coefficients[1:]:
        total = fma(total, x, number(c))
    return total


def by_dtype(op: Elementwise, narrow: Callable[..., Node] | None) -> Callable[..., Node]:
    """float32 by its own form, narrower floats through float32, everything else through float64."""

    def form(*src: Node) -> Node:
        dtype = src[0].dtype
        if dtype is f32 and narrow is not None:
            return narrow(*src)
        if dtype is f64:
            return make(op, *src)
        if dtype in (dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float8_e5m2):
            return cast(make(op, *(cast(s, f32) for s in src)), dtype)
        return cast(make(op, *(cast(s, f64) for s in src)), dtype)

    return form


def scale(x: Node, power: Node) -> Node:
    """x * 2 ** power for an int32 power in [-300, 300], in two steps, so that neither factor overflows."""
    half = shr(power, whole(1))
    rest = sub(power, half)
    for part in (half, rest):
        x = mul(x, bitcast(shl(add(part, whole(127)), whole(23)), f32))
    return x


EXP: Final = (1.37805939e-3, 8.37312452e-3, 4.16695364e-2, 1.66664720e-1, 4.99999851e-1, 1.0, 1.0)


def exp(x: Node) -> Node:
    """e ** x: x = j log 2 + t, |t| <= log(2) / 2."""
    gone = lt(x, number(-103.97208))  # less than half of the least number: 0, and no slow arithmetic on the way there
    a = where(gt(x, number(89.0)), number(89.0), where(gone, number(0.0), x))
    j = round_(mul(a, number(1.442695)))
    t = fma(j, number(-6.93145752e-1), a)
    t = fma(j, number(-1.42860677e-6), t)
    result = scale(polynomial(EXP, t), cast(j, i32))
    return where(ne(x, x), x, where(gone, number(0.0), result))


def exp2(x: Node) -> Node:
    """2 ** x: the whole part exactly, the rest by exp's polynomial."""
    a = where(gt(x, number(129.0)), number(129.0), x)
    a = where(lt(a, number(-151.0)), number(-151.0), a)
    j = round_(a)
    t = sub(a, j)
    low = mul(t, number(-1.90465421e-9))
    u = fma(t, number(6.93147182e-1), low)
    result = scale(polynomial(EXP, u), cast(j, i32))
    return where(ne(x, x), x, result)


def _split(x: Node) -> tuple[Node, Node]:
    """(m, e) with x = m * 2 ** e and m in [2/3, 4/3), for positive x, denormals included; e is a float."""
    tiny = lt(x, number(1.17549435e-38))
    a = where(tiny, mul(x, number(8388608.0)), x)
    first = where(tiny, number(-23.0), number(0.0))
    bits = bitcast(a, i32)
    e = and_(sub(bits, whole(1059760811)), whole(-8388608))
    return bitcast(sub(bits, e), f32), fma(cast(e, f32), number(1.19209290e-7), first)


def _log_near_one(m: Node) -> Node:
    """log(m) for m in [2/3, 4/3)."""
    x = sub(m, number(1.0))
    q = mul(x, x)
    r = fma(number(-0.130310059), q, number(-0.121483512))
    t = fma(number(0.140869141), q, number(0.139814854))
    r = fma(r, q, number(-0.166846126))
    t = fma(t, q, number(0.200120345))
    r = fma(r, q, number(-0.249996200))
    r = fma(t, x, r)
    r = fma(r, x, number(0.333331972))
    r = fma(r, x, number(-0.5))
    return fma(r, q, x)


def _log_edges(x: Node, result: Node) -> Node:
    """-inf at 0, NaN below, infinity and NaN as they are."""
    result = where(eq(x, number(0.0)), number(-math.inf), where(lt(x, number(0.0)), number(math.nan), result))
    return where(lt(x, number(math.inf)), result, x)


def log(x: Node) -> Node:
    """The natural logarithm."""
    m, e = _split(x)
    return _log_edges(x, fma(e, number(0.693147182), _log_near_one(m)))


def double(value: float) -> Node:
    """A float64 constant."""
    return const(f64, value)


def _series(coefficients: Sequence[float], x: Node) -> Node:
    """A float64 polynomial, highest power first."""
    total = double(coefficients[0])
    for c in coefficients[1:]:
        total = fma(total, x, double(c))
    return total


TWO_THIRDS: Final = 0x3FE5555555555555  # the bits of 2 / 3
LOG2_TERMS: Final = [2 / math.log(2) / (2 * k + 1) for k in range(7, -1, -1)]
EXP2_TERMS: Final = [math.log(2) ** k / math.factorial(k) for k in range(9, -1, -1)]


def _log2_of_float32(x: Node) -> Node:
    """The logarithm to base 2 of a float32 that is not negative, in float64, to a relative error of 1e-12.

    x = m 2**e with m in [2/3, 4/3), and log m = 2 artanh((m - 1) / (m + 1)), whose argument is at most a fifth.
    """
    bits = bitcast(cast(x, f64), i64)
    e = and_(sub(bits, const(i64, TWO_THIRDS)), const(i64, -1 << 52))
    m = bitcast(sub(bits, e), f64)
    s = div(sub(m, double(1)), add(m, double(1)))
    found = fma(_series(LOG2_TERMS, mul(s, s)), s, cast(cast(shr(e, const(i64, 52)), i32), f64))
    found = where(eq(x, number(0.0)), double(-math.inf), found)
    return where(lt(x, number(math.inf)), found, double(math.inf))


def _exp2_to_float32(x: Node) -> Node:
    """2 ** x of a float64 in float32, rounded once."""
    a = where(gt(x, double(130)), double(130), where(lt(x, double(-160)), double(-160), x))
    j = round_(a)
    p = _series(EXP2_TERMS, sub(a, j))
    return cast(bitcast(add(bitcast(p, i64), shl(cast(cast(j, i32), i64), const(i64, 52))), f64), f32)


def log2(x: Node) -> Node:
    """The logarithm to base 2."""
    found = cast(_log2_of_float32(where(lt(x, number(0.0)), number(1.0), x)), f32)
    return where(lt(x, number(0.0)), number(math.nan), where(ne(x, x), x, found))


def power(x: Node, y: Node) -> Node:
    """x ** y with C's edges, as 2 ** (y log2 |x|)."""
    size, one = make(ABS, x), number(1.0)
    logarithm = _log2_of_float32(where(ne(x, x), one, size))
    result = _exp2_to_float32(where(eq(size, one), double(0), mul(cast(y, f64), logarithm)))
    half = mul(y, number(0.5))
    is_whole, is_even = eq(make(TRUNC, y), y), eq(make(TRUNC, half), half)  # so are infinities
    result = where(and_(is_whole, not_(is_even)), copysign(result, x), result)
    is_real = or_(is_whole, or_(ge(x, number(0.0)), eq(size, number(math.inf))))
    result = where(is_real, result, number(math.nan))
    result = where(or_(ne(x, x), ne(y, y)), add(x, y), result)
    return where(or_(eq(y, number(0.0)), eq(x, one)), one, result)


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
    bits = cast(bitcast(make(ABS, x), i32), i64)
    field = shr(bits, const(i64, 23))
    m = or_(and_(bits, const(i64, 0x7FFFFF)), const(i64, 0x800000))
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


HALF_PI: Final = (1.57079601, 3.13916473e-7, 5.39030253e-15)  # pi / 2 in parts, the first of few digits
LARGE: Final = 2.0**28  # from where two words of pi are too few
FAR: Final = 71476.0  # from where those are too few
ROUNDING: Final = 12582912.0  # 1.5 * 2 ** 23: a small number added to it is rounded to a whole one, in the last bits
COSINE: Final = (2.44677067e-5, -1.38877297e-3, 4.16666567e-2, -0.5)
SINE: Final = (-2.86567956e-6, 1.98559923e-4, -8.33338592e-3, 1.66666672e-1)  # r ** 3 times this is r - sin(r)


def _quarters(x: Node) -> tuple[Node, Node, Node]:
    """(whole quarter turns, the rest in radians, by how much that is too large) of a float32 that is not large."""
    rounded = fma(x, number(2 / math.pi), number(ROUNDING))
    j = sub(rounded, number(ROUNDING))
    first = fma(j, number(-HALF_PI[0]), x)  # exact
    r = fma(j, number(-HALF_PI[1]), first)
    taken = sub(r, first)
    over = add(fma(j, number(HALF_PI[1]), taken), sub(r, add(first, taken)))
    return bitcast(rounded, i32), r, fma(j, number(HALF_PI[2]), over)


def _quarters_of_far(x: Node) -> tuple[Node, Node, Node]:
    """As `_quarters`, of a float32 of any size."""
    wide = cast(x, f64)
    j = round_(mul(wide, double(2 / math.pi)))
    near_rest = fma(j, double(-6.123233995736766e-17), fma(j, double(-math.pi / 2), wide))
    large = lt(number(LARGE), make(ABS, x))
    large_turns, large_rest = _quarters_of_large(x)
    rest = where(large, large_rest, near_rest)
    r = cast(rest, f32)
    return cast(where(large, large_turns, cast(j, i64)), i32), r, cast(sub(cast(r, f64), rest), f32)


def _by_quarters(x: Node, of: Callable[[Node, Node, Node], Node]) -> Node:
    """A function of an angle by that of (quarter turns, the rest, its excess); NaN of what is not finite."""
    size = make(ABS, x)
    far = where(lt(size, number(math.inf)), of(*_quarters_of_far(x)), number(math.nan))
    return rarely(not_(lt(size, number(FAR))), far, of(*_quarters(x)))


def _sine(turns: Node, r: Node, over: Node) -> Node:
    """The sine of some quarter turns and r - over."""
    q = mul(r, r)
    c = fma(q, polynomial(COSINE, q), number(1.0))
    s = sub(r, fma(mul(r, q), polynomial(SINE, q), over))
    picked = where(eq(and_(turns, whole(1)), whole(0)), s, c)
    return bitcast(xor(bitcast(picked, i32), and_(shl(turns, whole(30)), whole(-1 << 31))), f32)


def sin(x: Node) -> Node:
    """The sine."""
    return _by_quarters(x, _sine)


def cos(x: Node) -> Node:
    """The cosine."""
    return _by_quarters(x, lambda turns, r, over: _sine(add(turns, whole(1)), r, over))


def tanh(x: Node) -> Node:
    """The hyperbolic tangent: a polynomial near 0, by exp elsewhere."""
    t = make(ABS, x)
    e = exp(mul(t, number(2.0)))
    far = copysign(sub(number(1.0), div(number(2.0), add(e, number(1.0)))), x)
    q = mul(x, x)
    near = polynomial((1.57394409e-2, -5.23025580e-2, 1.33152470e-1, -3.33327681e-1, 0.0), q)
    return where(gt(t, number(0.55)), far, where(ne(x, x), x, fma(near, x, x)))


def erf(x: Node) -> Node:
    """The error function."""
    distance = make(ABS, x)
    t = where(gt(distance, number(4.0)), number(4.0), distance)  # where it is 1: no denormals, which are slow
    q = mul(t, t)
    r = fma(number(-1.72853470e-5), t, number(3.83197126e-4))
    u = fma(number(-3.88396438e-3), t, number(2.42546219e-2))
    r = fma(r, q, u)
    for c in (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1):
        r = fma(r, t, number(c))
    r = fma(r, t, mul(t, number(-1.0)))
    far = copysign(sub(number(1.0), exp(r)), x)
    far = where(gt(distance, number(4.0)), copysign(number(1.0), x), far)
    near = polynomial((-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1), q)
    return where(ne(x, x), x, where(gt(t, number(0.927734375)), far, fma(near, x, x)))


def _single(kind: type[Elementwise]) -> Elementwise:
    """The one object of an elementwise op without fields."""
    op = Op.single(kind)
    assert isinstance(op, Elementwise)
    return op


_FORMS: Final[dict[str, Callable[..., Node]]] = {
    "exp": exp, "exp2": exp2, "log": log, "log2": log2, "pow": power, "sin": sin, "cos": cos, "tanh": tanh, "erf": erf,
}  # fmt: skip


def _register() -> None:
    """Give every op that is not primitive its decomposition."""
    for kind in list(Op.registry.values()):
        if issubclass(kind, Elementwise) and not kind.primitive:
            decompositions[kind.name] = by_dtype(_single(kind), _FORMS.get(kind.name))


_register()
