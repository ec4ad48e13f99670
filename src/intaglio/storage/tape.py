"""Tapes: what rolled writes read and somebody still needs when it is overwritten, kept as the loop runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from intaglio.ir.view import View
from intaglio.ops.memory import Read
from intaglio.storage.build import copies
from intaglio.storage.journal import Elements
from intaglio.storage.storage import Storage
from intaglio.storage.writes import Item

if TYPE_CHECKING:
    from collections.abc import Iterable

    from intaglio.ir.node import Node
    from intaglio.storage.readers import Numbered
    from intaglio.storage.reroll import Sequential
    from intaglio.storage.skeleton import ReadStep
    from intaglio.storage.writes import Run


class Tapes:
    """Which reads of rolled writes are to be kept, and where they are."""

    def __init__(self) -> None:
        self._wanted: Final[dict[tuple[int, int], Node]] = {}  # by the number of a write, and a hole
        self.places: Final[dict[Node, tuple[Storage, View]]] = {}

    def want(self, lost: Iterable[Node], writes: Iterable[Numbered], older: set[Storage]) -> set[Node]:
        """Note which of some reads are those of rolled writes, as of then; gives the ones that are.

        Args:
            lost: Reads whose bytes are overwritten.
            writes: In order: the storage, the number, and the item or target.
            older: The storages of which some rolled write reads an older moment: not one among elements.
        """
        keys = {(node.op.storage, node.op.view, node.op.stamp): node for node in lost if isinstance(node.op, Read)}
        sources = {storage for storage, _, _ in keys}
        found: set[Node] = set()
        last: dict[object, int] = {}

        def note(step: ReadStep, number: int, hole: int, offset: int, stamp: int) -> None:
            node = keys.get((step.storage, View(step.dtype, step.shape, step.strides, offset), stamp))
            if node is not None and node not in found:
                found.add(node)
                self._wanted[number, hole] = node

        for storage, number, what in writes if keys else ():
            if isinstance(what, Item):
                for step, hole in what.kind.reads:
                    current = step.storage not in older or what.holes[hole + 1] >= last.get(step.storage, -1)
                    if step.storage in sources and current:
                        note(step, number, hole, *map(int, what.recorded[hole : hole + 2]))
            elif isinstance(what, Elements) and not sources.isdisjoint(what.sources()):
                for skeleton, sequences, _, columns in what.by_skeleton():
                    for step, hole in skeleton.pattern().reads:
                        if step.storage in sources:
                            for row in zip(sequences, columns[hole], columns[hole + 1], strict=True):
                                note(step, row[0], hole, *map(int, row[1:]))
            last[storage] = number
        return found

    def taped(self, run: Run) -> list[Run]:
        """Copies of what some writes of one kind read, in order: a run for each read that is wanted of any of them."""
        found: list[Run] = []
        for step, hole in run.kind.reads if self._wanted else ():
            nodes = [self._wanted.get((number, hole)) for number in run.sequences.tolist()]
            if any(node is not None for node in nodes):
                found.append(self._tape(run, step, hole, nodes))
        return found

    def _tape(self, run: Run, step: ReadStep, hole: int, nodes: list[Node | None]) -> Run:
        """Copies of what one read of some writes sees."""
        size = View.contiguous(step.dtype, step.shape).nbytes
        ref = step.storage.ref  # whose device is the CPU, of a file too
        tape = Storage(size * len(nodes), step.storage.device if ref is None else ref.device)
        places = size * np.arange(len(nodes))
        for node, place in zip(nodes, places.tolist(), strict=True):
            if node is not None:
                self.places[node] = tape, View.contiguous(step.dtype, step.shape, place)
        return copies(step, tape, places, run.whole(hole), run.whole(hole + 1))

    def beside(self, loop: Sequential) -> Sequential:
        """A loop that keeps what is wanted of what it reads, just before each write."""
        arms: list[list[Run]] = []
        for arm in loop.arms:
            made: list[Run] = []
            for run in arm:
                made.extend(replace(copy, numbers=run.numbers) for copy in self.taped(run))
                made.append(run)
            arms.append(made)
        return replace(loop, arms=arms)
