"""Histories: the writes of a storage as versions, so that gradients flow through them and the views that read them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from intaglio.core.errors import GradError
from intaglio.engine import realize as engine
from intaglio.grad.vjp import mask_of, pull, read_flat, spread, winners
from intaglio.ir.node import Node
from intaglio.ops import elementwise as ops
from intaglio.ops.elementwise import Detach
from intaglio.ops.memory import Read, const, put, take
from intaglio.ops.movement import expand, reshape
from intaglio.storage import reroll
from intaglio.storage.batch import supports
from intaglio.storage.build import whole_write
from intaglio.storage.skeleton import of_node
from intaglio.storage.storage import Storage
from intaglio.storage.writes import Gathering, Item, Kind, Run

if TYPE_CHECKING:
    from intaglio.core.dtypes import DType
    from intaglio.ir.view import View


@dataclass(slots=True)
class Record:
    """One write: where, and the value if gradients flow to it (else what it covers gets none)."""

    sequence: int
    view: View
    value: Node | None
    indices: tuple[Node, ...] = ()


@dataclass(slots=True)
class History:
    """What a tracked storage was: version 0, and the writes since. A leaf accumulates; others pass on.

    `since` is the stamp of version 0: reads as of an earlier stamp see what was never tracked.
    """

    dtype: DType
    base: Node | None
    since: int
    leaf: bool = False
    freed: bool = False  # whether tracked writes or a tracked base were let go by a backward sweep
    records: list[Record] = field(default_factory=list)


def history_of(storage: Storage) -> History | None:
    """The history of a storage, if gradients flow through it."""
    found = storage.history
    return found if isinstance(found, History) else None


def track(storage: Storage, dtype: DType, *, leaf: bool = False, base: Node | None = None) -> History:
    """Begin the history of a storage."""
    found = history_of(storage)
    if found is None:
        found = History(dtype, base, storage.sequence, leaf)
        storage.history = found
        storage.close()
    elif leaf:
        found.leaf = True
    return found


class Backward:
    """One reverse sweep: versions and values in reverse order of dependence."""

    def __init__(self, root: Node, ct: Node) -> None:
        self.root: Final = root
        self.cts: Final[dict[Node, Node]] = {root: ct}
        self.flat: Final[dict[tuple[Storage, int], Node]] = {}  # the cotangent of a version, flat
        self.leaves: Final[dict[Storage, Node]] = {}  # flat
        self.used: Final[dict[Storage, None]] = {}
        self._compact: Final[dict[Storage, list[Record]]] = {}

    def run(self) -> dict[Storage, Node]:
        """The flat cotangent of each leaf."""
        for vertex in reversed(self._order()):
            if isinstance(vertex, Node):
                ct = self.cts.pop(vertex, None)
                if ct is not None:
                    self._pull_node(vertex, ct)
            else:
                ct = self.flat.pop(vertex, None)
                if ct is not None:
                    self._pull_version(*vertex, ct)
        return self.leaves

    # -- order

    def records(self, storage: Storage) -> list[Record]:
        """The writes of a storage, runs of like ones as one."""
        found = self._compact.get(storage)
        if found is None:
            history = history_of(storage)
            assert history is not None
            found = self._compact[storage] = _rolled(storage, history)
        return found

    def version(self, storage: Storage, stamp: int) -> int:
        """How many (compacted) writes a read as of a stamp sees."""
        records = self.records(storage)
        count = len(records)
        while count and records[count - 1].sequence > stamp:
            count -= 1
        return count

    def _sources(self, vertex: Node | tuple[Storage, int]) -> list[Node | tuple[Storage, int]]:
        """What a value or version is made from."""
        if isinstance(vertex, Node):
            match vertex.op:
                case Read(storage=Storage() as storage, stamp=stamp):
                    history = history_of(storage)
                    if history is None:
                        return []
                    return [(storage, self.version(storage, stamp))]
                case Detach():
                    return []
                case _:
                    return list(vertex.src)
        storage, count = vertex
        history = history_of(storage)
        assert history is not None
        if count == 0:
            return [history.base] if history.base is not None else []
        record = self.records(storage)[count - 1]
        return [(storage, count - 1), *([record.value] if record.value is not None else [])]

    def _order(self) -> list[Node | tuple[Storage, int]]:
        """Every value and version, what it is made from first."""
        order: list[Node | tuple[Storage, int]] = []
        seen: set[Node | tuple[Storage, int]] = set()
        stack: list[tuple[Node | tuple[Storage, int], bool]] = [(self.root, False)]
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

    def _add_flat(self, key: tuple[Storage, int], ct: Node) -> None:
        """One more contribution to a version's cotangent."""
        known = self.flat.get(key)
        self.flat[key] = ct if known is None else ops.add(known, ct)

    def _pull_node(self, node: Node, ct: Node) -> None:
        """From a value to its inputs, or to the version that it reads."""
        match node.op:
            case Read(storage=Storage() as storage, view=view, stamp=stamp):
                history = history_of(storage)
                if history is not None and view.dtype is history.dtype:
                    size = storage.nbytes // view.dtype.itemsize
                    self._add_flat((storage, self.version(storage, stamp)), spread(view, ct, size))
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
            elif history.base is not None and history.base.dtype.is_float:
                self._add(history.base, reshape(ct, history.base.shape))
            return
        record = self.records(storage)[count - 1]
        none = const(ct.dtype, 0)
        view = record.view
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


def _rolled(storage: Storage, history: History) -> list[Record]:
    """Records with runs of like, independent ones as one whole-array write each."""
    out: list[Record] = []
    kinds: dict[tuple[object, ...], Kind] = {}
    items: list[Item] = []
    by_number: dict[int, Record] = {}

    def emit() -> None:
        for group in reroll.roll(Gathering(items).take(), {}):
            match group:
                case reroll.Single(item=item):
                    out.append(by_number[item.sequence])
                case reroll.Parallel(runs=runs, ends=ends):
                    for run in runs:
                        if len(run.sequences) > 1 and _unchanged(storage, run):
                            out.append(_batched(storage, run, ends[storage]))
                        else:
                            out.extend(by_number[number] for number in run.sequences.tolist())
                case reroll.Sequential(runs=runs):
                    known = {id(record) for record in out}
                    out.extend(by_number[i.sequence] for i in items if id(by_number[i.sequence]) not in known)
        items.clear()

    moments = sorted(
        {read.op.stamp for reference in storage.live if (read := reference()) and isinstance(read.op, Read)}
    )
    for record in history.records:
        found = of_node(record.value, again=True) if record.value is not None and not record.indices else None
        if found is None or not supports(found[0]):
            emit()
            out.append(record)
            continue
        view = record.view
        key = (view.dtype, view.shape, view.strides, found[0])
        kind = kinds.get(key)
        if kind is None:
            kind = kinds[key] = Kind(storage, view.dtype, view.shape, view.strides, found[0], tuple(found[0].reads))
        item = Item(record.sequence, kind, view.offset, found[1])
        if items:  # a read that sees the writes so far and not this one needs a version between them
            place = bisect_left(moments, items[-1].sequence)
            if place < len(moments) and moments[place] < record.sequence:
                emit()
        by_number[item.sequence] = record
        items.append(item)
    emit()
    out.sort(key=lambda record: record.sequence)
    return out


def _unchanged(storage: Storage, run: Run) -> bool:
    """Whether everything that a run reads is still as it was read."""
    return all(
        isinstance(step.storage, Storage)
        and step.storage is not storage
        and all(stamp == step.storage.sequence for stamp in run.column(hole + 1))
        for step, hole in run.kind.reads
    )


def _batched(storage: Storage, run: Run, end: int) -> Record:
    """One run as one record."""
    ref = storage.ref if storage.ref is not None else engine.new_ref(storage.nbytes, storage.device)
    write = whole_write(run, lambda source, view: source.read(view), ref)
    return Record(end, write.view, write.value, write.indices)


def leaf_gradients(root: Node, ct: Node, *, retain: bool) -> dict[Storage, Node]:
    """The flat cotangents of the leaves that a value depends on; histories are freed unless they are retained.

    Raises: GradError if some op has no derivative.
    """
    sweep = Backward(root, ct)
    found = sweep.run()
    if not retain:
        for storage in sweep.used:
            history = history_of(storage)
            if history is not None and not history.leaf:
                written = any(record.value is not None for record in history.records)
                history.freed = history.freed or history.base is not None or written
                history.records.clear()
                history.base = None
                history.since = storage.sequence
    return found
