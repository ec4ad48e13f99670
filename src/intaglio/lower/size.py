"""Index arithmetic at the nominal size: every decision holds for all sizes, from `least` on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.core.dtypes import dtypes
from intaglio.core.size import NOMINAL, REACH, TIMES, UnsizedError, split
from intaglio.ir.node import Node, make, substitute, toposort, walk
from intaglio.lower.index import FAR, Index, Terms, number
from intaglio.ops.elementwise import Add, FloorDiv, Mod, Mul, add, mul
from intaglio.ops.loop import Range
from intaglio.ops.memory import Arg, Const, Window
from intaglio.ops.movement import Pad, Shrink

if TYPE_CHECKING:
    from collections.abc import Iterator

LEAST: Final = 2  # sizes begin here: an axis of size 1 is another program
RAISED: Final = 64  # how far the least size is raised for an index without a division
Form: TypeAlias = tuple[int, ...]  # a polynomial in the size, by rising powers
Span: TypeAlias = tuple[Form | None, Form | None]  # bounds, None where none is known


class SizedIndex(Index):
    """Index arithmetic on integers at the nominal size."""

    sized = True

    def __init__(self, slot: int) -> None:
        """Arithmetic in which the argument of a slot is the size."""
        super().__init__()
        self.size: Final = make(Arg(slot, dtypes.int64))
        self.least = LEAST
        self._spans: Final[dict[Node, tuple[int, Span]]] = {}  # with the least size for which they hold

    # -- integers

    def varies(self, value: int) -> bool:
        """Whether an integer depends on the size."""
        parts = split(value)
        return parts is None or parts[1:] != (0, 0)

    def exceeds(self, value: int, bound: int) -> bool:
        """Whether an integer is more than a fixed number, at every size from the least, which may be raised for it."""
        if not self.varies(value):
            return value > bound
        self.require(value - bound - 1)
        return True

    def fits(self, value: int) -> bool:
        """Whether an integer is linear in the size."""
        parts = split(value)
        return parts is not None and not parts[2]

    def number(self, value: int) -> Node:
        """An integer as a node: one with a square of the size is a product."""
        fixed, times, squares = split(value) or (0, 0, 0)
        if not squares:
            return number(value)
        product = mul(number(NOMINAL), number(times + squares * NOMINAL))
        return add(product, number(fixed)) if fixed else product

    def times(self, a: int, b: int) -> int:
        """a * b.

        Raises: UnsizedError if the product is more than quadratic in the size.
        """
        if not a or not b:
            return 0
        fixed, *multiples = _product(self._form(a), self._form(b))
        if abs(fixed) < REACH and len(multiples) < 3 and all(abs(m) < TIMES for m in multiples):
            return a * b
        raise UnsizedError(f"{a} * {b}")

    def spelled(self, value: int) -> str:
        """An extent in a kernel's name."""
        fixed, times, _ = split(value) or (0, 1, 0)
        if not times:
            return str(value)
        return ("" if times == 1 else str(times)) + "n" + (f"p{fixed}" if fixed > 0 else f"m{-fixed}" if fixed else "")

    def settled(self, value: Node) -> Node:
        """A value with which no rule may calculate at the nominal size."""
        if isinstance(value.op, Const) and value.dtype is dtypes.int64:
            fixed, times, squares = split(int(value.op.value)) or (0, 0, 0)
            if times and not squares:
                return _linear(self.size, fixed, times)
        return value

    # -- affine forms

    def build(self, constant: int, terms: Terms) -> Node:
        """The node of an affine form.

        Raises: UnsizedError if a coefficient is more than quadratic in the size.
        """
        if split(constant) is None or any(split(c) is None for c in terms.values()):
            raise UnsizedError("an index is more than quadratic in the size")
        return super().build(constant, terms)

    def _literal(self, node: Node) -> tuple[int, Terms]:
        """A constant; one that is neither small nor a size is taken as it is."""
        form = super()._literal(node)
        return form if self.fits(form[0]) else (0, {node: 1})

    def _combined(self, node: Node, left: tuple[int, Terms], right: tuple[int, Terms]) -> tuple[int, Terms]:
        """The form of a sum or product; one that is more than quadratic in the size is taken as it is."""
        try:
            constant, terms = super()._combined(node, left, right)
        except UnsizedError:
            return 0, {node: 1}
        known = split(constant) is not None and all(split(c) is not None for c in terms.values())
        return (constant, terms) if known else (0, {node: 1})

    def _reunite(self, constant: int, terms: Terms) -> tuple[int, Terms]:
        """Merge a quotient and the remainder of one division, where the result is at most quadratic in the size."""
        try:
            return super()._reunite(constant, terms)
        except UnsizedError:
            return constant, terms

    def _split(self, x: Node, d: int) -> tuple[tuple[int, Terms], Node]:
        """(x // d of the part that d divides at every size, the rest)."""
        constant, terms = self.affine(x)
        quotients = {t: q for t, c in terms.items() if (q := self._exact(c, d)) is not None}
        whole = self._floor(constant, d)
        rest = self.build(constant - self.times(whole, d), {t: c for t, c in terms.items() if t not in quotients})
        return (whole, quotients), rest

    def _exact(self, c: int, d: int) -> int | None:
        """c / d, if it is an integer at every size."""
        quotient, rest = divmod(c, d)
        if rest or split(quotient) is None:
            return None
        return quotient if _product(self._form(quotient), self._form(d)) == self._form(c) else None

    def _floor(self, c: int, d: int) -> int:
        """A quotient of c by d that leaves a small rest at most sizes."""
        return c // d if self.varies(d) else _at(tuple(part // d for part in self._form(c)), NOMINAL)

    def _nested(self, inner: Node, d: int) -> int | None:
        """The divisor of both divisions, if it is a polynomial and neither divisor can be 0 or less."""
        width, terms = self.affine(inner.src[1])
        if terms or not self._holds(_less(self._form(width), (1,))) or not self._holds(_less(self._form(d), (1,))):
            return None
        try:
            return self.times(width, d)
        except UnsizedError:
            return None

    # -- decisions

    def bounds(self, node: Node) -> tuple[int, int]:
        """Bounds that hold at every size."""
        low, high = self._span(node)
        return (
            low[0] if low is not None and len(low) == 1 else -FAR,
            high[0] if high is not None and len(high) == 1 else FAR,
        )

    def at_least(self, node: Node, value: int) -> bool:
        """Whether a node is never below a value, at every size."""
        low, _ = self._span(node)
        return low is not None and self._holds(_less(low, self._form(value)))

    def below(self, node: Node, value: int) -> bool:
        """Whether a node is always below a value, at every size."""
        _, high = self._span(node)
        return high is not None and self._holds(_less(_less(self._form(value), high), (1,)))

    def quotient(self, node: Node, d: int) -> int | None:
        """The one value of node // d at every size from the least, which may be raised for it."""
        low, high = self._span(node)
        if low is None or high is None:
            return None
        k = _at(low, NOMINAL) // d
        if k != _at(high, NOMINAL) // d or self.varies(k):
            return None
        width = self._form(d)
        inside = _less(low, _scaled(width, k)), _less(_less(_scaled(width, k + 1), high), (1,))
        for least in range(self.least, max(self.least, RAISED) + 1):
            if all(_is_never_negative(form, least) for form in inside):
                self.least = least
                return k
        return None

    def require(self, value: int) -> None:
        """Raise the least size to where an integer is not negative.

        Raises: UnsizedError if it is negative at every size from some on.
        """
        fixed, times, squares = self._parts(value)
        if squares or times < 0 or (not times and fixed < 0):
            raise UnsizedError(f"an extent is {self.spelled(value)}")
        if times:
            self.least = max(self.least, -(fixed // times))

    def _holds(self, form: Form) -> bool:
        """Whether a polynomial is never negative from the least size on."""
        return _is_never_negative(form, self.least)

    def _parts(self, value: int) -> tuple[int, int, int]:
        """The fixed part of an integer, and the multiples of the size and its square."""
        parts = split(value)
        if parts is None:
            raise UnsizedError(f"{value} is more than quadratic in the size")
        return parts

    def _form(self, value: int) -> Form:
        """An integer as a polynomial."""
        return _trimmed(self._parts(value))

    def _span(self, node: Node) -> Span:
        """The least and greatest value of an integer node, as polynomials in the size."""
        found = self._spans.get(node)
        if found is not None and found[0] <= self.least:
            return found[1]
        constant, terms = self.affine(node)
        if len(terms) == 1 and node in terms:
            span = self._leaf_span(node)
        else:
            low: Form | None = self._form(constant)
            high: Form | None = low
            for term, coefficient in terms.items():
                form = self._form(coefficient)
                a, b = self._span(term)
                if not self._holds(form):
                    a, b = (b, a) if self._holds(_scaled(form, -1)) else (None, None)
                low = None if low is None or a is None else _plus(low, _product(a, form))
                high = None if high is None or b is None else _plus(high, _product(b, form))
            span = low, high
        self._spans[node] = self.least, span
        return span

    def _leaf_span(self, node: Node) -> Span:
        """The bounds of what is no sum."""
        op = node.op
        if node is self.size:
            return (0, 1), (0, 1)
        if isinstance(op, Range):
            extent, terms = self.affine(node.src[0])
            return ((0,), None) if terms else ((0,), _less(self._form(extent), (1,)))
        if not isinstance(op, (FloorDiv, Mod)) or node.dtype is not dtypes.int64:
            return None, None
        value, terms = self.affine(node.src[1])
        width = self._form(value)
        if terms or not self._holds(_less(width, (1,))):
            return None, None
        low, high = self._span(node.src[0])
        if isinstance(op, FloorDiv):
            return self._floor_of(low, width), self._floor_of(high, width)
        inside = low is not None and self._holds(low) and self.below(node.src[0], value)
        return (low, high) if inside else ((0,), _less(width, (1,)))

    def _floor_of(self, bound: Form | None, width: Form) -> Form | None:
        """The floored quotient of a bound by a width, if it is a polynomial."""
        if bound is None:
            return None
        if len(width) == 1:
            (d,) = width
            return None if any(c % d for c in bound[1:]) else _trimmed(tuple(c // d for c in bound))
        k = _at(bound, NOMINAL) // _at(width, NOMINAL)
        rest = _less(bound, _scaled(width, k))
        return (k,) if self._holds(rest) and self._holds(_less(_less(width, rest), (1,))) else None


def check_sizes(ast: Node, index: SizedIndex) -> None:
    """Raise the least size to where all shapes of a kernel exist, and none is empty: a value may be had outside a loop.

    Raises: UnsizedError if an extent is not linear in the size, or a stride is no whole number of elements.
    """
    for node in toposort((ast,)):
        for extent in node.shape:
            index.require(extent - 1 if index.varies(extent) else extent)
        op = node.op
        match op:
            case Shrink(bounds=bounds):
                for (start, end), extent in zip(bounds, node.src[0].shape, strict=True):
                    index.require(start)
                    index.require(extent - end)
            case Pad(pads=pads):
                for amount in (n for pair in pads for n in pair):
                    index.require(amount)
            case Window(view=view):
                for value in (*view.strides, view.offset):
                    if index._exact(value, view.dtype.itemsize) is None:
                        raise UnsizedError(f"a window steps by {index.spelled(value)} bytes")
            case _:
                pass


def with_argument(code: list[Node], index: SizedIndex) -> list[Node]:
    """Instructions with the size's argument in place of the nominal size, what depends on it alone first."""
    found: dict[Node, Node] = {}
    for node in _constants(code):
        (made,) = substitute((node,), {c: index.settled(c) for c in walk((node,)) if isinstance(c.op, Const)})
        if made is not node:
            found[node] = made
    first = [n for n in toposort(found.values()) if n.src]
    own = set(first)
    return first + [n for n in substitute(code, found) if n not in own]


def _constants(code: list[Node]) -> Iterator[Node]:
    """What the inputs of instructions have in constants, and in products of constants that are no instructions."""
    placed = set(code)
    for node in code:
        for source in node.src:
            if isinstance(source.op, Const) or (isinstance(source.op, (Add, Mul)) and source not in placed):
                yield source


def _linear(size: Node, fixed: int, times: int) -> Node:
    """fixed + times * size."""
    total = size if times == 1 else mul(size, number(times))
    return add(total, number(fixed)) if fixed else total


def _trimmed(form: Form) -> Form:
    """A polynomial without leading zeros."""
    end = len(form)
    while end > 1 and not form[end - 1]:
        end -= 1
    return form[:end]


def _plus(a: Form, b: Form) -> Form:
    """a + b."""
    size = max(len(a), len(b))
    a, b = a + (0,) * (size - len(a)), b + (0,) * (size - len(b))
    return _trimmed(tuple(x + y for x, y in zip(a, b, strict=True)))


def _scaled(a: Form, k: int) -> Form:
    """a * k."""
    return _trimmed(tuple(x * k for x in a))


def _less(a: Form, b: Form) -> Form:
    """a - b."""
    return _plus(a, _scaled(b, -1))


def _product(a: Form, b: Form) -> Form:
    """a * b."""
    total = [0] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            total[i + j] += x * y
    return _trimmed(tuple(total))


def _at(form: Form, n: int) -> int:
    """The value of a polynomial."""
    total = 0
    for c in reversed(form):
        total = total * n + c
    return total


def _is_never_negative(form: Form, least: int) -> bool:
    """Whether a polynomial in n is certain to be 0 or more for n >= least: in n - least, no coefficient is negative."""
    shifted: Form = (0,)
    for c in reversed(form):
        shifted = _plus(_product(shifted, (least, 1)), (c,))
    return all(c >= 0 for c in shifted)
