"""Expressions by primitive ops: what every renderer spells."""

from __future__ import annotations

from typing import Final

from intaglio.core.dtypes import dtypes
from intaglio.core.size import REACH
from intaglio.ir.node import Node, rebuild, substitute, toposort
from intaglio.ir.rewrite import rewrite
from intaglio.lower.index import number
from intaglio.ops.elementwise import Elementwise, or_, shl
from intaglio.ops.memory import Const
from intaglio.ops.transcendental import FORMS as _FORMS  # noqa: F401 # pyright: ignore[reportUnusedImport] -- fills a table
from intaglio.rules.choices import choices, logic
from intaglio.rules.floats import casts, floats
from intaglio.rules.integers import integers

EXACT: Final = choices + logic + integers + floats + casts


def simplest(root: Node, *, in_parts: bool = False) -> Node:
    """An expression by primitive ops, simplified by the rules that change no bit. `in_parts`: as in `decompose`."""
    return rewrite([decompose(root, in_parts=in_parts)], EXACT)[0]


def decompose(root: Node, *, in_parts: bool = False) -> Node:
    """An expression with every op that is not primitive replaced by its decomposition, until none is left.

    Args:
        in_parts: Whether large integers of decompositions are put together from halves, so that none is taken for
            one that depends on the nominal size.
    """
    done: dict[Node, Node] = {}
    forms: dict[Node, Node] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if node in forms:
            done[node] = done[forms[node]]
            continue
        missing = [s for s in node.src if s not in done]
        if missing:
            stack.extend(missing)
            continue
        made = rebuild(node, tuple(done[s] for s in node.src)) if node.src else node
        op = made.op
        if isinstance(op, Elementwise) and op.is_decomposed(made.dtype):
            form = op.decompose(*made.src)
            forms[node] = _in_parts(form, made.src) if in_parts else form
            done.update((s, s) for s in made.src)
            stack.append(forms[node])
        else:
            done[node] = made
    return done[root]


def _in_parts(form: Node, operands: tuple[Node, ...]) -> Node:
    """A decomposition whose integers are all less than those that depend on the size."""
    large = [n for n in toposort((form,), enter=lambda n: n not in operands) if _is_large(n)]
    made: dict[Node, Node] = {}
    for node in large:
        assert isinstance(node.op, Const)
        high, low = divmod(int(node.op.value), 1 << 32)
        made[node] = or_(shl(number(high), number(32)), number(low))
    return substitute((form,), made)[0]


def _is_large(node: Node) -> bool:
    """Whether a node is an integer that might be taken for one that depends on the nominal size."""
    return isinstance(node.op, Const) and node.dtype is dtypes.int64 and abs(int(node.op.value)) >= REACH
