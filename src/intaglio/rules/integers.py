"""Integer identities, true for every value of every width since arithmetic wraps."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Node, Op, make
from intaglio.ir.rule import Lit, Ruleset, constant, fold
from intaglio.ops.elementwise import (
    Add,
    And,
    Bitcast,
    Cast,
    CopySign,
    Div,
    Elementwise,
    Eq,
    Fma,
    Library,
    Maximum,
    Minimum,
    Mul,
    Ne,
    Or,
    Sloped,
    Xor,
    add,
    and_,
    eq,
    floor_div,
    le,
    lt,
    maximum,
    minimum,
    mod,
    mul,
    ne,
    neg,
    not_,
    or_,
    shl,
    shr,
    sub,
    xor,
)  # fmt: skip
from intaglio.ops.memory import Const, const

if TYPE_CHECKING:
    from intaglio.ir.rule import Number

WRAPPING: Final = tuple(d for d in dtypes.ints if d is not dtypes.int64)  # positions are of int64: Index knows these
integers: Final = Ruleset("integers", WRAPPING)
Pair = tuple[Node, Node]
TRUE: Final = const(dtypes.bool, True)
FALSE: Final = const(dtypes.bool, False)


def _foldable() -> tuple[type[Op], ...]:
    """The primitive ops whose value for integers is a Python function of numbers."""
    kinds = [k for k in Op.registry.values() if issubclass(k, Elementwise) and k.primitive]
    others = (Cast, Bitcast, CopySign, Div, Fma, Library)
    return tuple(k for k in kinds if k not in others and k.name != "detach" and not issubclass(k, Sloped))


def successor(value: int) -> int:
    """value + 1."""
    return value + 1


def both(c: int, d: int) -> int:
    """The bits set in both."""
    return c & d


@integers.rewrite(*_foldable())
def fold_constants(node: Node) -> Node | None:
    """An op of integer constants -> its value."""
    values: list[Number] = []
    for source in node.src:
        if not isinstance(source.op, Const) or source.dtype not in WRAPPING:
            return None
        values.append(source.op.value)
    assert isinstance(node.op, Elementwise)
    return constant(node.dtype, node.op.evaluate(*values))


@integers.rewrite(Add, Mul, And, Or, Xor, Maximum, Minimum, Eq, Ne)
def constant_last(node: Node) -> Node | None:
    """c + x -> x + c, for every commutative op."""
    x, y = node.src
    if x.dtype not in WRAPPING or not isinstance(x.op, Const) or isinstance(y.op, Const):
        return None
    return make(node.op, y, x)


@integers.rule
def add_zero(x: Node) -> Pair:
    """x + 0 -> x."""
    return add(x, const(x.dtype, 0)), x


@integers.rule
def subtract_constant(x: Node, c: Lit) -> Pair:
    """x - c -> x + fold(-c)."""
    return sub(x, c), add(x, fold(operator.neg, c))


@integers.rule
def subtract_itself(x: Node) -> Pair:
    """x - x -> 0."""
    return sub(x, x), const(x.dtype, 0)


@integers.rule
def subtract_from_zero(x: Node) -> Pair:
    """0 - x -> -x."""
    return sub(const(x.dtype, 0), x), neg(x)


@integers.rule
def add_negative(x: Node, y: Node) -> Pair:
    """x + -y -> x - y."""
    return add(x, neg(y)), sub(x, y)


@integers.rule
def subtract_negative(x: Node, y: Node) -> Pair:
    """x - -y -> x + y."""
    return sub(x, neg(y)), add(x, y)


@integers.rule
def negate_twice(x: Node) -> Pair:
    """--x -> x."""
    return neg(neg(x)), x


@integers.rule
def negate_product(x: Node, c: Lit) -> Pair:
    """-(x * c) -> x * fold(-c)."""
    return neg(mul(x, c)), mul(x, fold(operator.neg, c))


@integers.rule
def add_then_subtract(x: Node, y: Node) -> Pair:
    """(x + y) - y -> x."""
    return sub(add(x, y), y), x


@integers.rule
def subtract_then_add(x: Node, y: Node) -> Pair:
    """(x - y) + y -> x."""
    return add(sub(x, y), y), x


@integers.rule
def multiply_by_one(x: Node) -> Pair:
    """x * 1 -> x."""
    return mul(x, const(x.dtype, 1)), x


@integers.rule
def multiply_by_zero(x: Node) -> Pair:
    """x * 0 -> 0."""
    return mul(x, const(x.dtype, 0)), const(x.dtype, 0)


@integers.rule
def reassociate_sum(x: Node, c: Lit, d: Lit) -> Pair:
    """(x + c) + d -> x + fold(c + d)."""
    return add(add(x, c), d), add(x, fold(operator.add, c, d))


@integers.rule
def reassociate_product(x: Node, c: Lit, d: Lit) -> Pair:
    """(x * c) * d -> x * fold(c * d)."""
    return mul(mul(x, c), d), mul(x, fold(operator.mul, c, d))


@integers.rule
def distribute(x: Node, c: Lit, d: Lit) -> Pair:
    """(x + c) * d -> x * d + fold(c * d)."""
    return mul(add(x, c), d), add(mul(x, d), fold(operator.mul, c, d))


@integers.rule
def collect(x: Node, c: Lit, d: Lit) -> Pair:
    """x * c + x * d -> x * fold(c + d)."""
    return add(mul(x, c), mul(x, d)), mul(x, fold(operator.add, c, d))


@integers.rule
def collect_one(x: Node, c: Lit) -> Pair:
    """x * c + x -> x * fold(c + 1)."""
    return add(mul(x, c), x), mul(x, fold(successor, c))


@integers.rule
def divide_by_one(x: Node) -> Pair:
    """x // 1 -> x."""
    return floor_div(x, const(x.dtype, 1)), x


@integers.rule
def divide_by_zero(x: Node) -> Pair:
    """x // 0 -> 0."""
    return floor_div(x, const(x.dtype, 0)), const(x.dtype, 0)


@integers.rule
def remainder_of_one(x: Node) -> Pair:
    """x % 1 -> 0."""
    return mod(x, const(x.dtype, 1)), const(x.dtype, 0)


@integers.rule
def remainder_of_zero(x: Node) -> Pair:
    """x % 0 -> 0."""
    return mod(x, const(x.dtype, 0)), const(x.dtype, 0)


@integers.rule
def not_twice(x: Node) -> Pair:
    """~~x -> x."""
    return not_(not_(x)), x


@integers.rule
def and_itself(x: Node) -> Pair:
    """x & x -> x."""
    return and_(x, x), x


@integers.rule
def or_itself(x: Node) -> Pair:
    """x | x -> x."""
    return or_(x, x), x


@integers.rule
def xor_itself(x: Node) -> Pair:
    """x ^ x -> 0."""
    return xor(x, x), const(x.dtype, 0)


@integers.rule
def and_zero(x: Node) -> Pair:
    """x & 0 -> 0."""
    return and_(x, const(x.dtype, 0)), const(x.dtype, 0)


@integers.rule
def and_ones(x: Node) -> Pair:
    """x & ~0 -> x."""
    return and_(x, const(x.dtype, -1)), x


@integers.rule
def or_zero(x: Node) -> Pair:
    """x | 0 -> x."""
    return or_(x, const(x.dtype, 0)), x


@integers.rule
def xor_zero(x: Node) -> Pair:
    """x ^ 0 -> x."""
    return xor(x, const(x.dtype, 0)), x


@integers.rule
def reassociate_and(x: Node, c: Lit, d: Lit) -> Pair:
    """(x & c) & d -> x & fold(c & d)."""
    return and_(and_(x, c), d), and_(x, fold(both, c, d))


@integers.rule
def shift_left_by_zero(x: Node) -> Pair:
    """x << 0 -> x."""
    return shl(x, const(x.dtype, 0)), x


@integers.rule
def shift_right_by_zero(x: Node) -> Pair:
    """x >> 0 -> x."""
    return shr(x, const(x.dtype, 0)), x


@integers.rule
def maximum_of_itself(x: Node) -> Pair:
    """max(x, x) -> x."""
    return maximum(x, x), x


@integers.rule
def minimum_of_itself(x: Node) -> Pair:
    """min(x, x) -> x."""
    return minimum(x, x), x


@integers.rule
def absorb_minimum(x: Node, y: Node) -> Pair:
    """max(x, min(x, y)) -> x."""
    return maximum(x, minimum(x, y)), x


@integers.rule
def absorb_maximum(x: Node, y: Node) -> Pair:
    """min(x, max(x, y)) -> x."""
    return minimum(x, maximum(x, y)), x


@integers.rule
def less_than_itself(x: Node) -> Pair:
    """x < x -> false."""
    return lt(x, x), FALSE


@integers.rule
def at_most_itself(x: Node) -> Pair:
    """x <= x -> true."""
    return le(x, x), TRUE


@integers.rule
def equal_to_itself(x: Node) -> Pair:
    """x == x -> true."""
    return eq(x, x), TRUE


@integers.rule
def unequal_to_itself(x: Node) -> Pair:
    """x != x -> false."""
    return ne(x, x), FALSE


@integers.rule
def move_constant_in_equality(x: Node, c: Lit, d: Lit) -> Pair:
    """x + c == d -> x == fold(d - c)."""
    return eq(add(x, c), d), eq(x, fold(operator.sub, d, c))


@integers.rule
def move_constant_in_inequality(x: Node, c: Lit, d: Lit) -> Pair:
    """x + c != d -> x != fold(d - c)."""
    return ne(add(x, c), d), ne(x, fold(operator.sub, d, c))
