"""Floored quotients and remainders of float32 as NumPy finds them, without the C library where they are not large."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import make
from intaglio.ops.approximate import double, f32, f64, magnitude, number
from intaglio.ops.elementwise import (
    MOD,
    TRUNC,
    add,
    and_,
    cast,
    copysign,
    div,
    eq,
    floor,
    gt,
    lt,
    mul,
    ne,
    not_,
    rarely,
    sub,
    where,
    xor,
)

if TYPE_CHECKING:
    from intaglio.ir.node import Node

EXACT: Final = 2.0**28  # quotients up to this times a float32 are exact in float64


def mod(x: Node, y: Node) -> Node:
    """The remainder with the divisor's sign."""
    rest = _rest(x, y)
    moved = where(_is_opposite(rest, y), add(rest, y), rest)
    return where(ne(rest, number(0.0)), moved, copysign(number(0.0), y))


def floor_div(x: Node, y: Node) -> Node:
    """The quotient rounded down: (x - rest) / y, which rounding may leave a little beside a whole number."""
    rest, plain = _rest(x, y), div(x, y)
    found = div(sub(x, rest), y)
    found = where(_is_opposite(rest, y), sub(found, number(1.0)), found)
    low = floor(found)
    low = where(gt(sub(found, low), number(0.5)), add(low, number(1.0)), low)
    low = where(eq(found, number(0.0)), copysign(number(0.0), plain), low)
    return where(eq(y, number(0.0)), plain, low)


def _is_opposite(rest: Node, y: Node) -> Node:
    """Whether a rest has the other sign than the divisor."""
    none = number(0.0)
    return and_(xor(lt(rest, none), lt(y, none)), ne(rest, none))


def _rest(x: Node, y: Node) -> Node:
    """C's fmod, exact: |x| less whole |y|, with the sign of x."""
    high, low = cast(magnitude(x), f64), cast(magnitude(y), f64)
    ratio = div(high, low)
    near = sub(high, mul(make(TRUNC, ratio), low))
    near = where(lt(near, double(0.0)), add(near, low), near)  # the ratio was rounded up to a whole number
    usual = and_(lt(ratio, double(EXACT)), lt(low, double(math.inf)))
    return copysign(cast(rarely(not_(usual), make(MOD, high, low), near), f32), x)
