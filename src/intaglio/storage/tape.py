"""Tapes: what rolled writes read and somebody still needs when it is overwritten, kept as the loop runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from intaglio.ir.view import View
from intaglio.ops.memory import Read
from intaglio.storage.build import copies
from intaglio.storage.reroll import Item
from intaglio.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from intaglio.ir.node import Node
    from intaglio.storage.reroll import Run, Sequential
    from intaglio.storage.skeleton import Step


class Tapes:
    """Which reads of rolled writes are to be kept, and where they are."""

    def __init__(self) -> None:
        self._wanted: Final[dict[tuple[int, int], Node]] = {}  # by the id of an item, and a hole
        self.places: Final[dict[Node, tuple[Storage, View]]] = {}

    def want(self, lost: Iterable[Node], writes: Iterable[tuple[Storage, int, Item | View]]) -> set[Node]:
        """Note which of some reads are those of items, as of then; gives the ones that are.

        Args:
            lost: Reads whose bytes are overwritten.
            writes: In order: the storage, the number, and the item or (of a write that is not rolled) the target.
        """
        found: set[Node] = set()
        keys = {(node.op.storage, node.op.view, node.op.stamp): node for node in lost if isinstance(node.op, Read)}
        if not keys:
            return found
        sources = {storage for storage, _, _ in keys}
        last: dict[object, int] = {}
        for storage, number, item in writes:
            reads = item.kind.reads if isinstance(item, Item) else ()
            for step, hole in reads:
                assert isinstance(item, Item)
                if step.storage in sources and item.holes[hole + 1] >= last.get(step.storage, -1):
                    offset, stamp = item.recorded[hole : hole + 2]
                    view = View(step.dtype, step.shape, step.strides, int(offset))
                    node = keys.get((step.storage, view, int(stamp)))
                    if node is not None and node not in found:
                        found.add(node)
                        self._wanted[id(item), hole] = node
            last[storage] = number
        return found

    def taped(self, items: list[Item]) -> list[Run]:
        """Copies of what some items of one kind read, in order: a run for each read that is wanted of any of them."""
        found: list[Run] = []
        for step, hole in items[0].kind.reads:
            nodes = [self._wanted.get((id(item), hole)) for item in items] if self._wanted else []
            if any(node is not None for node in nodes):
                found.append(self._tape(items, step, hole, nodes))
        return found

    def _tape(self, items: list[Item], step: Step, hole: int, nodes: list[Node | None]) -> Run:
        """Copies of what one read of some items sees."""
        assert isinstance(step.storage, Storage)
        size = View.contiguous(step.dtype, step.shape).nbytes
        tape = Storage(size * len(items), step.storage.device)
        places = [k * size for k in range(len(items))]
        for node, place in zip(nodes, places, strict=True):
            if node is not None:
                self.places[node] = tape, View.contiguous(step.dtype, step.shape, place)
        return copies(step, tape, places, [(int(i.holes[hole]), int(i.holes[hole + 1])) for i in items])

    def beside(self, loop: Sequential) -> Sequential:
        """A loop that keeps what is wanted of what it reads, just before each write."""
        arms: list[list[Run]] = []
        for arm in loop.arms:
            made: list[Run] = []
            for run in arm:
                made.extend(replace(copy, numbers=run.numbers) for copy in self.taped(run.items))
                made.append(run)
            arms.append(made)
        return replace(loop, arms=arms)
