"""Reversed loops: the gradient of a rolled loop of writes, as one loop that runs its turns backwards.

It works in a storage of its own, the workspace: the cotangents of all storages that the loop writes or reads, one after
the other; the values that the loop read, where the gradient needs them; and room for the cotangent of one written
value. Reversed, the write `t[v] = f(s[r])` is: take g from the cotangent of t at v and leave zeros there, then add
the pullback of f at g to the cotangent of s at r.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from intaglio.engine import realize as engine
from intaglio.grad.vjp import pull_back
from intaglio.ir.node import Node, make
from intaglio.ir.view import View
from intaglio.ops.elementwise import add
from intaglio.ops.memory import Read, const
from intaglio.ops.movement import expand
from intaglio.ops.reduce import reduce
from intaglio.storage.batch import batch
from intaglio.storage.build import copies, whole_write
from intaglio.storage.history import history_of
from intaglio.storage.readers import overwritten
from intaglio.storage.reroll import Sequential
from intaglio.storage.skeleton import LARGEST, Leaf, NumberStep, OpStep, Pattern, ReadStep, Step, of_node
from intaglio.storage.storage import Storage
from intaglio.storage.writes import Gathering, Kind, Run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from intaglio.storage.columns import Integers
    from intaglio.storage.skeleton import Hole
    from intaglio.storage.writes import Column, Item

LARGEST_PULLBACK: Final = 16 * LARGEST  # steps of one statement of a reversed loop
ALIGNMENT: Final = 64  # bytes: where the parts of a workspace begin


@dataclass(frozen=True, slots=True)
class Place:
    """What a leaf of a pullback stands for: a hole of the write ("read" or "number"), its cotangent, or "old"."""

    kind: str
    hole: int = 0


CT: Final = Place("cotangent")
OLD: Final = Place("old")  # the cotangent of what a read reads, so far


@dataclass(frozen=True, slots=True)
class Share:
    """What the bytes of one read get: their cotangent so far and the read's own, as one value."""

    hole: int
    storage: Storage
    view: View  # at offset 0, each byte once
    pattern: Pattern  # its reads are of Places
    holes: tuple[Hole, ...]


@dataclass(frozen=True, slots=True)
class Pullback:
    """The gradient of one kind of write: what its reads get, and which of the values that it read that takes."""

    shares: tuple[Share, ...]
    saved: dict[int, ReadStep]  # by hole


def pullback(kind: Kind) -> Pullback | None:
    """The gradient of a kind of write; None where a read of it repeats bytes in a way that no view undoes.

    None as well where it is too large to be a part of a loop, or takes several kernels.

    Raises: GradError if some op cannot be differentiated.
    """
    leaves: dict[Node, tuple[Leaf, int]] = {}

    def leaf(step: Leaf, hole: int) -> tuple[Node, bool]:
        kind, shape = ("read", step.shape) if isinstance(step, ReadStep) else ("number", ())
        node = make(Read(Place(kind, hole), View.contiguous(step.dtype, shape), 0))
        leaves[node] = step, hole
        return node, False

    ct = make(Read(CT, View.contiguous(kind.dtype, kind.shape), 0))
    cts = pull_back(batch(kind.pattern, (), leaf), ct)
    shares: list[Share] = []
    for node, (step, hole) in leaves.items():
        history = history_of(step.storage) if isinstance(step, ReadStep) else None
        if node not in cts or history is None or step.dtype is not history.dtype or history.rest:
            continue
        assert isinstance(step, ReadStep)
        axes = list(zip(step.shape, step.strides, strict=True))
        once = [(n, s) for n, s in axes if s or n == 1]
        view = View(step.dtype, tuple(n for n, _ in once), tuple(s for _, s in once), 0)
        if view.has_internal_overlap():
            return None
        own = reduce("sum", cts[node], tuple(a for a, (n, s) in enumerate(axes) if not s and n != 1))
        found = of_node(add(make(Read(OLD, view, 0)), own), again=True, largest=LARGEST_PULLBACK)
        if found is None or found[0].is_in_parts:
            return None
        shares.append(Share(hole, step.storage, view, *found))
    used: set[object] = {step.storage for share in shares for step, _ in share.pattern.reads}
    read = [(step, hole) for step, hole in leaves.values() if isinstance(step, ReadStep)]
    saved = {hole: step for step, hole in read if Place("read", hole) in used}
    return Pullback(tuple(shares), saved)


class Workspace:
    """The reversed loop of a loop, in the making."""

    def __init__(
        self,
        loop: Sequential,
        pullbacks: Mapping[Kind, Pullback],
        cts: Mapping[Storage, Node],
        items: Mapping[int, Item],
    ) -> None:
        """Lay out the workspace, fill it, and append the loop to it.

        Args:
            cts: The flat cotangents of the storages that the loop writes, as they are after it, where there are any.
            items: The writes of the loop, by number.
        """
        self._pullbacks: Final = pullbacks
        self._count: Final = loop.count
        self._size: int = 0
        written = loop.writes.ends
        owners = dict.fromkeys([*written, *(s.storage for p in pullbacks.values() for s in p.shares)])
        self._homes: Final = {storage: self._room(storage.nbytes) for storage in owners}
        self._taken: Final = {kind: self._room(_whole(kind).nbytes) for kind in pullbacks}
        saved = [(run, hole, step) for run in loop.runs for hole, step in pullbacks[run.kind].saved.items()]
        self._seen: Final = {(id(run), hole): _seen(run, hole, items) for run, hole, _ in saved}
        self._saved: Final = {
            (id(run), hole): self._room(_whole(step).nbytes * len(self._seen[id(run), hole]))
            for run, hole, step in saved
        }
        self.storage: Final = Storage(self._size, next(iter(written)).device)
        for storage in owners:
            view = self._view(storage)
            self.storage.write(view, cts.get(storage, expand(const(view.dtype, 0), view.shape)))
        for run, hole, step in saved:
            self._save(run, hole, step)
        arms = [[made for run in reversed(arm) for made in self._reversed(run)] for arm in loop.arms]
        selector = loop.selector[::-1] if loop.selector is not None else None
        self.storage.write_loop(Sequential(loop.count, arms, selector, Gathering().take()))

    def cotangents(self) -> dict[Storage, Node]:
        """The flat cotangents of all storages, as they were before the loop."""
        return {storage: self.storage.read(self._view(storage)) for storage in self._homes}

    def _room(self, nbytes: int) -> int:
        """Where a part of so many bytes begins."""
        start = self._size
        self._size += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return start

    def _view(self, storage: Storage) -> View:
        """The cotangent of a storage, flat."""
        history = history_of(storage)
        assert history is not None
        size = storage.nbytes // history.dtype.itemsize
        return View.contiguous(history.dtype, (size,), self._homes[storage])

    # -- the values that the loop read

    def _save(self, run: Run, hole: int, step: ReadStep) -> None:
        """Fill the room for what one read of a run saw: a value a turn, or the one that it is at each."""
        storage, start, whole = step.storage, self._saved[id(run), hole], _whole(step)
        seen = self._seen[id(run), hole]
        if len(seen) == 1:
            self.storage.write(_moved(whole, start), read_of(step, *seen[0]))
            return
        if not is_there(step, seen):
            view = View.contiguous(step.dtype, (len(seen), *step.shape), start)
            self.storage.write_gathered(view, [read_of(step, *place) for place in seen])
            return
        places = start + whole.nbytes * np.arange(len(seen))
        columns = [np.array(column, np.int64) for column in zip(*seen, strict=True)]
        write = whole_write(
            copies(step, self.storage, places, *columns), Storage.read, engine.new_ref(0, storage.device)
        )
        self.storage.write(write.view, write.value)

    # -- the loop

    def _reversed(self, run: Run) -> list[Run]:
        """The statements that one write of the loop becomes."""
        kind = run.kind
        taken, whole = self._taken[kind], _whole(kind)
        written = self._homes[kind.storage] + run.offsets
        target = View(kind.dtype, kind.shape, kind.strides, 0)
        out = [
            self._run(run, whole, taken, make(Read(OLD, target, 0)), {OLD: written}),
            self._run(run, target, written, expand(const(kind.dtype, 0), kind.shape), {}),
        ]
        for share in self._pullbacks[kind].shares:
            read = self._homes[share.storage] + run.whole(share.hole)
            out.append(self._statement(run, share.view, read, share.pattern, share.holes, {CT: taken, OLD: read}))
        return out

    def _run(
        self, run: Run, view: View, places: Integers | int, value: Node, reads: dict[Place, Integers | int]
    ) -> Run:
        """A statement of the reversed loop."""
        found = of_node(value, again=True)
        assert found is not None
        return self._statement(run, view, places, *found, reads)

    def _statement(
        self,
        run: Run,
        view: View,
        places: Integers | int,
        pattern: Pattern,
        holes: tuple[Hole, ...],
        reads: dict[Place, Integers | int],
    ) -> Run:
        """A statement of the reversed loop: its pattern over the workspace, its columns backwards."""
        steps: list[Step] = []
        columns: list[Column] = []
        count = len(run.numbers)
        given = iter(holes)
        for step in pattern.steps:
            if isinstance(step, OpStep):
                steps.append(step)
            elif isinstance(step, NumberStep):
                steps.append(step)
                columns.append([next(given)] * count)
            else:
                place, _ = step.storage, (next(given), next(given))
                assert isinstance(place, Place)
                if place.kind == "number":
                    steps.append(NumberStep(step.dtype))
                    columns.append(run.column(place.hole)[::-1])
                    continue
                steps.append(ReadStep(step.dtype, step.shape, step.strides, self.storage))
                where = reads[place] if place in reads else self._places(run, place.hole, step)
                columns += (_backwards(where, count), np.zeros(count, np.int64))
        kind = Kind(self.storage, view.dtype, view.shape, view.strides, Pattern(tuple(steps)), ())
        numbers = self._count - 1 - run.numbers[::-1]
        return Run(kind, numbers, numbers, _backwards(places, count), columns)

    def _places(self, run: Run, hole: int, step: ReadStep) -> Integers | int:
        """Where the values that one read of a run saw are kept."""
        start = self._saved[id(run), hole]
        count = len(self._seen[id(run), hole])
        return start if count == 1 else start + _whole(step).nbytes * np.arange(count)


def _backwards(places: Integers | int, count: int) -> Integers:
    """Places in the order of a reversed loop."""
    return np.full(count, places) if isinstance(places, int) else places[::-1]


def _whole(what: Kind | ReadStep) -> View:
    """A contiguous view for a value that is written or read."""
    return View.contiguous(what.dtype, what.shape)


def _moved(view: View, offset: int) -> View:
    """The same view at an offset."""
    return View(view.dtype, view.shape, view.strides, offset)


def _seen(run: Run, hole: int, items: Mapping[int, Item]) -> list[tuple[int, int]]:
    """The offset and stamp of a read at each turn, as recorded; one, if they are the same at all."""
    recorded = [items[number].recorded for number in run.sequences.tolist()]
    found = [(int(holes[hole]), int(holes[hole + 1])) for holes in recorded]
    return found[:1] if all(place == found[0] for place in found) else found


def read_of(step: ReadStep, offset: int, stamp: int) -> Node:
    """What a read of a loop saw."""
    return step.storage.read_past(View(step.dtype, step.shape, step.strides, offset), stamp)


def is_there(step: ReadStep, seen: list[tuple[int, int]]) -> bool:
    """Whether the bytes that a read saw are still what they were, at each turn."""
    storage = step.storage
    if all(stamp == storage.sequence for _, stamp in seen):
        return True
    nodes = [read_of(step, *place) for place in seen]
    return all(node.place is None for node in nodes) and not overwritten(storage, storage.sequence, nodes)
