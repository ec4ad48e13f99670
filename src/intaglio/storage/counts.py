"""What only some values hold, by reference counts (CPython's): nobody else will ask for it.

Any miscount upwards keeps a value that nobody needs, which is safe.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import toposort
from intaglio.ops.memory import Read
from intaglio.storage.skeleton import ReadStep
from intaglio.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from intaglio.ir.node import Node


def only_within(roots: list[Node], given_up: Sequence[Node]) -> set[Node]:
    """The reads that only some values of a slice hold: nobody will ask for what they see once it is overwritten.

    Decided by reference counts (CPython's): a node with more of them than the slice accounts for is held elsewhere, and
    so is all that it reads. Any miscount upwards keeps a value that nobody needs, which is safe.
    """
    if not any(isinstance(node.op, Read) or node.src for node in roots):
        return set()
    order = toposort(roots)
    expected = _references(order, roots)
    held: set[Node] = set()
    goals = set(given_up)
    for number in range(len(order) - 1, -1, -1):
        if order[number] in goals:
            continue
        if order[number] in held or sys.getrefcount(order[number]) > expected[order[number]]:
            held.add(order[number])
            held.update(order[number].src)
    return {node for node in order if isinstance(node.op, Read) and node not in held}


def references_to(storage: Storage) -> int:
    """The references to a storage; those that counting makes are among them."""
    return sys.getrefcount(storage)


def expressions_of(storages: Iterable[Storage], owners: Iterable[Storage]) -> dict[int, int]:
    """How often the expressions of elements that some owners have pending refer to some storages, by their ids.

    All expressions count that are remembered as extensions of these, for as long as they read one of the storages.
    """
    wanted = set(map(id, storages))
    found: dict[int, int] = {}
    steps: set[int] = set()
    seen: set[int] = set()
    stack = [skeleton for owner in owners for skeleton in owner.skeletons or ()]
    while stack:
        skeleton = stack.pop()
        if id(skeleton) in seen:
            continue
        seen.add(id(skeleton))
        own = [id(storage) for storage in skeleton.storages if id(storage) in wanted]
        if not own:
            continue
        for known in own:
            found[known] = found.get(known, 0) + 1
        if skeleton.storage is not None:
            found[id(skeleton.storage)] += 1
        for step in skeleton.key.steps if skeleton.key is not None else ():
            if isinstance(step, ReadStep) and id(step.storage) in wanted and id(step) not in steps:
                steps.add(id(step))
                found[id(step.storage)] += 1
        stack.extend(operand for operand in (skeleton.left, skeleton.right) if operand is not None)
        stack.extend(skeleton.children.values())
    return found


def _references(order: list[Node], roots: list[Node]) -> dict[Node, int]:
    """The references to a node that a slice accounts for; a function, since its loop variables hold nodes too."""
    expected: dict[Node, int] = dict.fromkeys(order, REFERENCES_OF_A_NODE)
    for node in order:
        for source in node.src:
            expected[source] += 1
    for root in roots:
        expected[root] += 2  # the entry's and that of `roots`
    return expected


def _overhead() -> int:
    """The references that counting itself makes: of a list, a dictionary's key, and the call."""
    order = [object()]
    expected = dict.fromkeys(order, 0)
    return sys.getrefcount(order[0]) + 0 * len(expected)


REFERENCES_OF_A_NODE: Final = _overhead()


def _references_of_a_slice() -> int:
    """What `references_to` says of a storage that nothing holds but a slice's two tables and its set."""
    storage = Storage(0, "CPU")
    bases, tables = {storage}, ({storage: 0}, {storage: 0})
    del storage
    return next(references_to(storage) + 0 * len(tables) for storage in bases)


def _references_of_an_argument() -> int:
    """The references to a value that only the function which was called with it has."""

    def references(value: object) -> int:
        return sys.getrefcount(value)

    return references([object()].pop())


REFERENCES_OF_AN_ARGUMENT: Final = _references_of_an_argument()
REFERENCES_OF_A_SLICE: Final = _references_of_a_slice()
REFERENCES_OF_A_TABLE: Final = REFERENCES_OF_A_SLICE - 1  # of a storage that has no version 0 to be computed
