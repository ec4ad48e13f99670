"""Inputs that nobody will ask for once a flush has run, by reference counts (CPython's): results take their memory.

Any miscount upwards leaves an input its memory, which is safe. Most inputs are alive, which is seen at the input.
"""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Final

from intaglio.ops.memory import BufferRef, Read
from intaglio.runtime.allocator import Block
from intaglio.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from intaglio.engine.plan import Plan
    from intaglio.ir.node import Node
    from intaglio.storage.scalars import ScalarHandle


def spent(
    plan: Plan, unwritten: Iterable[Storage], nodes: Sequence[Node], owners: Sequence[ScalarHandle]
) -> list[tuple[int, int]]:
    """Of the heirs of a plan's form, those whose input dies with the flush that runs it; each input serves one.

    An input dies if all ways to it are the flush's own: the buffer, the storage that it belongs to and all values on
    the way there are held by nobody else, and those that are wanted only by who gets their buffers instead.

    Args:
        unwritten: Storages whose versions 0 are computed.
        nodes: The values that are wanted.
        owners: Who holds those, one each; without them nothing is spent.
    """
    refs = plan.refs
    pairs = [pair for pair in plan.form.heirs if _fits(refs[pair[1]], refs[pair[0]])]
    if not pairs or len(owners) < len(nodes):
        return []
    leaves: dict[int, list[Node]] = {id(refs[source]): [] for _, source in pairs}
    _find([*nodes, *[storage.base for storage in unwritten if storage.base is not None]], leaves)
    dying = {source for _, source in pairs if _is_last(leaves[id(refs[source])], refs, source)}
    if dying:
        held = _Walk(unwritten, nodes, owners, leaves).held()
        dying = {source for source in dying if held.isdisjoint(leaves[id(refs[source])])}
    found: dict[int, int] = {}
    for result, source in pairs:
        if source in dying and result not in found:
            dying.remove(source)
            found[result] = source
    return [*found.items()]


def _fits(source: BufferRef, result: BufferRef) -> bool:
    """Whether a result has the bytes of an input, whose memory is the allocator's, and nobody's but the buffer's."""
    block = type(source.memory) is Block
    alone = sys.getrefcount(source.memory) <= REFERENCES_OF_AN_ATTRIBUTE
    return block and alone and source.nbytes == result.nbytes and source.device == result.device


def _find(stack: list[Node], leaves: dict[int, list[Node]]) -> None:
    """Find the values that lie in some buffers, by the ids of those, below others."""
    met: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in met:
            continue
        met.add(id(node))
        if node.place is not None:
            ref = node.place[0]
        elif isinstance(node.op, Read):
            storage = _storage(node.op)
            ref = storage.ref
            if ref is None and storage.base is not None:
                stack.append(storage.base)
        else:
            stack += node.src
            continue
        if id(ref) in leaves:
            leaves[id(ref)].append(node)


def _storage(op: Read) -> Storage:
    """The storage that an op reads."""
    return op.storage  # pyright: ignore[reportReturnType] -- as every read's


def _is_last(leaves: list[Node], refs: Sequence[BufferRef], source: int) -> bool:
    """Whether only some values come to a buffer, whose bytes may go. `source`: its number among some."""
    places: set[int] = set()
    reads: dict[int, set[int]] = {}  # for each storage, by its id, the ids of the ops that read it
    for leaf in leaves:
        if leaf.place is not None:
            places.add(id(leaf.place))
        elif isinstance(leaf.op, Read):
            reads.setdefault(id(leaf.op.storage), set()).add(id(leaf.op))
    own = all(_is_own(leaf.op, reads) for leaf in leaves if leaf.place is None and isinstance(leaf.op, Read))
    return own and bool(leaves) and sys.getrefcount(refs[source]) <= REFERENCES_OF_A_REF + len(places) + len(reads)


def _is_own(op: Read, reads: dict[int, set[int]]) -> bool:
    """Whether only some reads hold the storage that an op reads, and its bytes are its own."""
    storage = _storage(op)
    if storage.stays:
        return False
    return sys.getrefcount(storage) <= REFERENCES_OF_A_STORAGE + len(reads[id(storage)])


class _Walk:
    """What some values are computed from, and how many references to each are accounted for."""

    def __init__(
        self,
        unwritten: Iterable[Storage],
        nodes: Sequence[Node],
        owners: Sequence[ScalarHandle],
        leaves: dict[int, list[Node]],
    ) -> None:
        """Of what is wanted, as `spent` takes it. `leaves`: lists of values, whose references are accounted for."""
        self._expected: Final[dict[Node, int]] = {}
        self._reads: Final[dict[int, set[int]]] = {}  # of each storage that has no bytes, as in `_is_last`
        self._views: Final[dict[int, Node]] = {}  # one of the values that read each of these
        tracked: list[Node] = []
        seen: set[int] = set()  # owners: one may be named twice
        for storage in unwritten:
            self._account(storage.base)
        for node, owner in zip(nodes, owners, strict=True):
            self._account(node)  # the list's
            if id(owner) not in seen:
                seen.add(id(owner))
                self._account(node)  # the owner's; who else holds it finds its place
            if owner._grad_state is True:
                tracked.append(node)
        for node in itertools.chain.from_iterable(leaves.values()):
            self._account(node)
        self._enter([*self._expected])
        self._expected.update(dict.fromkeys(tracked, 0))  # whoever follows gradients holds them

    def _account(self, node: Node | None) -> None:
        """Account for one more reference to a value."""
        if node is not None:
            self._expected[node] = self._expected.get(node, REFERENCES_OF_A_NODE) + 1

    def _enter(self, stack: list[Node]) -> None:
        """Account for the references to all that some values are computed from."""
        met: set[int] = set()  # values, and tuples of inputs: two values may have one
        while stack:
            node = stack.pop()
            if id(node) in met or node.place is not None:
                continue
            met.add(id(node))
            if isinstance(node.op, Read):
                storage = _storage(node.op)
                if storage.ref is None and storage.base is not None:
                    if id(storage) not in self._views:
                        self._views[id(storage)] = node
                        self._account(node)
                        self._account(storage.base)
                        stack.append(storage.base)
                    self._reads.setdefault(id(storage), set()).add(id(node.op))
            elif id(node.src) not in met and node.src:
                met.add(id(node.src))
                for source in node.src:
                    self._account(source)
                stack += node.src

    def held(self) -> set[Node]:
        """All that somebody else may ask for, and what that is computed from."""
        expected = self._expected
        found: set[Node] = set()
        stack = [node for node in expected if sys.getrefcount(node) > expected[node]]
        for node in self._views.values():
            assert isinstance(node.op, Read)
            base = _storage(node.op).base
            if base is not None and not _is_own(node.op, self._reads):
                stack.append(base)
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                if node.place is None and isinstance(node.op, Read):
                    base = _storage(node.op).base
                    stack += () if base is None else (base,)
                elif node.place is None:
                    stack += node.src
        return found


def _of_an_attribute() -> int:
    """The references to a value that is an attribute of one object, and nowhere else."""
    ref = BufferRef(0, "CPU")
    ref.memory = object()
    return sys.getrefcount(ref.memory)


def _of_a_node() -> int:
    """The references to a value that is a dictionary's key, and nowhere else."""
    return max([sys.getrefcount(node) for node in {object(): 0}])


def _of_a_ref() -> int:
    """The references to a buffer of a list that nobody else has."""
    refs = [BufferRef(0, "CPU")]
    return sys.getrefcount(refs[0])


def _of_a_storage() -> int:
    """The references to a storage that is a local variable, and nowhere else."""
    storage = Storage(0, "CPU")
    return sys.getrefcount(storage)


REFERENCES_OF_AN_ATTRIBUTE: Final = _of_an_attribute()
REFERENCES_OF_A_NODE: Final = _of_a_node()
REFERENCES_OF_A_REF: Final = _of_a_ref()
REFERENCES_OF_A_STORAGE: Final = _of_a_storage()
