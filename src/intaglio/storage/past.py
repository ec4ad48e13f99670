"""The past of a value: the writes that it depends on, as few steps: whole-array writes, rolled loops, single ones."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.core.errors import GradError
from intaglio.engine import realize as engine
from intaglio.ir.node import substitute, toposort
from intaglio.ops.elementwise import Detach
from intaglio.ops.memory import Read
from intaglio.ops.viewed import view_of
from intaglio.storage import reroll
from intaglio.storage.batch import supports
from intaglio.storage.build import whole_write
from intaglio.storage.history import Record, history_of
from intaglio.storage.journal import Elements
from intaglio.storage.readers import outdated, renew, stale
from intaglio.storage.reverse import pullback
from intaglio.storage.scalars import cast_pattern, scalar_node
from intaglio.storage.skeleton import is_small, of_node
from intaglio.storage.storage import Storage
from intaglio.storage.writes import Gathering, Item, Kind, is_on_grid

if TYPE_CHECKING:
    from collections.abc import Container

    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node
    from intaglio.storage.readers import Numbered
    from intaglio.storage.reverse import Pullback
    from intaglio.storage.skeleton import Hole, Pattern
    from intaglio.storage.writes import Run


@dataclass(eq=False, slots=True)
class Loop:
    """Writes of one or more storages that are pulled back together, as a loop."""

    group: reroll.Sequential
    pullbacks: dict[Kind, Pullback]
    before: dict[Storage, int] = field(default_factory=dict)  # the versions of what it writes and reads when it starts


Step: TypeAlias = Record | Loop


@dataclass(slots=True)
class Versions:
    """The steps that make a storage what it is, in order, and the numbers of the first write of each."""

    steps: list[Step] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)


class Past:
    """The steps of each storage that a value depends on, no further than it does.

    Version k of a storage is what it is after k of its steps.
    """

    def __init__(self, root: Node, *, loops: bool = True) -> None:
        """Collect the writes, then roll them.

        Args:
            loops: Whether writes that depend on one another may be one loop; else each is a step.
        Attributes:
            items: The writes that can be rolled, by number.
        """
        self.items: Final[dict[int, Item]] = {}
        self._versions: Final[dict[Storage, Versions]] = {}
        self._stamps: Final[dict[Storage, int]] = {}
        self._work: Final[list[Storage]] = []
        self._seen: Final[set[Node]] = set()
        self._reads: Final[dict[Storage, list[Node]]] = {}  # those that are not a rolled write's own
        self._kinds: Final[dict[tuple[object, ...], Kind]] = {}
        self._found: Final[list[tuple[Storage, Record | Item]]] = []
        self._records: Final[dict[int, Record]] = {}  # those of rolled writes that were not rows, by number
        self._reached: Final[dict[Node, int]] = {}
        self._loops: Final = loops
        self._collect(root)
        self._roll()

    def step(self, storage: Storage, version: int) -> Step:
        """The step that makes a version."""
        return self._versions[storage].steps[version - 1]

    def version(self, storage: Storage, stamp: int) -> int:
        """The version that a read as of a stamp sees: no step that overwrites what it reads is begun and unfinished."""
        found = self._versions.get(storage)
        return bisect_right(found.starts, stamp) if found is not None else 0

    def newest(self, storage: Storage) -> int | None:
        """The version of a storage as it is now; None where the value depends on none after its last write."""
        history = history_of(storage)
        last = history.records[-1].sequence if history is not None and history.records else 0
        return self.version(storage, last) if last <= self._stamps.get(storage, -1) else None

    # -- which writes

    def _collect(self, root: Node) -> None:
        """Find the writes that a value depends on."""
        self._follow(root)
        taken: dict[Storage, int] = {}
        while self._work:
            storage = self._work.pop()
            history = history_of(storage)
            assert history is not None
            stamp, done = self._stamps[storage], taken.get(storage, 0)
            for record, before in history.between(done, stamp):
                if isinstance(record, Record):
                    self._take(storage, record, before)
                else:
                    self._take_elements(storage, record)
            taken[storage] = stamp
        self._found.sort(key=lambda found: found[1].sequence)

    def _need(self, storage: object, stamp: int) -> None:
        """Need a storage as of a stamp, if it has a history."""
        history = history_of(storage) if isinstance(storage, Storage) else None
        if history is None:
            return
        assert isinstance(storage, Storage)
        known = self._stamps.get(storage)
        if known is None and history.base is not None:
            self._follow(history.base)
        if known is None or known < stamp:
            self._stamps[storage] = stamp
            self._work.append(storage)

    def _follow(self, root: Node) -> None:
        """Need all that a value reads."""
        stack = [root]
        while stack:
            node = stack.pop()
            if node in self._seen:
                continue
            self._seen.add(node)
            match node.op:
                case Read(storage=Storage() as storage, stamp=stamp):
                    self._reads.setdefault(storage, []).append(node)
                    self._need(storage, stamp)
                case Detach():
                    pass
                case _:
                    stack.extend(node.src)

    def _take(self, storage: Storage, record: Record, before: int | None) -> None:
        """Need all that a write reads; `before` is the number of the write before it."""
        item = self._item(storage, record, before)
        if item is None:
            self._found.append((storage, record))
            if record.value is not None:
                self._follow(record.value)
            return
        self._found.append((storage, item))
        self.items[item.sequence] = item
        self._records[item.sequence] = record
        for step, hole in item.kind.reads:
            self._need(step.storage, int(item.holes[hole + 1]))

    def _take_elements(self, storage: Storage, elements: Elements) -> None:
        """Need all that rows read."""
        for skeleton, sequences, offsets, columns in elements.by_skeleton():
            kind = self._kind(storage, elements.dtype, (), (), cast_pattern(skeleton.pattern(), elements.dtype))
            rows = zip(*columns, strict=True) if columns else repeat(())
            items = [Item(n, kind, at, row) for n, at, row in zip(sequences, offsets, rows, strict=False)]
            self._found.extend((storage, item) for item in items)
            self.items.update(zip(sequences, items, strict=True))
            for step, hole in kind.reads:
                self._need(step.storage, int(max(columns[hole + 1])))

    def _item(self, storage: Storage, record: Record, before: int | None) -> Item | None:
        """A write in the form in which it can be rolled, or None."""
        history = history_of(storage)
        view = record.view
        if history is None or record.value is None or record.indices or history.own(view) is None:
            return None
        found = _rollable(record.value)
        plain = record.value
        while (
            found is not None and before is not None and any(_is_temporary(step.storage) for step, _ in found[0].reads)
        ):
            inner = _without_temporaries(plain, before)
            deeper = _rollable(inner) if inner is not plain else None
            if deeper is None:
                break
            plain, found = inner, deeper
        if found is None or not is_on_grid(view, *found):
            return None
        pattern, holes = found
        kind = self._kind(storage, view.dtype, view.shape, view.strides, pattern)
        return Item(record.sequence, kind, view.offset, holes)

    def _kind(
        self, storage: Storage, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], pattern: Pattern
    ) -> Kind:
        """What writes of one storage, form and pattern have in common."""
        key = (storage, shape, strides, pattern)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = Kind(storage, dtype, shape, strides, pattern, tuple(pattern.reads))
        return kind

    # -- as steps

    def _roll(self) -> None:
        """All writes as steps, those that can be rolled together; none on both sides of a read that matters."""
        moments = self._moments()
        items: list[Item] = []
        last: dict[Storage, int] = {}
        prior: dict[Storage, int] = {}

        def emit() -> None:
            for group in reroll.roll(Gathering(items).take(), prior):
                self._group(group)
            items.clear()
            prior.update(last)
            last.clear()

        for storage, what in self._found:
            item = what if isinstance(what, Item) else None
            if item is not None and items and any(self._begins(s, items[0].sequence, last) for s in _touched(item)):
                emit()  # what version 0 of a storage is made from is no part of a loop that starts from that
            seen, before = moments.get(storage), last.get(storage)
            if seen and before is not None:
                place = bisect_left(seen, before)
                if place < len(seen) and seen[place] < what.sequence:
                    emit()
            if isinstance(what, Item):
                items.append(what)
                last[storage] = what.sequence
            else:
                emit()
                self._add(storage, what, what.sequence)
                prior[storage] = what.sequence
        emit()

    def _begins(self, storage: object, first: int, written: Container[object]) -> bool:
        """Whether version 0 of a storage is used first, and depends on a write of this number or a later one."""
        history = history_of(storage) if isinstance(storage, Storage) else None
        if history is None or history.base is None or storage in self._versions or storage in written:
            return False
        return self._reach(history.base) >= first

    def _reach(self, root: Node) -> int:
        """The number of the last write that a value depends on without a version of any storage in between."""
        found = self._reached
        stack = [root]
        while stack:
            node = stack[-1]
            newest, below = _beneath(node)
            missing = [source for source in below if source not in found]
            stack.extend(missing)
            if not missing:
                found[stack.pop()] = max([newest, *(found[source] for source in below)])
        return found[root]

    def _moments(self) -> dict[Storage, list[int]]:
        """The moments of each storage that some read needs to be the end of a step.

        They are those of reads whose bytes are overwritten before they are used (or at all, if what uses them is no
        rolled write), and of reads in versions 0.
        """
        all_writes: list[Numbered] = [(s, w.sequence, w if isinstance(w, Item) else w.view) for s, w in self._found]
        found = renew(all_writes, outdated(all_writes))
        for source, stamp in self._founding():
            found.setdefault(source, set()).add(stamp)
        for storage, reads in self._reads.items():
            history = history_of(storage)
            if history is not None and history.records:
                moments = sorted(
                    {*(node.op.stamp for node in reads if isinstance(node.op, Read)), self._stamps[storage]}
                )
                past = [record for record, _ in history.between(0, self._stamps[storage])]
                parts = [part for p in past for part in (p.cut(moments) if isinstance(p, Elements) else (p,))]
                writes = [(part.sequence, part.view if isinstance(part, Record) else part) for part in parts]
                again = stale(storage.nbytes, writes, reads)
                found.setdefault(storage, set()).update(node.op.stamp for node in again if isinstance(node.op, Read))
        return {storage: sorted(stamps) for storage, stamps in found.items()}

    def _founding(self) -> list[tuple[Storage, int]]:
        """The storage and stamp of the reads in version 0 of what rolled writes read (and in version 0 of those)."""
        found: list[tuple[Storage, int]] = []
        known: set[Storage] = set()
        seen: set[Node] = set()
        work = [step.storage for kind in self._kinds.values() for step, _ in kind.reads]
        while work:
            storage = work.pop()
            history = history_of(storage) if storage not in known else None
            known.add(storage)
            stack = [history.base] if history is not None and history.base is not None else []
            while stack:
                node = stack.pop()
                if node in seen:
                    continue
                seen.add(node)
                match node.op:
                    case Read(storage=Storage() as source, stamp=stamp):
                        found.append((source, stamp))
                        work.append(source)
                    case _:
                        stack.extend(node.src)
        return found

    def _add(self, storage: Storage, step: Step, start: int) -> None:
        """Append a step of a storage; if it is a loop, note which version it starts from."""
        found = self._versions.setdefault(storage, Versions())
        if isinstance(step, Loop):
            step.before[storage] = len(found.steps)
        found.steps.append(step)
        found.starts.append(start)

    def _group(self, group: reroll.Group) -> None:
        """One group as steps."""
        match group:
            case reroll.Single(item=item):
                self._add(item.storage, self._record(item), item.sequence)
            case reroll.Parallel(runs=runs, writes=writes) if all(_is_unchanged(run) for run in runs):
                starts = writes.starts
                for run in runs:
                    storage = run.kind.storage
                    self._add(storage, _batched(run), starts[storage])
            case reroll.Parallel(writes=writes):
                for rolled in reroll.sequential(writes):
                    self._group(rolled)
            case reroll.Sequential(writes=writes):
                loop = self._loop(group) if self._loops else None
                if loop is None:
                    for item in writes.items():
                        self._group(reroll.Single(item, "its gradient is no loop"))
                    return
                for storage, start in writes.starts.items():
                    self._add(storage, loop, start)

    def _record(self, item: Item) -> Record:
        """A write that is by itself after all."""
        found = self._records.get(item.sequence)
        if found is not None:
            return found
        return Record(item.sequence, item.view, scalar_node(item.kind.pattern, item.recorded, item.kind.dtype))

    def _loop(self, group: reroll.Sequential) -> Loop | None:
        """A loop, if its gradient is one: each read sees the writes before it, and one version of what none writes."""
        if not reroll.is_current(group.writes):
            return None
        pullbacks: dict[Kind, Pullback] = {}
        for kind in {run.kind: None for run in group.runs}:
            try:
                found = pullback(kind)
            except GradError:  # raised by the write itself, if a cotangent comes to it
                return None
            if found is None:
                return None
            pullbacks[kind] = found
        loop = Loop(group, pullbacks)
        written = group.writes.ends
        for run in group.runs:
            for share in pullbacks[run.kind].shares:
                if share.storage in written:
                    continue
                seen = {self.version(share.storage, stamp) for stamp in set(run.whole(share.hole + 1).tolist())}
                seen.add(loop.before.get(share.storage, min(seen)))
                if len(seen) > 1:
                    return None
                loop.before[share.storage] = seen.pop()
        return loop


def _rollable(value: Node) -> tuple[Pattern, tuple[Hole, ...]] | None:
    """The pattern and holes of a value, if it can be a part of a loop."""
    found = of_node(value, again=True)
    return found if found is not None and supports(found[0]) else None


def _touched(item: Item) -> list[object]:
    """The storages that a write writes and reads."""
    return [item.storage, *(step.storage for step, _ in item.kind.reads)]


def _beneath(node: Node) -> tuple[int, tuple[Node, ...]]:
    """The number of the newest write that a value reads (0 if none), and the values that it is made from."""
    match node.op:
        case Read(storage=Storage() as storage, stamp=stamp):
            history = history_of(storage)
            if history is None:
                return 0, ()
            return history.newest(stamp), (history.base,) if history.base is not None else ()
        case Detach():
            return 0, ()
        case _:
            return 0, node.src


def _is_temporary(storage: object) -> bool:
    """Whether a storage is a tracked value that was never written."""
    history = history_of(storage) if isinstance(storage, Storage) else None
    return history is not None and history.base is not None and not (history.leaf or history.records)


def _without_temporaries(value: Node, before: int) -> Node:
    """A value with reads of temporaries as what these are, if they were made after a write: for this turn of a loop."""
    found: dict[Node, Node] = {}
    for node in toposort((value,)):
        match node.op:
            case Read(storage=Storage() as storage, view=view) if _is_temporary(storage):
                history = history_of(storage)
                assert history is not None
                assert history.base is not None
                if history.began > before and is_small(history.base):
                    found[node] = view_of(view, history.base)
            case _:
                pass
    return substitute((value,), found)[0] if found else value


def _is_unchanged(run: Run) -> bool:
    """Whether everything that a run reads is still as it was read."""
    return all(
        step.storage is not run.kind.storage and bool((run.whole(hole + 1) == step.storage.sequence).all())
        for step, hole in run.kind.reads
    )


def _batched(run: Run) -> Record:
    """A run of writes as one."""
    storage = run.kind.storage
    ref = storage.ref if storage.ref is not None else engine.new_ref(storage.nbytes, storage.device)
    write = whole_write(run, lambda source, view: source.read(view), ref)
    return Record(0, write.view, write.value, write.indices)
