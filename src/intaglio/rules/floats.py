"""Float identities that keep every bit of every result (the sign of a NaN apart)."""

from __future__ import annotations

import math
from typing import Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Node
from intaglio.ir.rule import Lit, Ruleset, constant, fold
from intaglio.ops.elementwise import (
    Abs,
    Add,
    Cast,
    Div,
    Elementwise,
    Eq,
    Le,
    Lt,
    Mul,
    Ne,
    Neg,
    Sub,
    absolute,
    add,
    cast,
    div,
    lt,
    maximum,
    minimum,
    mul,
    neg,
    sub,
)  # fmt: skip
from intaglio.ops.memory import Const, const

floats: Final = Ruleset("floats", (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64))
casts: Final = Ruleset("casts", dtypes.all)
Pair = tuple[Node, Node]
Triple = tuple[Node, Node, Node]


def is_power_of_two(value: float) -> bool:
    """Whether a number and its reciprocal are powers of two in the range of half precision."""
    return math.isfinite(value) and abs(math.frexp(value)[0]) == 0.5 and 2.0**-14 <= abs(value) <= 2.0**14


def reciprocal(value: float) -> float:
    """1 / value."""
    return 1.0 / value


@floats.rewrite(Add, Sub, Mul, Div, Neg, Abs, Lt, Le, Eq, Ne)
def fold_constants(node: Node) -> Node | None:
    """An op of float constants -> its value: rounding to double first changes nothing for these."""
    values: list[int | float] = []
    for source in node.src:
        if not isinstance(source.op, Const) or not source.dtype.is_float:
            return None
        values.append(source.op.value)
    assert isinstance(node.op, Elementwise)
    return constant(node.dtype, node.op.evaluate(*values))


@floats.rule
def add_negative_zero(x: Node) -> Pair:
    """x + -0.0 -> x (x + 0.0 is not x for -0.0)."""
    return add(x, const(x.dtype, -0.0)), x


@floats.rule
def subtract_zero(x: Node) -> Pair:
    """x - 0.0 -> x."""
    return sub(x, const(x.dtype, 0.0)), x


@floats.rule
def add_negative(x: Node, y: Node) -> Pair:
    """x + -y -> x - y."""
    return add(x, neg(y)), sub(x, y)


@floats.rule
def subtract_negative(x: Node, y: Node) -> Pair:
    """x - -y -> x + y."""
    return sub(x, neg(y)), add(x, y)


@floats.rule
def multiply_by_one(x: Node) -> Pair:
    """x * 1.0 -> x."""
    return mul(x, const(x.dtype, 1.0)), x


@floats.rule
def multiply_by_minus_one(x: Node) -> Pair:
    """x * -1.0 -> -x."""
    return mul(x, const(x.dtype, -1.0)), neg(x)


@floats.rule
def multiply_negatives(x: Node, y: Node) -> Pair:
    """-x * -y -> x * y."""
    return mul(neg(x), neg(y)), mul(x, y)


@floats.rule
def divide_by_one(x: Node) -> Pair:
    """x / 1.0 -> x."""
    return div(x, const(x.dtype, 1.0)), x


@floats.rule
def divide_by_power_of_two(x: Node, c: Lit) -> Triple:
    """x / c -> x * fold(1 / c), if c is a power of two (both are then rounded alike)."""
    return div(x, c), mul(x, fold(reciprocal, c)), fold(is_power_of_two, c)


@floats.rule
def negate_twice(x: Node) -> Pair:
    """--x -> x."""
    return neg(neg(x)), x


@floats.rule
def magnitude_of_negative(x: Node) -> Pair:
    """|-x| -> |x|."""
    return absolute(neg(x)), absolute(x)


@floats.rule
def magnitude_twice(x: Node) -> Pair:
    """||x|| -> |x|."""
    return absolute(absolute(x)), absolute(x)


@floats.rule
def maximum_of_itself(x: Node) -> Pair:
    """max(x, x) -> x."""
    return maximum(x, x), x


@floats.rule
def minimum_of_itself(x: Node) -> Pair:
    """min(x, x) -> x."""
    return minimum(x, x), x


@floats.rule
def less_than_itself(x: Node) -> Pair:
    """x < x -> false, for NaN too."""
    return lt(x, x), const(dtypes.bool, False)


@casts.rewrite(Cast)
def through_wider(node: Node) -> Node | None:
    """cast(cast(x, wider), t) -> cast(x, t), where the wider type of the same kind holds every value of x."""
    inner = node.src[0]
    if not isinstance(inner.op, Cast):
        return None
    x = inner.src[0]
    first, middle = x.dtype, inner.dtype
    if first.is_float and middle.is_float:
        holds = middle.exponent >= first.exponent and middle.mantissa >= first.mantissa
        holds = holds and middle.bits > 8  # e4m3 has no infinity
    elif first.is_int and middle.is_int:
        holds = middle.min <= first.min and first.max <= middle.max
    else:
        holds = first.is_bool and not middle.is_bool
    return cast(x, node.dtype) if holds else None


@casts.rewrite(Cast)
def of_constant(node: Node) -> Node | None:
    """cast(constant) -> constant."""
    x = node.src[0]
    if not isinstance(x.op, Const):
        return None
    return constant(node.dtype, node.dtype.convert(x.op.value, x.dtype))
