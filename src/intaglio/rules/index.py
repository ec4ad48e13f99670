"""Index arithmetic: a canonical form with bounds, in which no division is left that bounds can decide.

Indices count elements of memory, so nothing here wraps: every intermediate value lies within +-2 ** 62.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Node, rebuild, toposort
from intaglio.ops.elementwise import (
    Add,
    And,
    Cast,
    Eq,
    FloorDiv,
    Le,
    Lt,
    Maximum,
    Minimum,
    Mod,
    Mul,
    Ne,
    Neg,
    Not,
    Or,
    Sub,
    Where,
    add,
    floor_div,
    mod,
    mul,
)  # fmt: skip
from intaglio.ops.loop import Range
from intaglio.ops.memory import Const, Iota, const

if TYPE_CHECKING:
    from collections.abc import Mapping

Terms = dict[Node, int]
Affine = tuple[int, Terms]
Interval = tuple[int, int]
FAR: Final = 1 << 62


def simplify_index(node: Node, known: Mapping[Node, Interval] | None = None) -> Node:
    """The canonical form of an index or gate. `known` bounds what the graph does not (arguments, loop counters)."""
    return Canonical(known).simplify(node)


def bounds(node: Node, known: Mapping[Node, Interval] | None = None) -> Interval:
    """The least and greatest value that an integer or bool node can take, or wider."""
    return Canonical(known).bounds(node)


def affine(node: Node) -> Affine:
    """(constant, {term: coefficient}) with node = constant + sum of coefficient * term."""
    return Canonical().affine(node)


class Canonical:
    """Memos for one family of expressions: what each node is as a sum, within which bounds, and simplified."""

    def __init__(self, known: Mapping[Node, Interval] | None = None) -> None:
        self._known: Final = dict(known or {})
        self._affine: Final[dict[Node, Affine]] = {}
        self._bounds: Final[dict[Node, Interval]] = {}
        self._simple: Final[dict[Node, Node]] = {}

    # -- sums

    def affine(self, root: Node) -> Affine:
        """A node as a sum of terms."""
        memo = self._affine
        for node in toposort((root,), enter=lambda n: n not in memo and _is_sum(n)):
            if node not in memo:
                memo[node] = self._sum(node)
        return memo[root]

    def _sum(self, node: Node) -> Affine:
        """A node as a sum, its inputs being known as sums."""
        if isinstance(node.op, Const) and not node.dtype.is_float:
            return int(node.op.value), {}
        if not _is_sum(node):
            return 0, {node: 1}
        parts = [self._affine[s] for s in node.src]
        match node.op:
            case Neg():
                return _scale(parts[0], -1)
            case Add():
                return _join(parts[0], parts[1], 1)
            case Sub():
                return _join(parts[0], parts[1], -1)
            case _:
                if not parts[1][1]:
                    return _scale(parts[0], parts[1][0])
                if not parts[0][1]:
                    return _scale(parts[1], parts[0][0])
                return 0, {node: 1}

    def build(self, form: Affine) -> Node:
        """The node of a sum, quotients and remainders of one division reunited."""
        constant, terms = self._reunite(form)
        total: Node | None = None
        for term, coefficient in terms.items():
            part = term if coefficient == 1 else mul(term, _number(coefficient))
            total = part if total is None else add(total, part)
        if total is None:
            return _number(constant)
        if constant:
            total = add(total, _number(constant))
        return total

    def _reunite(self, form: Affine) -> Affine:
        """x // d * d + x % d -> x, wherever a sum holds such a pair."""
        while True:
            merged = self._merge(form)
            if merged is None:
                return form
            form = merged

    def _merge(self, form: Affine) -> Affine | None:
        """A sum with one remainder joined to what stands above it, or None."""
        constant, terms = form
        for low, c in terms.items():
            d = self._divisor(low) if isinstance(low.op, Mod) else None
            if d is None:
                continue
            for high, scale in terms.items():
                joined = self._join_digits(high, low, d) if scale == c * d and high is not low else None
                if joined is not None:
                    left = {t: k for t, k in terms.items() if t is not low and t is not high}
                    return _join((constant, left), _scale(joined, c), 1)
        return None

    def _join_digits(self, high: Node, low: Node, d: int) -> Affine | None:
        """high * d + low with less division, where low is a remainder by d; None where there is no such form.

        x // d * d + x % d is x; X % e * d + r is (X * d + r) % (d e) as 0 <= r < d, which helps if X * d + r is less.
        """
        x = low.src[0]
        if isinstance(high.op, FloorDiv):
            same = high is self.div(x, d) or (high.src[0] is x and self._divisor(high) == d)
            return self.affine(x) if same else None
        outer = self._divisor(high) if isinstance(high.op, Mod) else None
        if outer is None:
            return None
        constant, terms = self.affine(high.src[0])
        above = next((t for t, k in terms.items() if k == 1 and isinstance(t.op, FloorDiv)), None)
        digits = self._join_digits(above, low, d) if above is not None else None
        if above is None or digits is None:
            return None
        others = constant, {t: k for t, k in terms.items() if t is not above}
        return self.affine(self.mod(self.build(_join(_scale(others, d), digits, 1)), d * outer))

    def _divisor(self, node: Node) -> int | None:
        """The constant that a quotient or remainder is by, if it is positive."""
        constant, terms = self.affine(node.src[1])
        return constant if not terms and constant > 0 else None

    # -- bounds

    def bounds(self, root: Node) -> Interval:
        """The interval of a node."""
        memo = self._bounds
        for node in toposort((root,), enter=lambda n: n not in memo and n not in self._known):
            if node not in memo:
                low, high = self._known[node] if node in self._known else self._interval(node)
                memo[node] = max(low, -FAR), min(high, FAR)
        return memo[root]

    def _interval(self, node: Node) -> Interval:
        """The interval of a node, those of its inputs being known."""
        if _is_sum(node):
            constant, terms = self.affine(node)
            if node not in terms:
                return self._total(constant, terms)
        at = [self._bounds[s] for s in node.src]
        limits = (0, 1) if node.dtype.is_bool else _limits(node)
        match node.op:
            case Const() if not node.dtype.is_float:
                return int(node.op.value), int(node.op.value)
            case Iota(n=n):
                return 0, max(n - 1, 0)
            case Range():
                return 0, max(at[0][1] - 1, 0)
            case Mul() if _is_sum(node):
                products = [a * b for a in at[0] for b in at[1]]
                return min(products), max(products)
            case FloorDiv() if (d := self._divisor(node)) is not None:
                return at[0][0] // d, at[0][1] // d
            case Mod() if (d := self._divisor(node)) is not None:
                low, high = at[0]
                return (low % d, high % d) if low // d == high // d else (0, d - 1)
            case Maximum() if not node.dtype.is_float:
                return max(at[0][0], at[1][0]), max(at[0][1], at[1][1])
            case Minimum() if not node.dtype.is_float:
                return min(at[0][0], at[1][0]), min(at[0][1], at[1][1])
            case Where() if not node.dtype.is_float:
                return min(at[1][0], at[2][0]), max(at[1][1], at[2][1])
            case Cast() if node.dtype.is_int and not node.src[0].dtype.is_float:
                inside = limits[0] <= at[0][0] and at[0][1] <= limits[1]
                return at[0] if inside else limits
            case _:
                return limits

    def _total(self, constant: int, terms: Terms) -> Interval:
        """The interval of a sum."""
        low = high = constant
        for term, c in terms.items():
            a, b = self.bounds(term)
            low += min(a * c, b * c)
            high += max(a * c, b * c)
        return low, high

    # -- division

    def div(self, x: Node, d: int) -> Node:
        """x // d for d > 0, of a canonical x."""
        moduli: list[int] = []  # remainders to take of the quotient, the last one first
        whole: Affine = 0, {}
        result: Node | None = None
        while result is None:
            outside, rest = self._split(x, d)
            if moduli and (outside[0] or outside[1]):
                result = self._remainders(self.build(_join(outside, self.affine(self.div(rest, d)), 1)), moduli)
                break
            whole = _join(whole, outside, 1)
            low, high = self.bounds(rest)
            constant, terms = self.affine(rest)
            only = next(iter(terms)) if len(terms) == 1 and next(iter(terms.values())) == 1 else None
            inner = self._divisor(only) if only is not None and isinstance(only.op, (FloorDiv, Mod)) else None
            if low // d == high // d:
                result = self._remainders(_number(low // d), moduli)
            elif inner is not None and only is not None and isinstance(only.op, FloorDiv):
                # (y // a + k) // d = (y + k a) // (a d)
                x, d = self.build(_join(self.affine(only.src[0]), (constant * inner, {}), 1)), inner * d
            elif inner is not None and only is not None and not constant and inner % d == 0:
                moduli.append(inner // d)  # y % (a d) // d = y // d % a
                x = only.src[0]
            else:
                g, reduced, _ = self._common(rest, d)
                if g == 1:
                    result = self._remainders(floor_div(rest, _number(d)) if d > 1 else rest, moduli)
                else:  # (g y + r) // d = y // (d / g)
                    x, d = reduced, d // g
        return self.build(_join(whole, self.affine(result), 1))

    def _remainders(self, x: Node, moduli: list[int]) -> Node:
        """x % m for each modulus, the last one first."""
        for m in reversed(moduli):
            x = self.mod(x, m)
        return x

    def _common(self, rest: Node, d: int) -> tuple[int, Node, Affine]:
        """(g, y, r) with rest = g y + r, 0 <= r < g, and g the greatest such divisor of d that shows."""
        constant, terms = self.affine(rest)
        for g in sorted({math.gcd(d, c) for c in terms.values()}, reverse=True):
            small = {t: c for t, c in terms.items() if c % g}
            low, high = self._total(constant % g, small)
            if low >= 0 and high < g:
                large = {t: c // g for t, c in terms.items() if c % g == 0}
                return g, self.build((constant // g, large)), (constant % g, small)
        return 1, rest, (0, {})

    def _split(self, x: Node, d: int) -> tuple[Affine, Node]:
        """(q, r) with x = q * d + r, 0 <= r < d where bounds show it."""
        constant, terms = self.affine(x)
        whole = {t: c // d for t, c in terms.items() if c % d == 0}
        left = {t: c for t, c in terms.items() if c % d}
        low, high = self._total(constant, left)
        if low // d == high // d:  # also where a coefficient is negative, as in a flipped axis
            return (low // d, whole), self.build((constant - low // d * d, left))
        # Larger coefficients than d stay whole, so that quotient and remainder of one sum are seen to belong together.
        return (constant // d, whole), self.build((constant % d, left))

    def mod(self, x: Node, d: int) -> Node:
        """x % d for d > 0, of a canonical x."""
        if d == 1:
            return _number(0)
        constant, terms = self.affine(x)
        again = True
        while again:
            again = False
            for t, c in terms.items():
                inner = self._divisor(t) if isinstance(t.op, Mod) else None
                if inner is not None and c * inner % d == 0:  # y % m * c = y * c, where d divides m * c
                    left = {other: k for other, k in terms.items() if other is not t}
                    constant, terms = _join((constant, left), _scale(self.affine(t.src[0]), c), 1)
                    again = True
                    break
        _, rest = self._split(self.build((constant, terms)), d)
        low, high = self.bounds(rest)
        if low // d == high // d:
            return self.build(_join(self.affine(rest), (-(low // d) * d, {}), 1))
        g, reduced, small = self._common(rest, d)
        if g == 1:
            return mod(rest, _number(d))
        if g == d:
            return self.build(small)
        return self.build(_join(small, _scale(self.affine(self.mod(reduced, d // g)), g), 1))

    # -- whole expressions

    def simplify(self, root: Node) -> Node:
        """The canonical form of a node."""
        simple = self._simple
        for node in toposort((root,), enter=lambda n: n not in simple):
            if node not in simple:
                made = rebuild(node, tuple(simple[s] for s in node.src)) if node.src else node
                simple[node] = self._one(made)
        return simple[root]

    def _one(self, node: Node) -> Node:
        """The canonical form of a node over canonical inputs."""
        op = node.op
        if node.shape or not node.src or (node.dtype is not dtypes.int64 and not node.dtype.is_bool):
            return node
        if _is_sum(node):
            form = self.affine(node)
            return node if node in form[1] else self.build(form)
        if isinstance(op, (FloorDiv, Mod)):
            d = self._divisor(node)
            if d is None or node.dtype is not dtypes.int64:
                return node
            return self.div(node.src[0], d) if isinstance(op, FloorDiv) else self.mod(node.src[0], d)
        if isinstance(op, (Maximum, Minimum)) and node.dtype is dtypes.int64:
            return self._extreme(node)
        if isinstance(op, (Lt, Le, Eq, Ne)) and node.src[0].dtype is dtypes.int64:
            return self._comparison(node)
        if isinstance(op, (And, Or, Not, Where)):
            return self._gate(node)
        if not isinstance(op, Range):
            low, high = self.bounds(node)
            if low == high:
                return const(node.dtype, low)
        return node

    def _difference(self, node: Node) -> Interval:
        """The interval of first - second."""
        x, y = node.src
        return self._total(*_join(self.affine(x), self.affine(y), -1))

    def _extreme(self, node: Node) -> Node:
        """A maximum or minimum, decided where bounds tell."""
        low, high = self._difference(node)
        x, y = node.src if isinstance(node.op, Maximum) else node.src[::-1]
        return x if low >= 0 else y if high <= 0 else node

    def _comparison(self, node: Node) -> Node:
        """A comparison, decided where bounds tell."""
        low, high = self._difference(node)
        apart = low > 0 or high < 0
        match node.op:
            case Lt():
                holds = True if high < 0 else False if low >= 0 else None
            case Le():
                holds = True if high <= 0 else False if low > 0 else None
            case Eq():
                holds = False if apart else True if low == high else None
            case _:
                holds = True if apart else False if low == high else None
        return node if holds is None else const(dtypes.bool, holds)

    def _gate(self, node: Node) -> Node:
        """A condition or choice whose parts are partly known."""
        first = node.src[0]
        if isinstance(node.op, Where):
            if node.src[1] is node.src[2]:
                return node.src[1]
            return node if not isinstance(first.op, Const) else node.src[1 if first.op.value else 2]
        if not node.dtype.is_bool:
            return node
        if isinstance(node.op, Not):
            return const(dtypes.bool, not first.op.value) if isinstance(first.op, Const) else node
        decisive = isinstance(node.op, Or)
        for x, other in ((first, node.src[1]), (node.src[1], first)):
            if isinstance(x.op, Const):
                return x if bool(x.op.value) is decisive else other
        return first if first is node.src[1] else node


def _number(value: int) -> Node:
    """An int64 constant."""
    return const(dtypes.int64, value)


def _is_sum(node: Node) -> bool:
    """Whether a node is int64 arithmetic that sums are made of."""
    return isinstance(node.op, (Add, Sub, Mul, Neg)) and node.dtype is dtypes.int64 and not node.shape


def _limits(node: Node) -> Interval:
    """The values that an integer dtype has; anything for floats, which have no bounds here."""
    return (int(node.dtype.min), int(node.dtype.max)) if node.dtype.is_int else (-FAR, FAR)


def _scale(form: Affine, c: int) -> Affine:
    """Every part times c."""
    return (form[0] * c, {t: k * c for t, k in form[1].items()}) if c else (0, {})


def _join(a: Affine, b: Affine, sign: int) -> Affine:
    """a + sign * b."""
    terms = dict(a[1])
    for term, coefficient in b[1].items():
        total = terms.get(term, 0) + sign * coefficient
        if total:
            terms[term] = total
        else:
            terms.pop(term, None)
    return a[0] + sign * b[0], terms
