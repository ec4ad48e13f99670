"""Every rule keeps every value: drawn values on both sides, proofs for integers."""

from __future__ import annotations

import math
import operator
import random
from typing import TYPE_CHECKING, Any

import pytest

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import InternalError
from intaglio.core.trace import MatchTable
from intaglio.ir.interpret import evaluate
from intaglio.ir.node import Node, make, toposort
from intaglio.ir.rewrite import report, rewrite
from intaglio.ir.rule import Folded, Form, PatternRule, Rule, Ruleset, constant, instantiate
from intaglio.ir.view import View
from intaglio.ops.elementwise import (
    add,
    cast,
    eq,
    le,
    lt,
    maximum,
    mul,
    ne,
    neg,
    not_,
    sub,
    where,
)
from intaglio.ops.memory import Arg, Param, const, window
from intaglio.rules.choices import choices, logic
from intaglio.rules.floats import casts, floats
from intaglio.rules.integers import integers

if TYPE_CHECKING:
    from collections.abc import Callable

z3: Any = pytest.importorskip("z3")

ALL = (integers, choices, logic, floats, casts)
PATTERNS = [r for ruleset in ALL for r in ruleset.rules if isinstance(r, PatternRule)]
IDS = [f"{r.ruleset}.{r.name}" for r in PATTERNS]


def edges(dtype: DType) -> list[Any]:
    if dtype.is_bool:
        return [False, True]
    if dtype.is_int:
        found = [0, 1, 2, 3, 7, -1, -2, dtype.min, dtype.max, dtype.min + 1, dtype.max - 1, dtype.max // 3]
        return sorted({dtype.wrap(v) for v in found})
    return [
        dtype.wrap(v)
        for v in (0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 3.0, 7e4, 1e-7, math.inf, -math.inf, math.nan, 4.0, -8.0)
    ]


def same(a: Any, b: Any) -> bool:
    return (a != a and b != b) or (
        a == b and math.copysign(1, a) == math.copysign(1, b) if isinstance(a, float) else a == b
    )


def holds(form: Form, values: dict[Node, Any]) -> bool:
    return form.guard is None or bool(form.guard.op.function(*(values[s] for s in form.guard.src)))


def filled(template: Node, values: dict[Node, Any], form: Form) -> Any:
    """One side of a rule, its literals put in."""
    bound = {
        v: constant(v.dtype, values[v]) if v.op.literal else make(Arg(k, v.dtype)) for k, v in enumerate(form.variables)
    }
    arguments = {bound[v]: values[v] for v in form.variables if not v.op.literal}
    return evaluate(instantiate(template, bound), arguments)


@pytest.mark.parametrize("rule", PATTERNS, ids=IDS)
def test_both_sides_of_a_rule_have_one_value(rule: PatternRule, rng: random.Random) -> None:
    for dtype in rule.domain:
        form = rule.form(dtype)
        tried = 0
        for _ in range(60):
            values = {v: rng.choice(edges(v.dtype)) for v in form.variables}
            if holds(form, values):
                tried += 1
                before, after = filled(form.before, values, form), filled(form.after, values, form)
                assert same(before, after), f"{rule}: {before} became {after} at {dtype} {list(values.values())}"
        assert tried, f"{rule}: its guard never held"


# -- proofs over 32 bits

WIDTH = 32


def floor_division(x: Any, y: Any) -> tuple[Any, Any]:
    q, r = x / y, z3.SRem(x, y)
    off = z3.And(r != 0, (r < 0) != (y < 0))
    return z3.If(y == 0, 0, z3.If(off, q - 1, q)), z3.If(y == 0, 0, z3.If(off, r + y, r))


TERMS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "lt": operator.lt,
    "le": operator.le,
    "floor_div": lambda x, y: floor_division(x, y)[0],
    "mod": lambda x, y: floor_division(x, y)[1],
    "maximum": lambda x, y: z3.If(x > y, x, y),
    "minimum": lambda x, y: z3.If(x < y, x, y),
    "shl": lambda x, y: z3.If(z3.And(y >= 0, y < WIDTH), x << y, 0),
    "shr": lambda x, y: z3.If(
        z3.And(y >= 0, y < WIDTH), x >> y, z3.If(x < 0, z3.BitVecVal(-1, WIDTH), z3.BitVecVal(0, WIDTH))
    ),
    "eq": operator.eq,
    "ne": operator.ne,
    "where": z3.If,
}
BITS = {
    "and": (operator.and_, z3.And),
    "or": (operator.or_, z3.Or),
    "xor": (operator.xor, z3.Xor),
    "not": (operator.invert, z3.Not),
}


def term(root: Node) -> Any:
    """An expression as a z3 term."""
    done: dict[Node, Any] = {}
    for node in toposort((root,)):
        src = [done[s] for s in node.src]
        op = node.op
        if op.name == "variable":
            done[node] = z3.Bool(f"b{op.index}") if node.dtype.is_bool else z3.BitVec(f"x{op.index}", WIDTH)
        elif op.name == "const":
            done[node] = z3.BoolVal(op.value) if node.dtype.is_bool else z3.BitVecVal(int(op.value), WIDTH)
        elif isinstance(op, Folded):
            done[node] = op.function(*src)
        elif op.name in BITS:
            done[node] = BITS[op.name][1 if node.dtype.is_bool else 0](*src)
        else:
            done[node] = TERMS[op.name](*src)
    return done[root]


PROVABLE = [r for r in PATTERNS if r.ruleset in ("integers", "choices", "logic") and not r.unproven]


@pytest.mark.parametrize("rule", PROVABLE, ids=[f"{r.ruleset}.{r.name}" for r in PROVABLE])
def test_an_integer_rule_is_proven_for_all_values(rule: PatternRule) -> None:
    form = rule.form(dtypes.bool if rule.ruleset == "logic" else dtypes.int32)
    solver = z3.Solver()
    solver.set("timeout", 10_000)
    if form.guard is not None:
        solver.add(term(form.guard))
        assert solver.check() == z3.sat, f"{rule}: its guard can never hold"
    solver.add(term(form.before) != term(form.after))
    verdict = solver.check()
    assert verdict == z3.unsat, f"{rule}: {verdict} {solver.model() if verdict == z3.sat else ''}"


def test_a_wrong_rule_is_refuted_by_the_proof() -> None:
    wrong = Ruleset("wrong", (dtypes.int32,))

    @wrong.rule
    def halve_twice(x: Node) -> tuple[Node, Node]:
        """(x + x) is not x unless x is 0."""
        return add(x, x), x

    with pytest.raises(AssertionError, match="halve_twice"):
        test_an_integer_rule_is_proven_for_all_values(wrong.rules[0])


# -- every rule fires


def example(rule: Rule) -> Node:
    """An expression on which a rule holds."""
    assert isinstance(rule, PatternRule)
    form = rule.form(rule.domain[0])
    literals = [v for v in form.variables if v.op.literal]
    for value in (4.0, 3) if rule.domain[0].is_float else (3, 1):
        values = dict.fromkeys(literals, value)
        if holds(form, values):
            bound = {
                v: constant(v.dtype, value) if v in values else make(Arg(k, v.dtype))
                for k, v in enumerate(form.variables)
            }
            return instantiate(form.before, bound)
    raise AssertionError(f"{rule}: no example")


@pytest.mark.parametrize("rule", PATTERNS, ids=IDS)
def test_a_rule_fires_on_its_own_pattern(rule: PatternRule) -> None:
    before = example(rule)
    after = rule.apply(before)
    assert after is not None
    assert after is not before
    assert (after.dtype, after.shape) == (before.dtype, before.shape)


X = make(Arg(0, dtypes.int32))
F = make(Arg(1, dtypes.float32))
B = make(Arg(2, dtypes.bool))
P = make(Param(0, dtypes.float32, 0))
MADE = neg(window(View.contiguous(dtypes.float32, (3, 4)), P))
PYTHON: dict[str, tuple[Ruleset, Node, Callable[[], Node]]] = {
    "integers.fold_constants": (
        integers,
        add(const(dtypes.int8, 127), const(dtypes.int8, 1)),
        lambda: const(dtypes.int8, -128),
    ),
    "integers.constant_last": (integers, add(const(dtypes.int32, 3), X), lambda: add(X, const(dtypes.int32, 3))),
    "logic.opposite_comparison": (logic, not_(lt(X, add(X, X))), lambda: le(add(X, X), X)),
    "floats.fold_constants": (
        floats,
        mul(const(dtypes.float32, 3), const(dtypes.float32, 0.1)),
        lambda: const(dtypes.float32, 0.30000001192092896),
    ),
    "casts.through_wider": (casts, cast(cast(X, dtypes.int64), dtypes.int8), lambda: cast(X, dtypes.int8)),
    "casts.of_constant": (casts, cast(const(dtypes.float32, -1.5), dtypes.uint8), lambda: const(dtypes.uint8, 255)),
}


def test_every_rule_in_python_has_a_case() -> None:
    names = {f"{r.ruleset}.{r.name}" for ruleset in ALL for r in ruleset.rules if not isinstance(r, PatternRule)}
    assert names == set(PYTHON)


@pytest.mark.parametrize("name", PYTHON)
def test_a_rule_in_python_fires(name: str) -> None:
    ruleset, before, after = PYTHON[name]
    table = MatchTable()
    assert rewrite([before], ruleset, table) == [after()]
    assert table.of(*name.split(".")).hits >= 1


# -- rules in Python keep values


@pytest.mark.parametrize("middle", dtypes.all, ids=lambda d: d.name)
def test_a_cast_through_a_wider_type_changes_nothing(middle: DType) -> None:
    fired = 0
    for first in dtypes.all:
        for last in dtypes.all:
            x = make(Arg(0, first))
            (after,) = rewrite([cast(cast(x, middle), last)], casts, MatchTable())
            if after is cast(cast(x, middle), last):
                continue
            fired += 1
            for value in edges(first):
                want, got = evaluate(cast(cast(x, middle), last), {x: value}), evaluate(after, {x: value})
                assert same(want, got), (first, middle, last, value)
    assert fired or middle.is_bool or middle.bits == 8


@pytest.mark.parametrize("trial", range(60))
def test_random_integer_expressions_keep_their_value(trial: int, seed: int) -> None:
    rng = random.Random(seed + trial)
    dtype = rng.choice(dtypes.ints)
    xs = [make(Arg(k, dtype)) for k in range(2)]
    pool = [*xs, const(dtype, rng.choice(edges(dtype))), const(dtype, 1)]
    for _ in range(12):
        x, y = rng.choice(pool), rng.choice(pool)
        pool.append(rng.choice([add, sub, mul, maximum])(x, y) if rng.random() < 0.7 else rng.choice([neg, not_])(x))
    flag = rng.choice([eq, ne, lt, le])(pool[-1], pool[-2])
    root = where(not_(flag), pool[-3], pool[-4])
    (after,) = rewrite([root], integers + choices + logic, MatchTable())
    for _ in range(20):
        values: dict[Node, Any] = {x: rng.choice(edges(dtype)) for x in xs}
        assert evaluate(root, dict(values)) == evaluate(after, dict(values))


def test_adding_zero_to_a_float_is_kept() -> None:
    for root in (
        add(F, const(dtypes.float32, 0.0)),
        sub(F, const(dtypes.float32, -0.0)),
        mul(F, const(dtypes.float32, 0.0)),
        sub(F, F),
    ):
        assert rewrite([root], floats, MatchTable()) == [root]


# -- the driver


def chain(length: int) -> Node:
    total: Node = X
    for k in range(length):
        total = add(mul(total, make(Arg(k + 10, dtypes.int32))), const(dtypes.int32, 0))
    return total


def test_tries_are_linear_in_the_graph_and_need_no_recursion() -> None:
    counts: list[int] = []
    for length in (2_000, 20_000):
        table = MatchTable()
        rewrite([chain(length)], integers + choices, table)
        counts.append(sum(s.tries for s in table.rules.values()))
    assert counts[0] > 2_000
    assert counts[1] <= 11 * counts[0]


def test_tries_and_hits_are_exact() -> None:
    small = Ruleset("small", (dtypes.int32,))

    @small.rule
    def add_zero(x: Node) -> tuple[Node, Node]:
        """x + 0 -> x."""
        return add(x, const(x.dtype, 0)), x

    table = MatchTable()
    zero = const(dtypes.int32, 0)
    assert rewrite([add(add(X, zero), zero), add(X, X), mul(X, X)], small, table) == [X, add(X, X), mul(X, X)]
    # (x + 0) once; (x + 0) + 0 becomes that same node, which is known; x + x once; no product is tried
    assert (table.of("small", "add_zero").tries, table.of("small", "add_zero").hits) == (2, 1)
    assert "small.add_zero" in report(table, 2)
    assert report(table, 1).splitlines()[1].split() == ["1", "2", "0.00", "small"]


def test_rules_that_undo_each_other_are_reported() -> None:
    loop = Ruleset("loop", (dtypes.int32,))

    @loop.rule
    def swap(x: Node, y: Node) -> tuple[Node, Node]:
        """x - y -> y - x, which is false and without end."""
        return sub(x, y), sub(y, x)

    with pytest.raises(InternalError, match="undo each other"):
        rewrite([sub(X, make(Arg(9, dtypes.int32)))], loop, MatchTable())


def test_a_rule_that_changes_the_type_is_reported() -> None:
    wrong = Ruleset("wrong", (dtypes.int32,))

    @wrong.rewrite(type(neg(X).op))
    def widen(node: Node) -> Node | None:
        """-x -> int64."""
        return cast(node, dtypes.int64)

    with pytest.raises(InternalError, match=r"widen \("):
        rewrite([neg(X)], wrong, MatchTable())


def test_a_rule_over_shapes_does_not_lose_them() -> None:
    (after,) = rewrite([sub(MADE, MADE), add(MADE, const(dtypes.float32, -0.0))][1:], floats, MatchTable())
    assert after is MADE
    grid = cast(MADE, dtypes.int32)
    assert rewrite([sub(grid, grid)], integers, MatchTable()) == [sub(grid, grid)]  # 0 alone would be a scalar


def test_two_rules_of_one_name_are_refused() -> None:
    twice = Ruleset("twice", (dtypes.int32,))
    for k in range(2):

        def same_name(x: Node) -> tuple[Node, Node]:
            """x + x -> x * 2."""
            return add(x, x), mul(x, const(x.dtype, 2))

        if k:
            with pytest.raises(InternalError, match="same_name"):
                twice.rule(same_name)
        else:
            twice.rule(same_name)
