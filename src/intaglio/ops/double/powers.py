"""Powers of float64, as 2 ** (y log2 x), with the logarithm and its product by y in two parts. The error is 1.1 ulp.

A number is 2 ** e (1 + f), and log2 of it e + 2 / log(2) artanh(s), where s = f / (2 + f): to a relative error of
2 ** -65, by which the largest exponents lose an eighth of an ulp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ir.node import make
from intaglio.ops.approximate import bits, double, f64, i64, magnitude, nearest, polynomial
from intaglio.ops.double.logarithms import split
from intaglio.ops.elementwise import (
    Library,
    add,
    and_,
    bitcast,
    div,
    fma,
    lt,
    mul,
    mul_low,
    not_,
    rarely,
    shl,
    sub,
)
from intaglio.ops.exponentials import exp2_of_rest
from intaglio.ops.logarithms import is_unusual
from intaglio.ops.memory import const

if TYPE_CHECKING:
    from intaglio.ir.node import Node

Parts = tuple["Node", "Node"]  # a number in two parts, of which the second is what the first lacks

NORMAL: Final = 1021.0  # exponents below give numbers that are neither infinite nor denormal
TWICE_LOG2_E: Final = (2.8853900817779268, 4.0710547481862066e-17)
THIRD: Final = (0.3333333333333333, 1.850371707708594e-17)
ARTANH: Final = (  # artanh(s) is s + s ** 3 (1/3 + this), by s ** 2
    0.05994506847124791, 0.05837409228399614, 0.06668158710450843, 0.07692278435480739, 0.09090909435157558,
    0.1111111110876823, 0.14285714285722556, 0.1999999999999999,
)  # fmt: skip


def power(x: Node, y: Node) -> Node:
    """x ** y; the C library's where x is not a positive normal number or the result is none."""
    high, low = _log2(x)
    exponent = mul(y, high)
    rest = fma(y, low, mul_low(y, high))
    shifted, j = nearest(exponent, 1.0)
    significand = exp2_of_rest(add(sub(exponent, j), rest))
    found = bitcast(add(bits(significand), shl(bits(shifted), const(i64, f64.mantissa))), f64)
    usual = and_(not_(is_unusual(x)), lt(magnitude(exponent), double(NORMAL)))
    return rarely(not_(usual), make(Library("pow"), x, y), found)


def _log2(x: Node) -> Parts:
    """The logarithm to base 2 of a positive normal number."""
    f, e = split(x)
    s, s_low = _quotient(f)
    square = mul(s, s)
    square_low = fma(add(s, s), s_low, mul_low(s, s))
    more = mul(square, polynomial(ARTANH, square))
    factor, factor_low = _sum(double(THIRD[0]), more, double(THIRD[1]))
    third = mul(square, factor)
    third_low = fma(square, factor_low, fma(square_low, factor, mul_low(square, factor)))
    cube = mul(s, third)
    cube_low = fma(s, third_low, fma(s_low, third, mul_low(s, third)))
    total, total_low = _sum(s, cube, add(s_low, cube_low))
    found = mul(total, double(TWICE_LOG2_E[0]))
    low = fma(total, double(TWICE_LOG2_E[1]), mul_low(total, double(TWICE_LOG2_E[0])))
    return _sum(e, found, fma(total_low, double(TWICE_LOG2_E[0]), low))


def _sum(x: Node, y: Node, less: Node) -> Parts:
    """x + y + less, for |x| that is not below |y| unless it is 0, and little that is less than both."""
    total = add(x, y)
    return total, add(add(sub(x, total), y), less)


def _quotient(f: Node) -> Parts:
    """f / (2 + f)."""
    below = add(f, double(2.0))
    below_low = sub(f, sub(below, double(2.0)))
    inverse = div(double(1.0), below)
    s = mul(f, inverse)
    rest = sub(sub(f, mul(s, below)), fma(s, below_low, mul_low(s, below)))
    return s, mul(rest, inverse)
