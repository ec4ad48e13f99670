"""Rules: named rewrites as functions of their variables, joined to rulesets by topic."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias, cast

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import InternalError
from intaglio.ir.node import Node, Op, Result, make, rebuild, toposort

Number: TypeAlias = int | float | bool
Body: TypeAlias = Callable[..., tuple[Node, ...]]
Python: TypeAlias = Callable[[Node], Node | None]
Bound: TypeAlias = dict[Node, Node]


class Lit(Node):
    """The annotation of a variable that stands for constants only."""

    __slots__ = ()


class Flag(Node):
    """The annotation of a variable that stands for bools, whatever the rule's dtype."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Variable(Op):
    """A variable of a rule: any node of its dtype; a constant only, if `literal`."""

    index: int
    of: DType
    literal: bool
    name: ClassVar[str] = "variable"

    def infer(self) -> Result:
        """A scalar, which goes with any shape."""
        return self.of, ()


@dataclass(frozen=True, slots=True)
class Folded(Op):
    """A number computed from a rule's constants. src: literal variables."""

    function: Callable[..., Any]
    name: ClassVar[str] = "folded"

    def infer(self, *literals: Node) -> Result:
        """As the constants."""
        return literals[0].dtype, ()


def fold(function: Callable[..., Any], *literals: Node) -> Node:
    """What a function gives for the values of constants (as a guard: whether it holds)."""
    return make(Folded(function), *literals)


@dataclass(frozen=True, slots=True)
class Form:
    """A rule for one dtype: the pattern, what takes its place, and its condition."""

    variables: tuple[Node, ...]
    before: Node
    after: Node
    guard: Node | None
    needed: frozenset[type[Op]]  # ops that must be among the inputs: most nodes are refused by these alone
    twins: bool  # whether both inputs are one node


def _form(variables: tuple[Node, ...], before: Node, after: Node, guard: Node | None) -> Form:
    """A form with what a glance can refuse."""
    needed = frozenset(type(s.op) for s in before.src if not isinstance(s.op, Variable))
    return Form(variables, before, after, guard, needed, len(before.src) == 2 and before.src[0] is before.src[1])


class Rule:
    """One named rewrite, of nodes whose operands have a dtype of its domain (any, if there is none)."""

    def __init__(self, ruleset: str, body: Body | Python, domain: tuple[DType, ...]) -> None:
        code = body.__code__
        self.ruleset: Final = ruleset
        self.name: Final = body.__name__
        self.doc: Final = inspect.getdoc(body) or ""
        self.place: Final = f"{code.co_filename}:{code.co_firstlineno}"
        self.domain: Final = domain

    def __repr__(self) -> str:
        return f"{self.name} ({self.place})"

    def apply(self, node: Node) -> Node | None:
        """What takes the node's place, or None where the rule does not hold."""
        raise NotImplementedError(self.name)


class PatternRule(Rule):
    """A rule given as (before, after[, guard]) over variables."""

    def __init__(self, ruleset: str, body: Body, domain: tuple[DType, ...], unproven: str) -> None:
        super().__init__(ruleset, body, domain)
        self.body: Final = body
        self.unproven: Final = unproven
        self._forms: Final[dict[DType, Form]] = {}

    def form(self, dtype: DType) -> Form:
        """The rule over a dtype, made at first use."""
        found = self._forms.get(dtype)
        if found is None:
            found = self._forms[dtype] = self._make(dtype)
        return found

    def _make(self, dtype: DType) -> Form:
        """Call the rule on variables."""
        code = self.body.__code__
        variables: list[Node] = []
        for place, name in enumerate(code.co_varnames[: code.co_argcount]):
            kind = str(self.body.__annotations__.get(name, "Node"))
            of = dtypes.bool if kind == "Flag" else dtype
            variables.append(make(Variable(place, of, kind == "Lit")))
        before, after, *guard = self.body(*variables)
        return _form(tuple(variables), before, after, guard[0] if guard else None)

    def apply(self, node: Node) -> Node | None:
        """Match the pattern, check the guard, build the replacement."""
        dtype = operand_dtype(node)
        if not node.src or dtype not in self.domain:
            return None
        form = self.form(dtype)
        if form.twins and node.src[0] is not node.src[1]:
            return None
        if form.needed and not form.needed.issubset([type(s.op) for s in node.src]):
            return None
        bound = match(form.before, node)
        if bound is None or (form.guard is not None and not _number(form.guard, bound)):
            return None
        made = instantiate(form.after, bound)
        return made if made.shape == node.shape else None


class PythonRule(Rule):
    """A rule written out in Python."""

    def __init__(self, ruleset: str, body: Python, domain: tuple[DType, ...]) -> None:
        super().__init__(ruleset, body, domain)
        self.body: Final = body

    def apply(self, node: Node) -> Node | None:
        """What the function says."""
        return self.body(node)


def operand_dtype(node: Node) -> DType:
    """The dtype of a node's operands, also where the result is bool; of a node without operands, its own."""
    return node.src[-1].dtype if node.src else node.dtype


class Ruleset:
    """Rules of one topic, found by the class of the op at a pattern's root and the dtype of its operands."""

    def __init__(self, name: str, domain: Iterable[DType] = ()) -> None:
        self.name: Final = name
        self.domain: Final = tuple(domain)
        self.rules: Final[list[Rule]] = []
        self.by_op: Final[dict[type[Op], list[Rule]]] = {}
        self._found: Final[dict[tuple[type[Op], DType], list[Rule]]] = {}

    def rule(self, body: Body) -> Body:
        """Add a rule that is proven by the tests for all integers."""
        return self.unproven("")(body)

    def unproven(self, reason: str) -> Callable[[Body], Body]:
        """Add a rule that is tested on values only, for a reason."""

        def add(body: Body) -> Body:
            made = PatternRule(self.name, body, self.domain, reason)
            self._add(type(made.form(self.domain[0]).before.op), made)
            return body

        return add

    def rewrite(self, *kinds: type[Op]) -> Callable[[Python], Python]:
        """Add a rule in Python for nodes of these ops."""

        def add(body: Python) -> Python:
            made = PythonRule(self.name, body, self.domain)
            for kind in kinds:
                self._add(kind, made)
            return body

        return add

    def of(self, node: Node) -> list[Rule]:
        """The rules that may hold at a node."""
        key = (type(node.op), operand_dtype(node))
        found = self._found.get(key)
        if found is None:
            rules = self.by_op.get(key[0], ())
            found = self._found[key] = [r for r in rules if not r.domain or key[1] in r.domain]
        return found

    def _add(self, kind: type[Op], rule: Rule) -> None:
        """Enter a rule under an op; names are unique in a ruleset."""
        if any(r.name == rule.name and r is not rule for r in self.rules):
            raise InternalError(f"rules: {self.name} has two rules named {rule.name}")
        if rule not in self.rules:
            self.rules.append(rule)
        self.by_op.setdefault(kind, []).append(rule)
        self._found.clear()

    def __add__(self, other: Ruleset) -> Ruleset:
        """Both, this one's rules first."""
        joined = Ruleset(f"{self.name} + {other.name}", self.domain)
        for ruleset in (self, other):
            joined.rules.extend(r for r in ruleset.rules if r not in joined.rules)
            for kind, rules in ruleset.by_op.items():
                joined.by_op.setdefault(kind, []).extend(rules)
        return joined


def _literal(node: Node) -> bool:
    """Whether a node is a constant."""
    return node.op.name == "const"


def match(pattern: Node, node: Node) -> Bound | None:
    """The variables' values under which a pattern is the node; of commutative ops both orders are tried."""
    choices: list[tuple[Bound, list[tuple[Node, Node]]]] = [({}, [(pattern, node)])]
    while choices:
        bound, todo = choices.pop()
        while todo:
            want, have = todo.pop()
            if isinstance(want.op, Variable):
                held = bound.get(want)
                if held is have:
                    continue
                if held is not None or have.dtype is not want.op.of or (want.op.literal and not _literal(have)):
                    break
                bound[want] = have
            elif not want.src:
                if want is not have:
                    break
            else:
                if want.op != have.op or len(want.src) != len(have.src):
                    break
                if getattr(want.op, "commutative", False):
                    other = [*todo, (want.src[0], have.src[1]), (want.src[1], have.src[0])]
                    choices.append((dict(bound), other))
                todo.extend(zip(reversed(want.src), reversed(have.src), strict=True))
        else:
            return bound
    return None


def _number(folded: Node, bound: Bound) -> Any:
    """The value of a `fold`."""
    op = cast("Folded", folded.op)
    return op.function(*(cast("Any", bound[s].op).value for s in folded.src))


def constant(dtype: DType, value: Number) -> Node:
    """A number as a node."""
    bits = dtype.to_bits(dtype.wrap(value))
    return make(Op.registry["const"](dtype, bits))  # pyright: ignore[reportCallIssue] -- it is declared above this layer


def instantiate(template: Node, bound: Bound) -> Node:
    """A template with its variables and folds replaced."""
    done: Bound = {}
    for node in toposort((template,)):
        if isinstance(node.op, Variable):
            done[node] = bound[node]
        elif isinstance(node.op, Folded):
            done[node] = constant(node.dtype, _number(node, bound))
        else:
            done[node] = rebuild(node, tuple(done[s] for s in node.src)) if node.src else node
    return done[template]
