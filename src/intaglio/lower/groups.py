"""Which bytes the statements of a kernel read and write: those of one number may be the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intaglio.core.errors import InternalError
from intaglio.ir.node import Node, walk
from intaglio.ops.loop import Store, StoreAt
from intaglio.ops.memory import Local, Param, Window
from intaglio.ops.reduce import Scan

if TYPE_CHECKING:
    from collections.abc import Sequence


def written_in(ast: Node) -> set[int]:
    """The groups of bytes that a kernel writes, scratch apart."""
    stores = (n for n in walk((ast,)) if isinstance(n.op, (Store, StoreAt)) and len(n.src) >= 2)
    return {_group(n.src[0]) for n in stores if not isinstance(n.src[0].src[0].op, Local)}


def only_stored(ast: Node) -> set[int]:
    """The groups of bytes that a kernel of stores writes once, and does not read."""
    if not all(isinstance(n.op, Store) for n in ast.src):
        return set()
    written = [_group(n.src[0]) for n in ast.src]
    return {g for g in written if written.count(g) == 1}.difference(*map(_groups_read, ast.src))


def bytes_moved(ast: Node) -> int:
    """How many bytes a kernel reads and writes, each once, scratch apart."""
    found: dict[int, int] = {}
    for n in walk((ast,)):
        if isinstance(n.op, Window) and isinstance(n.src[0].op, Param):
            low, high = n.op.view.byte_bounds()
            found[_group(n)] = max(found.get(_group(n), 0), high - low)
    return sum(found.values())


def in_nests(statements: Sequence[Node]) -> list[list[Node]]:
    """Statements as loop nests: adjacent stores of one shape share one if none reads what another writes."""
    nests: list[list[Node]] = []
    shape: tuple[int, ...] | None = None  # of the last nest, if more stores may join it
    read: set[int] = set()
    written: set[int] = set()
    for node in statements:
        if not isinstance(node.op, Store) or isinstance(node.src[1].op, Scan):
            nests.append([node])
            shape = None
            continue
        own, needed = _group(node.src[0]), _groups_read(node)
        if node.src[0].shape == shape and own not in read | written and not needed & written:
            nests[-1].append(node)
        else:
            nests.append([node])
            shape, read, written = node.src[0].shape, set(), set()
        read |= needed
        written.add(own)
    return nests


def _group(window: Node) -> int:
    """The group of the bytes that a window is on."""
    pointer = window.src[0].op
    if not isinstance(pointer, Param):
        raise InternalError(f"lower: a store through {pointer.name}")
    return pointer.group


def _groups_read(node: Node) -> set[int]:
    """The groups that a statement's value reads."""
    return {n.op.group for s in node.src[1:] for n in walk((s,)) if isinstance(n.op, Param)}
