"""What approximations are written with: constants, polynomials, bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Node, make
from intaglio.ops.elementwise import ABS, bitcast, fma, gt, lt, mul, sub, where
from intaglio.ops.memory import const

if TYPE_CHECKING:
    from collections.abc import Sequence

f32: Final = dtypes.float32
f64: Final = dtypes.float64
i32: Final = dtypes.int32
i64: Final = dtypes.int64
ROUNDING: Final = {  # a small number added to it is rounded to a whole one, in the last bits
    f32: 1.5 * 2.0**23,
    f64: 1.5 * 2.0**52,
}
WORDS: Final = {f32: i32, f64: i64}  # the integers as long as a float
PAIRED: Final = 13  # coefficients from which on waiting costs more than the squares that it takes to wait less


def number(value: float) -> Node:
    """A float32 constant."""
    return const(f32, value)


def double(value: float) -> Node:
    """A float64 constant."""
    return const(f64, value)


def whole(value: int) -> Node:
    """An int32 constant."""
    return const(i32, value)


def like(x: Node, value: float) -> Node:
    """A constant of the dtype of x."""
    return const(x.dtype, value)


def nearest(x: Node, factor: float) -> tuple[Node, Node]:
    """The whole number nearest to x times a factor, never -0: as an integer in the last bits of a float, as a float."""
    shifted = fma(x, like(x, factor), like(x, ROUNDING[x.dtype]))
    return shifted, sub(shifted, like(x, ROUNDING[x.dtype]))


def polynomial(coefficients: Sequence[float], x: Node) -> Node:
    """A polynomial, highest power first, by Horner's rule."""
    total = const(x.dtype, coefficients[0])
    for c in coefficients[1:]:
        total = fma(total, x, const(x.dtype, c))
    return total


def by_pairs(coefficients: Sequence[float], x: Node) -> Node:
    """A long polynomial, highest power first, whose steps wait for few others.

    Source: Estrin, Organization of computer systems: the fixed plus variable structure computer, WJCC 1960.
    """
    terms = [const(x.dtype, c) for c in reversed(coefficients)]
    while len(terms) > 1:
        odd = terms[-1:] if len(terms) % 2 else []
        terms = [fma(high, x, low) for low, high in zip(terms[::2], terms[1::2], strict=False)] + odd
        x = mul(x, x)
    return terms[0]


def series(coefficients: Sequence[float], x: Node) -> Node:
    """A polynomial, highest power first, by whichever of the two is quicker for its length."""
    return (polynomial if len(coefficients) < PAIRED else by_pairs)(coefficients, x)


def magnitude(x: Node) -> Node:
    """|x|."""
    return make(ABS, x)


def at_most(x: Node, bound: float) -> Node:
    """x or the bound, whichever is less; NaN stays."""
    limit = const(x.dtype, bound)
    return where(gt(x, limit), limit, x)


def at_least(x: Node, bound: float) -> Node:
    """x or the bound, whichever is more; NaN stays."""
    limit = const(x.dtype, bound)
    return where(lt(x, limit), limit, x)


def bits(x: Node) -> Node:
    """The bits of a float as a signed integer."""
    return bitcast(x, WORDS[x.dtype])
