"""The reverse sweep: from the cotangent of a value to those of the leaves, through values, versions and loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.core.errors import GradError
from intaglio.grad.vjp import mask_of, pull, read_flat, spread, touched, winners
from intaglio.ir.node import Node
from intaglio.ops import elementwise as ops
from intaglio.ops.elementwise import Detach
from intaglio.ops.memory import Read, const, put, take
from intaglio.ops.movement import expand, reshape
from intaglio.storage.history import Record, history_of
from intaglio.storage.past import Loop, Past
from intaglio.storage.reverse import Workspace
from intaglio.storage.shares import gathered
from intaglio.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Container

    from intaglio.storage.shares import Share

Version: TypeAlias = tuple[Storage, int]
Vertex: TypeAlias = Node | Version | Loop


class Backward:
    """One reverse sweep: versions, loops and values in reverse order of dependence.

    A `differentiable` one gives cotangents that are values of what the sweep went through. It does without storages of
    its own, through which no gradients flow: it pulls back each turn of a loop, and each share, by itself.
    """

    def __init__(
        self, root: Node, ct: Node, wanted: Container[Node | Storage] = (), *, differentiable: bool = False
    ) -> None:
        """Begin with the cotangent of the root.

        Attributes:
            found: The cotangents of the wanted values, and of each wanted storage as it is now, flat.
        """
        self.root: Final = root
        self.wanted: Final = wanted
        self.found: Final[dict[Node | Storage, Node]] = {}
        self.differentiable: Final = differentiable
        self.past: Final = Past(root, loops=not differentiable)
        self.cts: Final[dict[Node, Node]] = {root: ct}
        self.flat: Final[dict[Version, Node]] = {}  # the cotangent of a version, flat
        self.shares: Final[dict[Version, list[Share]]] = {}  # and what reads of it add to that
        self.ends: Final[dict[Loop, dict[Storage, Node]]] = {}  # those of what a loop writes, as they are after it
        self.leaves: Final[dict[Storage, Node]] = {}  # their cotangents, flat
        self.used: Final[dict[Storage, None]] = {}

    def run(self) -> None:
        """Find the cotangents."""
        for vertex in reversed(self._order()):
            if isinstance(vertex, Node):
                ct = self.cts.pop(vertex, None)
                if ct is not None:
                    if vertex in self.wanted:
                        self.found[vertex] = ct
                    self._pull_node(vertex, ct)
            elif isinstance(vertex, Loop):
                ends = self.ends.pop(vertex, None)
                if ends is not None:
                    self._pull_loop(vertex, ends)
            else:
                shares = self.shares.pop(vertex, None)
                if shares is not None:
                    self._add_shares(vertex, shares)
                ct = self.flat.pop(vertex, None)
                if ct is not None:
                    storage, version = vertex
                    if storage in self.wanted and version == self.past.newest(storage):
                        self.found[storage] = ct
                    self._pull_version(storage, version, ct)

    # -- order

    def _sources(self, vertex: Vertex) -> list[Vertex]:
        """What a value, version or loop is made from."""
        match vertex:
            case Node(op=Read(storage=Storage() as storage, stamp=stamp)):
                return [(storage, self.past.version(storage, stamp))] if history_of(storage) is not None else []
            case Node(op=Detach()):
                return []
            case Node():
                return list(vertex.src)
            case Loop():
                return list(vertex.before.items())
            case (storage, 0):
                history = history_of(storage)
                return [history.base] if history is not None and history.base is not None else []
            case (storage, version):
                step = self.past.step(storage, version)
                if isinstance(step, Loop):
                    return [step]
                return [(storage, version - 1), *([step.value] if step.value is not None else [])]

    def _order(self) -> list[Vertex]:
        """Every value, version and loop, what it is made from first."""
        order: list[Vertex] = []
        seen: set[Vertex] = set()
        stack: list[tuple[Vertex, bool]] = [(self.root, False)]
        while stack:
            vertex, done = stack.pop()
            if done:
                order.append(vertex)
            elif vertex not in seen:
                seen.add(vertex)
                stack.append((vertex, True))
                stack.extend((source, False) for source in self._sources(vertex) if source not in seen)
        return order

    # -- pulling back

    def _add(self, node: Node, ct: Node) -> None:
        """One more contribution to a value's cotangent."""
        known = self.cts.get(node)
        self.cts[node] = ct if known is None else ops.add(known, ct)

    def _add_flat(self, key: Version, ct: Node) -> None:
        """One more contribution to a version's cotangent."""
        known = self.flat.get(key)
        self.flat[key] = ct if known is None else ops.add(known, ct)

    def _add_shares(self, key: Version, shares: list[Share]) -> None:
        """What reads of a version give to its cotangent."""
        for some in [[share] for share in shares] if self.differentiable else [shares]:
            self._add_flat(key, gathered(key[0], some))

    def _pull_node(self, node: Node, ct: Node) -> None:
        """From a value to its inputs, or to the version that it reads."""
        match node.op:
            case Read(storage=Storage() as storage, view=view, stamp=stamp):
                history = history_of(storage)
                own = history.own(view) if history is not None else None
                if own is not None:
                    self.shares.setdefault((storage, self.past.version(storage, stamp)), []).append((own, ct))
            case Detach():
                pass
            case _:
                if node.src:
                    for source, given in zip(node.src, pull(node, ct), strict=True):
                        if given is not None and source.dtype.is_float:
                            self._add(source, given)

    def _pull_version(self, storage: Storage, count: int, ct: Node) -> None:
        """From a version to the one before and the value that was written, or to the leaf or base."""
        history = history_of(storage)
        assert history is not None
        self.used[storage] = None
        if count == 0:
            if history.leaf:
                known = self.leaves.get(storage)
                self.leaves[storage] = ct if known is None else ops.add(known, ct)
            elif history.freed:
                raise GradError(
                    "backward: the history of a tensor that was written was freed by an earlier backward. "
                    "Pass retain_graph=True to that one?"
                )
            elif history.base is not None and history.base.dtype is history.dtype:  # another one was not tracked
                self._add(history.base, reshape(ct, history.base.shape))
            return
        record = self.past.step(storage, count)
        if isinstance(record, Loop):
            self.ends.setdefault(record, {})[storage] = ct
            return
        none = const(ct.dtype, 0)
        view = history.own(record.view)
        if view is None:
            bits = touched(record.view, record.indices, record.mask, ct, history.rest)
            self._add_flat((storage, count - 1), ops.where(bits, none, ct))
            return
        if record.indices:
            whole = view.permute(tuple(range(view.rank)))
            inner = read_flat(whole, ct)
            if record.value is not None:
                picked = take(inner, *record.indices)
                wins = winners(view.shape, record.indices)
                wide = expand(reshape(wins, wins.shape + (1,) * (picked.rank - wins.rank)), picked.shape)
                self._add(record.value, ops.where(wide, picked, none))
            rest = put(
                "set", inner, expand(none, record.indices[0].shape + view.shape[len(record.indices) :]), *record.indices
            )
            outside = ops.where(mask_of(view, ct.size), none, ct)
            self._add_flat((storage, count - 1), ops.add(outside, spread(view, rest, ct.size)))
            return
        if record.value is not None:
            self._add(record.value, read_flat(view, ct))
        if view.nbytes < storage.nbytes:
            self._add_flat((storage, count - 1), ops.where(mask_of(view, ct.size), none, ct))

    def _pull_loop(self, loop: Loop, ends: dict[Storage, Node]) -> None:
        """From the versions after a loop to those before it."""
        for storage, ct in Workspace(loop.group, loop.pullbacks, ends, self.past.items).cotangents().items():
            self._add_flat((storage, loop.before[storage]), ct)


def sweep_back(
    root: Node, ct: Node, wanted: Container[Node | Storage] = (), *, retain: bool, differentiable: bool = False
) -> Backward:
    """A sweep from a value with its cotangent; histories are freed unless they are retained.

    Args:
        wanted: The values and storages, other than leaves, whose cotangents are to be found.
        differentiable: Whether gradients are to flow through the cotangents.
    Raises: GradError if some op has no derivative.
    """
    sweep = Backward(root, ct, wanted, differentiable=differentiable)
    sweep.run()
    if not retain:
        for storage in sweep.used:
            history = history_of(storage)
            if history is not None and not history.leaf:
                written = any(not isinstance(record, Record) or record.value is not None for record in history.records)
                history.freed = history.freed or history.base is not None or written
                history.records.clear()
                history.kept.clear()
                history.base = None
    return sweep
