"""Integer index arithmetic in affine normal form, with bounds."""

from __future__ import annotations

from typing import ClassVar, Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Node
from intaglio.ops.elementwise import Add, FloorDiv, Mod, Mul, Sub, add, floor_div, mod, mul
from intaglio.ops.loop import Range
from intaglio.ops.memory import Const, const

Terms = dict[Node, int]
FAR: Final = 1 << 62


def number(value: int) -> Node:
    """An int64 constant."""
    return const(dtypes.int64, value)


class Index:
    """Index arithmetic for one kernel: a memo of normal forms and bounds."""

    sized: ClassVar[bool] = False  # whether a size of the kernel is known only when it runs

    def __init__(self) -> None:
        self.least: int = 0  # the least size for which all decisions hold
        self._affine: Final[dict[Node, tuple[int, Terms]]] = {}
        self._bounds: Final[dict[Node, tuple[int, int]]] = {}

    def varies(self, value: int) -> bool:
        """Whether an integer is known only when the kernel runs."""
        return False

    def exceeds(self, value: int, bound: int) -> bool:
        """Whether an integer is more than a fixed number, at every size from the least, which may be raised for it."""
        return value > bound

    def fits(self, value: int) -> bool:
        """Whether an integer can be had as a constant."""
        return True

    def number(self, value: int) -> Node:
        """An integer as a node."""
        return number(value)

    def times(self, a: int, b: int) -> int:
        """a * b."""
        return a * b

    def spelled(self, value: int) -> str:
        """An extent in a kernel's name."""
        return str(value)

    def settled(self, value: Node) -> Node:
        """A value with which rules may calculate."""
        return value

    def affine(self, node: Node) -> tuple[int, Terms]:
        """(constant, {term: coefficient}) with node = constant + sum of coefficient * term."""
        found = self._affine.get(node)
        if found is not None:
            return found
        stack = [(node, False)]
        while stack:
            n, ready = stack.pop()
            if n in self._affine:
                continue
            op = n.op
            if isinstance(op, Const):
                self._affine[n] = self._literal(n)
            elif not isinstance(op, (Add, Sub, Mul)) or n.dtype is not dtypes.int64 or n.shape:
                self._affine[n] = 0, {n: 1}
            elif not ready:
                stack.append((n, True))
                stack.extend((s, False) for s in n.src)
            else:
                self._affine[n] = self._combined(n, self._affine[n.src[0]], self._affine[n.src[1]])
        return self._affine[node]

    def step(self, place: Node, r: Node) -> int:
        """How far a place moves as a range does by one; 0 if it does not, or not evenly."""
        return self.affine(place)[1].get(r, 0)

    def _literal(self, node: Node) -> tuple[int, Terms]:
        """The form of a constant."""
        assert isinstance(node.op, Const)
        return int(node.op.value), {}

    def _combined(self, node: Node, left: tuple[int, Terms], right: tuple[int, Terms]) -> tuple[int, Terms]:
        """The form of a sum, difference or product of two forms."""
        if not isinstance(node.op, Mul):
            return _join(left, right, -1 if isinstance(node.op, Sub) else 1)
        if left[1] and right[1]:
            return 0, {node: 1}
        (scale, _), form = (right, left) if not right[1] else (left, right)
        return self._scaled(form, scale)

    def _scaled(self, form: tuple[int, Terms], c: int) -> tuple[int, Terms]:
        """c times a form."""
        constant, terms = form
        return self.times(constant, c), {t: self.times(k, c) for t, k in terms.items()} if c else {}

    def build(self, constant: int, terms: Terms) -> Node:
        """The node of an affine form; x // d * d + x % d is x."""
        constant, terms = self._reunite(constant, terms)
        total: Node | None = None
        for term, coefficient in terms.items():
            part = term if coefficient == 1 else mul(term, self.number(coefficient))
            total = part if total is None else add(total, part)
        if total is None:
            return self.number(constant)
        if constant:
            total = add(total, self.number(constant))
        self._affine[total] = constant, terms
        return total

    def _reunite(self, constant: int, terms: Terms) -> tuple[int, Terms]:
        """Merge remainders with what stands above them."""
        for low, c in terms.items():
            d = self._divisor(low) if isinstance(low.op, Mod) else None
            if d is None:
                continue
            scale = self.times(c, d)
            for high, coefficient in terms.items():
                joined = self._joined(high, low, d) if coefficient == scale and high is not low else None
                if joined is not None:
                    left = {t: k for t, k in terms.items() if t is not low and t is not high}
                    return self._reunite(*_join((constant, left), self._scaled(joined, c), 1))
        return constant, terms

    def _joined(self, high: Node, low: Node, d: int) -> tuple[int, Terms] | None:
        """high * d + low with less division, where low is a remainder by d; None where there is no such form.

        x // d * d + x % d is x; (x // d + k) % e * d + x % d is (x + k d) % (d e).
        """
        x = low.src[0]
        if isinstance(high.op, FloorDiv):
            same = high.src == low.src or (not self.sized and high is self.div(x, d))
            return self.affine(x) if same else None
        outer = self._divisor(high) if isinstance(high.op, Mod) and not self.sized else None
        if outer is None:
            return None
        constant, terms = self.affine(high.src[0])
        for above, coefficient in terms.items():
            if coefficient == 1 and isinstance(above.op, FloorDiv):
                digits = self._joined(above, low, d)
                if digits is not None:
                    others = constant, {t: k for t, k in terms.items() if t is not above}
                    return self.affine(self.mod(self.build(*_join(self._scaled(others, d), digits, 1)), d * outer))
        return None

    def _divisor(self, node: Node) -> int | None:
        """The integer that a quotient or remainder is by."""
        constant, terms = self.affine(node.src[1])
        return None if terms or (not self.sized and constant <= 0) else constant

    def add(self, x: Node, y: Node) -> Node:
        """x + y."""
        return self.build(*_join(self.affine(x), self.affine(y), 1))

    def mul(self, x: Node, c: int) -> Node:
        """x * c."""
        return self.build(*self._scaled(self.affine(x), c))

    def sum(self, parts: list[tuple[Node, int]], constant: int = 0) -> Node:
        """constant + sum of node * coefficient."""
        total: tuple[int, Terms] = (constant, {})
        for node, coefficient in parts:
            total = _join(total, self._scaled(self.affine(node), coefficient), 1)
        return self.build(*total)

    def bounds(self, node: Node) -> tuple[int, int]:
        """The least and greatest value that an integer node can take."""
        found = self._bounds.get(node)
        if found is not None:
            return found
        constant, terms = self.affine(node)
        if len(terms) == 1 and node in terms:
            found = self._leaf_bounds(node)
        else:
            low = high = constant
            for term, coefficient in terms.items():
                a, b = self.bounds(term)
                low += min(a * coefficient, b * coefficient)
                high += max(a * coefficient, b * coefficient)
            found = max(low, -FAR), min(high, FAR)
        self._bounds[node] = found
        return found

    def _leaf_bounds(self, node: Node) -> tuple[int, int]:
        """The bounds of what is no sum."""
        op = node.op
        if isinstance(op, Range):
            constant, terms = self.affine(node.src[0])
            return (0, FAR) if terms else (0, constant - 1)
        if isinstance(op, (FloorDiv, Mod)):
            width, rest = self.affine(node.src[1])
            if not rest and width > 0:
                low, high = self.bounds(node.src[0])
                if isinstance(op, FloorDiv):
                    return low // width, high // width
                return (low, high) if low >= 0 and high < width else (0, width - 1)
        return -FAR, FAR

    def at_least(self, node: Node, value: int) -> bool:
        """Whether a node is certain never to be below a value."""
        return self.bounds(node)[0] >= value

    def below(self, node: Node, value: int) -> bool:
        """Whether a node is certain to be below a value."""
        return self.bounds(node)[1] < value

    def quotient(self, node: Node, d: int) -> int | None:
        """The value of node // d, where it has only one."""
        low, high = self.bounds(node)
        return low // d if low // d == high // d else None

    def div(self, x: Node, d: int) -> Node:
        """x // d, rounded down."""
        if d == 1:
            return x
        whole, rest = self._split(x, d)
        known = self.quotient(rest, d)
        if known is not None:
            return self.build(*_join(whole, (known, {}), 1))
        both = self._nested(rest, d) if isinstance(rest.op, FloorDiv) else None
        quotient = self.div(rest.src[0], both) if both is not None else floor_div(rest, self.number(d))
        return self.build(*_join(whole, self.affine(quotient), 1))

    def mod(self, x: Node, d: int) -> Node:
        """x % d, not negative."""
        if d == 1:
            return number(0)
        _, rest = self._split(self._without_remainders(x, d), d)
        known = self.quotient(rest, d)
        if known is not None:
            return self.add(rest, self.number(self.times(-known, d)))
        return mod(rest, self.number(d))

    def _without_remainders(self, x: Node, d: int) -> Node:
        """A value that is x modulo d: y % m * c is y * c there, where d divides m c."""
        constant, terms = self.affine(x)
        inner = next((t for t, c in terms.items() if self._is_idle(t, c, d)), None)
        while inner is not None:
            left = {t: c for t, c in terms.items() if t is not inner}
            constant, terms = _join((constant, left), self._scaled(self.affine(inner.src[0]), terms[inner]), 1)
            x = self.build(constant, terms)
            constant, terms = self.affine(x)
            inner = next((t for t, c in terms.items() if self._is_idle(t, c, d)), None)
        return x

    def _is_idle(self, term: Node, c: int, d: int) -> bool:
        """Whether c times a term is the same modulo d without the remainder that the term is."""
        m = self._divisor(term) if isinstance(term.op, Mod) and not self.sized else None
        return m is not None and c * m % d == 0

    def _nested(self, inner: Node, d: int) -> int | None:
        """The divisor that stands for dividing first as `inner` does, then by d."""
        width, terms = self.affine(inner.src[1])
        return None if terms else d * width

    def _split(self, x: Node, d: int) -> tuple[tuple[int, Terms], Node]:
        """(x // d of the part that d divides, the rest)."""
        constant, terms = self.affine(x)
        whole = {t: c // d for t, c in terms.items() if c % d == 0}
        rest = self.build(constant % d, {t: c for t, c in terms.items() if c % d})
        return (constant // d, whole), rest

    def flatten(self, indices: tuple[Node, ...], shape: tuple[int, ...]) -> Node:
        """The row-major position of an index tuple."""
        parts: list[tuple[Node, int]] = []
        step = 1
        for index, extent in zip(reversed(indices), reversed(shape), strict=True):
            parts.append((index, step))
            step *= extent
        return self.sum(list(reversed(parts)))

    def unflatten(self, position: Node, shape: tuple[int, ...]) -> tuple[Node, ...]:
        """The index tuple of a row-major position that is within the shape."""
        if 0 in shape:
            return (number(0),) * len(shape)  # no position exists: nothing is ever read there
        found: list[Node] = []
        for extent in reversed(shape[1:]):
            found.append(self.mod(position, extent))
            position = self.div(position, extent)
        if shape:
            found.append(number(0) if shape[0] == 1 else position)
        return tuple(reversed(found))


def _join(a: tuple[int, Terms], b: tuple[int, Terms], sign: int) -> tuple[int, Terms]:
    """a + sign * b."""
    if not b[1]:
        return a[0] + sign * b[0], a[1]
    terms = dict(a[1])
    for term, coefficient in b[1].items():
        total = terms.get(term, 0) + sign * coefficient
        if total:
            terms[term] = total
        else:
            terms.pop(term, None)
    return a[0] + sign * b[0], terms
