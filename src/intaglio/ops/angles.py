"""Functions of angles, in float32 and float64.

An angle is reduced to quarter turns and a rest: in its own precision if it is small. Where some lane asks for it, one
of float32 is by double precision or the bits of 2 / pi, and the C library is asked for a function of float64.
Errors in ulp: sin and cos 1.3, of float64 0.92, tan 1.6.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import make
from intaglio.ops.approximate import bits, f32, f64, like, magnitude, nearest, number, series
from intaglio.ops.elementwise import (
    Library,
    add,
    and_,
    bitcast,
    div,
    eq,
    fma,
    lt,
    mul,
    not_,
    rarely,
    shl,
    sub,
    where,
    xor,
)
from intaglio.ops.large_angles import quarters_of_far
from intaglio.ops.memory import const

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.ir.node import Node

FAR: Final = {f32: 2.0**13, f64: 2.0**20}  # from where the parts below are too short
# pi / 2 in parts: times a whole number below FAR the first three are exact, with a fused multiply-add or without
HALF_PI: Final = {
    f32: (1.5703125, 4.837512969970703125e-4, 7.549533620476723e-08, 2.5633440682570896e-12),
    f64: (1.5707963267341256, 6.077094383272197e-11, 6.12323399409214e-17, 1.6446256936324258e-26),
}
COSINE: Final = {
    f32: (2.44677067e-5, -1.38877297e-3, 4.16666567e-2),
    f64: (
        -1.1359648763507203e-11, 2.0875723304942416e-09, -2.75573143526977e-07, 2.4801587289484075e-05,
        -0.001388888888887413, 0.0416666666666666,
    ),
}  # fmt: skip
SINE: Final = {  # r ** 3 times this is r - sin(r)
    f32: (-2.86567956e-6, 1.98559923e-4, -8.33338592e-3, 1.66666672e-1),
    f64: (
        -1.5896795643659588e-10, 2.5050758115135232e-08, -2.755731369191751e-06, 0.00019841269829807808,
        -0.008333333333322413, 0.16666666666666632,
    ),
}  # fmt: skip
TANGENT: Final = {
    f32: (
        4.37192339e-3, 9.95157243e-5, 1.08267004e-2, 2.12863889e-2, 5.40588982e-2, 1.33326754e-1, 3.33333492e-1,
    ),
    f64: (
        2.1041689309491164e-05, -4.56442357533222e-05, 9.092592291008728e-05, -2.8050377016623932e-05,
        0.00013775328230799906, 0.0002217587158013577, 0.0005952847944997399, 0.0014547031837033552,
        0.0035922985511785367, 0.008863218058157289, 0.021869489691981988, 0.0539682539229965,
        0.13333333333422803, 0.33333333333332715,
    ),
}  # fmt: skip


def _quarters(x: Node) -> tuple[Node, Node, Node]:
    """(whole quarter turns, the rest in radians, by how much that is too large) of a number that is not large."""
    first, second, third, last = HALF_PI[x.dtype]
    shifted, j = nearest(x, 2 / math.pi)
    exact = fma(j, like(x, -second), fma(j, like(x, -first), x))
    r = fma(j, like(x, -third), exact)
    taken = sub(r, exact)
    over = add(fma(j, like(x, third), taken), sub(r, add(exact, taken)))
    return bits(shifted), r, fma(j, like(x, last), over)


def _by_quarters(x: Node, name: str, of: Callable[[Node, Node, Node], Node]) -> Node:
    """A function of an angle by that of (quarter turns, the rest, its excess); NaN of what is not finite."""
    size = magnitude(x)
    if x.dtype is f32:
        far = where(lt(size, number(math.inf)), of(*quarters_of_far(x)), number(math.nan))
    else:
        far = make(Library(name), x)
    return rarely(not_(lt(size, like(x, FAR[x.dtype]))), far, of(*_quarters(x)))


def _sine(turns: Node, r: Node, over: Node) -> Node:
    """The sine of some quarter turns and r - over."""
    q = mul(r, r)
    # the bound on float64 is closer: there a cosine counts the excess in
    square = q if r.dtype is f32 else fma(r, r, mul(mul(r, over), like(r, -2.0)))
    c = fma(square, fma(series(COSINE[r.dtype], square), square, like(r, -0.5)), like(r, 1.0))
    s = sub(r, fma(mul(r, q), series(SINE[r.dtype], q), over))
    word = turns.dtype
    picked = where(_is_even(turns), s, c)
    turned = and_(shl(turns, const(word, word.bits - 2)), const(word, word.min))
    return bitcast(xor(bits(picked), turned), r.dtype)


def _is_even(turns: Node) -> Node:
    """Whether a number of quarter turns is even."""
    return eq(and_(turns, const(turns.dtype, 1)), const(turns.dtype, 0))


def sin(x: Node) -> Node:
    """The sine."""
    return _by_quarters(x, "sin", _sine)


def cos(x: Node) -> Node:
    """The cosine."""
    return _by_quarters(x, "cos", lambda turns, r, over: _sine(add(turns, const(turns.dtype, 1)), r, over))


def tan(x: Node) -> Node:
    """The tangent."""
    return _by_quarters(x, "tan", _tangent)


def _tangent(turns: Node, r: Node, over: Node) -> Node:
    """The tangent of some quarter turns and r - over: that of the rest, or -1 by it, what it lost counted in."""
    q = mul(r, r)
    over = fma(over, fma(q, q, q), over)  # times the slope, 1 + tan(r) ** 2, which is 2 at the end
    more = sub(mul(mul(r, q), series(TANGENT[r.dtype], q)), over)
    even = add(r, more)
    lost = add(sub(r, even), more)
    odd = div(like(r, -1.0), even)
    odd = fma(odd, fma(odd, lost, fma(odd, even, like(r, 1.0))), odd)
    return where(_is_even(turns), even, odd)
