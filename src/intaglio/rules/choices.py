"""Booleans and choices between values, exact for every dtype."""

from __future__ import annotations

from typing import Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Node
from intaglio.ir.rule import Flag, Ruleset
from intaglio.ops.elementwise import Eq, Le, Lt, Ne, Not, and_, eq, le, lt, ne, not_, or_, where
from intaglio.ops.memory import const

choices: Final = Ruleset("choices", dtypes.all)
logic: Final = Ruleset("logic", (dtypes.bool,))
Pair = tuple[Node, Node]
TRUE: Final = const(dtypes.bool, True)
FALSE: Final = const(dtypes.bool, False)


@choices.rule
def choose_between_equals(condition: Flag, x: Node) -> Pair:
    """where(c, x, x) -> x."""
    return where(condition, x, x), x


@choices.rule
def choose_the_first(x: Node, y: Node) -> Pair:
    """where(true, x, y) -> x."""
    return where(TRUE, x, y), x


@choices.rule
def choose_the_second(x: Node, y: Node) -> Pair:
    """where(false, x, y) -> y."""
    return where(FALSE, x, y), y


@choices.rule
def choose_by_opposite(condition: Flag, x: Node, y: Node) -> Pair:
    """where(!c, x, y) -> where(c, y, x)."""
    return where(not_(condition), x, y), where(condition, y, x)


@choices.rule
def choose_twice_first(condition: Flag, x: Node, y: Node, z: Node) -> Pair:
    """where(c, where(c, x, y), z) -> where(c, x, z)."""
    return where(condition, where(condition, x, y), z), where(condition, x, z)


@choices.rule
def choose_twice_second(condition: Flag, x: Node, y: Node, z: Node) -> Pair:
    """where(c, x, where(c, y, z)) -> where(c, x, z)."""
    return where(condition, x, where(condition, y, z)), where(condition, x, z)


@logic.rule
def and_true(x: Node) -> Pair:
    """x & true -> x."""
    return and_(x, TRUE), x


@logic.rule
def and_false(x: Node) -> Pair:
    """x & false -> false."""
    return and_(x, FALSE), FALSE


@logic.rule
def or_true(x: Node) -> Pair:
    """x | true -> true."""
    return or_(x, TRUE), TRUE


@logic.rule
def or_false(x: Node) -> Pair:
    """x | false -> x."""
    return or_(x, FALSE), x


@logic.rule
def and_itself(x: Node) -> Pair:
    """x & x -> x."""
    return and_(x, x), x


@logic.rule
def or_itself(x: Node) -> Pair:
    """x | x -> x."""
    return or_(x, x), x


@logic.rule
def and_opposite(x: Node) -> Pair:
    """x & !x -> false."""
    return and_(x, not_(x)), FALSE


@logic.rule
def or_opposite(x: Node) -> Pair:
    """x | !x -> true."""
    return or_(x, not_(x)), TRUE


@logic.rule
def not_twice(x: Node) -> Pair:
    """!!x -> x."""
    return not_(not_(x)), x


@logic.rewrite(Not)
def opposite_comparison(node: Node) -> Node | None:
    """!(x < y) -> y <= x and the like, for integers (NaN is neither); !(x == y) -> x != y for all."""
    inner = node.src[0]
    if node.dtype is not dtypes.bool or not isinstance(inner.op, (Lt, Le, Eq, Ne)):
        return None
    x, y = inner.src
    match inner.op:
        case Eq():
            return ne(x, y)
        case Ne():
            return eq(x, y)
        case Lt() if not x.dtype.is_float:
            return le(y, x)
        case Le() if not x.dtype.is_float:
            return lt(y, x)
        case _:
            return None
