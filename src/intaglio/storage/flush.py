"""The flush: the slice of the journal that some values need, trimmed, re-rolled, resolved to buffers and run."""

from __future__ import annotations

import functools
import itertools
import sys
import weakref
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import InternalError
from intaglio.engine import realize as engine
from intaglio.engine.plan import Plan, Plans
from intaglio.ir.node import Node, drain, make, rebuild, toposort
from intaglio.ir.view import View
from intaglio.ops.elementwise import Cast, Detach
from intaglio.ops.loop import ASSIGN, Assign, Kernel
from intaglio.ops.memory import Buffer, BufferRef, Read, buffer, const
from intaglio.ops.movement import expand
from intaglio.ops.reduce import reduce
from intaglio.schedule.kernels import PlannedKernel
from intaglio.schedule.program import Program, ReadAt, Write, read_at
from intaglio.storage import checks, reroll, trim
from intaglio.storage.aside import set_aside
from intaglio.storage.batch import batch, supports
from intaglio.storage.build import Turns, copies, whole_write
from intaglio.storage.journal import AnyEntry, Elements, Entry, GatherEntry, LoopEntry, Segment, first_of
from intaglio.storage.kept import keep_everything, keep_overwritten
from intaglio.storage.readers import living, outdated, overwritten, renew, target
from intaglio.storage.skeleton import Pattern, Step, of_node
from intaglio.storage.storage import Storage, pending
from intaglio.storage.tape import Tapes
from intaglio.storage.temporaries import made_in_turns, seen_through, still_read
from intaglio.storage.viewed import view_of
from intaglio.storage.writes import Gathering, Item, Kind, Run, Writes, offsets_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from intaglio.core.dtypes import DType
    from intaglio.storage.build import Reader
    from intaglio.storage.checks import Check
    from intaglio.storage.readers import Numbered
    from intaglio.storage.skeleton import Hole

plans: Final = Plans()
scalars: Final[list[weakref.ref[ScalarHandle]]] = []  # handles of scalar expressions not yet nodes


class ScalarHandle:
    """What a tensor must offer that may hold a scalar expression as skeleton and holes."""

    __slots__ = ()

    def to_node(self) -> Node:
        """The expression as a node (whose reads are registered with their storages)."""
        raise NotImplementedError


def flush(storages: Iterable[Storage] = (), nodes: Sequence[Node] = ()) -> list[BufferRef]:
    """Bring storages up to date and compute nodes; gives the buffer of each node, whole and row-major."""
    with engine.lock:
        wanted = list(storages)
        return Flush(wanted, list(nodes), _needed(wanted, nodes)).run()


def partition(storages: Iterable[Storage], nodes: Sequence[Node]) -> tuple[Pending, list[BufferRef]]:
    """As flush, but the kernels run when a value is needed: (they, the buffer that each node will be in)."""
    with engine.lock:
        wanted = list(storages)
        builder = Flush(wanted, list(nodes), _needed(wanted, nodes))
        outputs = builder.build()
        return builder.postpone(outputs)


def _needed(storages: Sequence[Storage], nodes: Sequence[Node]) -> Slice:
    """The entries that some values need, with their positions checked, and without those that nobody will see."""
    part = Slice(storages, nodes)
    while part.checks:
        _verify(part.checks)
        part = Slice(storages, nodes)
    stamps = trim.doubtful(part.stamps)
    if stamps:
        register_scalars()
        part.release()
        if trim.trim(stamps):
            del part  # and with it the storages that payloads held which are gone
            trim.trim(stamps)
            return Slice(storages, nodes)
    return part


def register_scalars() -> None:
    """Make nodes of the scalar expressions that live, so that their storages know what they read."""
    for reference in list(scalars):
        handle = reference()
        if handle is not None:
            handle.to_node()
    scalars.clear()


def pin(storage: Storage) -> None:
    """Share a storage's bytes with the outside from now on: they are up to date, and stay where they are.

    What was read of them before is computed first, since the outside may write at any time.
    """
    with engine.lock:
        register_scalars()
        flush(list(storage.readers or ()))
        flush([storage])
        keep_everything(storage)
        living = [node for node in (reference() for reference in storage.live) if node is not None]
        readers = {node: node for node in living if node.place is None}  # what others hold -> what it is now
        origin = storage.origin() if storage.origin is not None else None
        if origin is not None and origin.place is not None and origin.place[0] is storage.ref:
            readers[origin] = storage.read(origin.place[1])
        for node, ref in zip(readers, flush((), list(readers.values())), strict=True):
            node.place = ref, View.contiguous(node.dtype, node.shape)
        storage.origin = None
        storage.pin()


@dataclass(eq=False, slots=True)
class Pending:
    """Kernels that were partitioned and have not run."""

    plan: Plan
    nodes: dict[BufferRef, Node]  # a buffer that they write -> ASSIGN(BUFFER, KERNEL)
    done: bool = False

    @property
    def touched(self) -> set[BufferRef]:
        """The buffers that they read or write."""
        return {ref for kernel in self.plan.kernels for ref in kernel.buffers}

    def run(self) -> None:
        """Run them, once."""
        if not self.done:
            engine.execute(self.plan, self._finish)

    def _finish(self) -> None:
        """Note that they have run."""
        self.done = True


postponed: Final[list[Pending]] = []  # in the order in which they must run


def waits_for(ref: BufferRef) -> bool:
    """Whether kernels that have not run write (or read) a buffer."""
    return any(ref in held.touched for held in postponed)


def assign_of(ref: BufferRef) -> Node | None:
    """ASSIGN(BUFFER, KERNEL) of a buffer that a kernel which has not run writes."""
    for held in reversed(postponed):
        if ref in held.nodes:
            return held.nodes[ref]
    return None


def _verify(found: Iterable[tuple[Node, Check, tuple[Storage, Entry] | None]]) -> None:
    """Test computed positions, as `_verify_one` does."""
    for wrapped, check, owner in found:
        _verify_one(wrapped, check, owner)


def _verify_one(wrapped: Node, check: Check, owner: tuple[Storage, Entry] | None) -> None:
    """Test computed positions; a write through ones that are out of range is dropped, and the error is raised.

    Raises: IndexRangeError if a position is out of range.
    """
    bad = check.bad
    flag = reduce("max", bad, tuple(range(bad.rank)))
    (ref,) = flush((), (flag,))
    if not engine.buffer_of(ref).view()[0]:
        checks.pending.pop(wrapped, None)  # positions that fail stay to be checked, by whatever asks for them next
        return
    flags, positions = (bytes(engine.buffer_of(r).view()) for r in flush((), (bad, check.index)))
    size = check.index.dtype.itemsize
    place = flags.index(1) * size
    if owner is not None:
        storage, entry = owner
        storage.log.remove(entry)
        if not storage.log:
            pending.discard(storage)
    raise check.error(int.from_bytes(positions[place : place + size], "little", signed=True))


def _run_postponed(touched: set[BufferRef]) -> None:
    """Run the postponed kernels that touch some buffers, and those that these need, in order."""
    if not postponed:
        return
    chosen: list[Pending] = []
    for held in reversed(postponed):
        mine = held.touched
        if mine & touched:
            touched = touched | mine
            chosen.append(held)
    for held in reversed(chosen):
        held.run()
        postponed.remove(held)


@dataclass(slots=True)
class Marks:
    """The groups of writes to a storage that a program has made: their first and last numbers, and the next statement.

    In order. Numbers between two groups are those of writes that were not asked for any more.
    """

    firsts: list[int] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


class Slice:
    """Which entries are needed: for each storage the last stamp, closed over what their payloads read."""

    def __init__(self, storages: Iterable[Storage], nodes: Iterable[Node]) -> None:
        self.stamps: dict[Storage, int] = {}
        self._work: list[tuple[Storage, int]] = []
        self._seen: set[Node] = set()
        self.bases: set[Storage] = set()  # whose versions 0 are yet to be computed
        self.checks: list[tuple[Node, Check, tuple[Storage, Entry] | None]] = []
        for storage in storages:
            storage.close()
            self._need(storage, storage.sequence)
        for node in nodes:
            self._follow(node)
        self._taken: dict[Storage, int] = {}
        self._touched: set[Storage] = set()  # whose readers are not yet looked for
        while self._work:
            storage, stamp = self._work.pop()
            self._enter(storage, stamp)
            if not self._work:
                self._readers()

    def _need(self, storage: Storage, stamp: int) -> None:
        """Need a storage as of a stamp."""
        if self.stamps.get(storage, -1) < stamp:
            self.stamps[storage] = stamp
            self._work.append((storage, stamp))
        if storage.base is not None and storage not in self.bases:
            self.bases.add(storage)
            self._follow(storage.base)

    def _follow(self, root: Node, owner: tuple[Storage, Entry] | None = None) -> None:
        """Need all that a node reads; note positions that are to be checked."""
        stack = [root]
        while stack:
            node = stack.pop()
            if node in self._seen or node.place is not None:
                continue
            self._seen.add(node)
            check = checks.pending.get(node)
            if check is not None:
                self.checks.append((node, check, owner))
            match node.op:
                case Read(storage=Storage() as storage, stamp=stamp):
                    self._need(storage, stamp)
                case _:
                    stack.extend(node.src)

    def _enter(self, storage: Storage, stamp: int) -> None:
        """Need all that the entries up to a stamp read."""
        if stamp < self.stamps[storage]:
            return  # a later one is asked for as well
        start = self._taken.get(storage, 0)
        log = storage.log
        place = start
        while place < len(log) and first_of(log[place]) <= stamp:
            entry = log[place]
            self._touched.add(storage)
            match entry:
                case Entry(value=value, indices=indices):
                    self._follow(value, (storage, entry))
                    for index in indices:
                        self._follow(index, (storage, entry))
                case Elements():
                    part = entry.until(stamp)
                    for source in part.sources():
                        if source is not storage:
                            self._need(source, min(part.sequence, source.sequence))
                    if entry.sequence > stamp:
                        break
                case GatherEntry(reads=reads):
                    for read in reads:
                        self._follow(read)
                case Segment() | LoopEntry():
                    pass
            place += 1
        self._taken[storage] = place

    def _readers(self) -> None:
        """Join pending elements that read what the slice overwrites, as it was before: they run with it."""
        found: dict[Storage, dict[Storage, int]] = {}
        for source in self._touched:
            for storage in list(source.readers or ()):
                found.setdefault(storage, {})[source] = self.stamps[source]
        self._touched.clear()
        for storage, stamps in found.items():
            if not storage.log:
                continue
            others = [stamp for source, stamp in stamps.items() if source is not storage]
            needed = min(storage.sequence, max(others, default=-1))
            for entry in storage.log:
                if isinstance(entry, Elements):
                    needed = max(needed, entry.last_reader(stamps))
            self._need(storage, needed)

    def release(self) -> None:
        """Let go of the nodes that were followed."""
        self._seen = set()

    def founding(self, without: set[Storage]) -> list[Node]:
        """The reads in versions 0 but of some storages: they are computed before what uses those is."""
        bases = [storage.base for storage in self.bases - without if storage.base is not None]
        return [node for node in _computed(bases) if isinstance(node.op, Read)]

    def values(self) -> list[Node]:
        """What the entries of the slice are computed from."""
        entries = [entry for _, entry in self.entries() if isinstance(entry, Entry)]
        return [node for entry in entries for node in (entry.value, *entry.indices)]

    def unseen(self, own: set[Node]) -> list[Node]:
        """The versions 0 of storages that nothing but the slice knows, whose reads are among some."""
        return [
            storage.base
            for storage in self.bases
            if storage.base is not None
            and not (storage.log or storage.readers)
            and sys.getrefcount(storage) - _OVERHEAD_OF_STORAGES == len(reads := _reads_of(storage))
            and reads <= own
        ]

    def entries(self) -> list[tuple[Storage, AnyEntry]]:
        """The entries of the slice, in program order."""
        found: list[tuple[Storage, AnyEntry]] = []
        for storage, stamp in self.stamps.items():
            for entry in storage.log:
                if first_of(entry) > stamp:
                    break
                found.append((storage, entry.until(stamp) if isinstance(entry, Elements) else entry))
        found.sort(key=lambda pair: first_of(pair[1]))
        return found


class Flush:
    """One flush in the making: statements, and where each storage's bytes are."""

    def __init__(self, storages: list[Storage], nodes: list[Node], part: Slice) -> None:
        self.nodes: Final = nodes
        self.slice: Final = part
        self.wanted: Final = storages
        self.program: Final = Program([])
        self.homes: Final[dict[Storage, BufferRef]] = {}
        self.marks: Final[dict[Storage, Marks]] = {}
        self.resolved: Final[dict[Node, Node]] = {}
        self.saved: Final[list[tuple[weakref.ref[Node], BufferRef, View]]] = []
        self._kinds: Final[dict[tuple[object, ...], Kind]] = {}
        self.own: Final[set[Node]] = set()  # reads that nobody outside the slice will ask for
        self._newest: Final[dict[Node, int]] = {}  # the last of the writes that values of versions 0 see
        self.lost: Final[dict[Node, None]] = {}  # others, of bytes that the slice overwrites
        self.tapes: Final = Tapes()
        self.temporaries: Final[set[Storage]] = set()  # whose versions 0 are computed nowhere but in what reads them
        self.private: Final[set[Storage]] = set()  # of copies that nothing needs afterwards
        self._rollable: Final[dict[int, tuple[Entry | Item, Item]]] = {}  # by number

    def run(self) -> list[BufferRef]:
        """Build the program, run it, then retire its entries."""
        outputs = self.build()
        renamed: dict[BufferRef, BufferRef] = {}
        if self.program.statements:
            plan = plans.plan(self.program)
            _run_postponed({ref for kernel in plan.kernels for ref in kernel.buffers})
            renamed = plan.renamed
            engine.execute(plan, lambda: self._commit(renamed))
        else:
            _run_postponed(set(outputs) | {s.ref for s in self.wanted if s.ref is not None})
            self._commit(renamed)
        return [renamed.get(ref, ref) for ref in outputs]

    def build(self) -> list[BufferRef]:
        """The program; gives the buffer of each wanted node."""
        if self.slice.stamps:
            register_scalars()
        for storage in self.slice.stamps:
            storage.close()
        drain()
        self.slice.release()
        self.own.update(_only_within(self.slice.values(), self.nodes))
        self.own.update(_only_within(self.slice.unseen(self.own), self.nodes))
        for storage, stamp in self.slice.stamps.items():
            if storage.log:
                keep_overwritten(storage, stamp)
                held = (node for node in living(storage) if node not in self.own)
                self.lost.update(dict.fromkeys(overwritten(storage, stamp, held)))
        self._statements(self.slice.entries())
        for storage in self.wanted:
            self.home(storage)
        outputs = [self._output(node) for node in self.nodes]
        self._save_readers()
        self.program.keep.update(ref for s, ref in self.homes.items() if s not in self.private)
        self.program.pinned.update(ref for s, ref in self.homes.items() if s.stays)
        return outputs

    def postpone(self, outputs: list[BufferRef]) -> tuple[Pending, list[BufferRef]]:
        """Plan, and retire the entries as if the kernels had run: they run before their buffers are touched."""
        plan = plans.plan(self.program)
        nodes: dict[BufferRef, Node] = {}
        for kernel in plan.kernels:
            if isinstance(kernel, PlannedKernel):
                edges = [buffer(ref) for ref in kernel.buffers]
                made = make(Kernel(kernel.metadata), kernel.ast, *edges)
                for ref in kernel.written:
                    nodes[ref] = make(ASSIGN, buffer(ref), made)
        held = Pending(plan, nodes)
        postponed.append(held)
        self._commit(plan.renamed)
        return held, [plan.renamed.get(ref, ref) for ref in outputs]

    # -- where bytes are

    def home(self, storage: Storage) -> BufferRef:
        """The buffer that holds a storage, made and filled with its version 0 where it has none yet."""
        ref = self.homes.get(storage)
        if ref is not None:
            return ref
        ref = storage.ref
        if ref is None:
            ref = engine.new_ref(storage.nbytes, storage.device)
            self.program.fresh.add(ref)
            self.homes[storage] = ref
            if storage.base is not None:
                value = self.resolve(storage.base)
                self._add(Write(ref, View.contiguous(value.dtype, value.shape), value))
            elif not storage.log:
                value = expand(const(dtypes.uint8, 0), (storage.nbytes,))
                self._add(Write(ref, View.contiguous(dtypes.uint8, value.shape), value))
            self._mark(storage, 0, 0)
        else:
            self.homes[storage] = ref
        return ref

    def _add(self, statement: Write | object) -> None:
        """Append a statement."""
        self.program.statements.append(statement)  # pyright: ignore[reportArgumentType] -- Write or Repeat

    def _mark(self, storage: Storage, first: int, last: int) -> None:
        """Note that the statements so far have made the writes to a storage from one number to another."""
        marks = self.marks.setdefault(storage, Marks())
        marks.firsts.append(first)
        marks.lasts.append(last)
        marks.places.append(len(self.program.statements))

    def position(self, storage: Storage, stamp: int) -> int:
        """Before which statement a storage is as of a stamp, in the bytes that a read as of it sees.

        A stamp within a group is that of a read of bytes that the rest of the group leaves alone: they are there once
        it has run.
        """
        found = self.marks.get(storage)
        if found is None:
            return 0
        after = bisect_right(found.lasts, stamp)
        if after < len(found.firsts) and found.firsts[after] <= stamp:
            return found.places[after]
        return found.places[after - 1] if after else 0

    # -- values

    def resolve(self, root: Node) -> Node:
        """A value whose reads the program knows; what has no bytes of its own is put in."""
        done = self.resolved
        reads = self.program.reads
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if node in done:
                continue
            if node.place is not None:
                reads[node] = ReadAt(*node.place, 0)
                done[node] = node
                continue
            taped = self.tapes.places.get(node)
            if taped is not None:
                reads[node] = ReadAt(self.home(taped[0]), taped[1], len(self.program.statements))
                done[node] = node
                continue
            match node.op:
                case Read(storage=Storage() as storage, view=view, stamp=stamp):
                    inline = storage not in self.homes and storage.ref is None
                    if not inline:
                        reads[node] = ReadAt(self.home(storage), view, self.position(storage, stamp))
                        done[node] = node
                    elif storage.base is None:
                        done[node] = expand(const(view.dtype, 0), view.shape)
                    elif ready or storage.base in done:
                        done[node] = view_of(view, done[storage.base])
                    else:
                        stack += ((node, True), (storage.base, False))
                case Buffer(ref=ref):
                    reads[node] = ReadAt(ref, View.contiguous(dtypes.uint8, (ref.nbytes,)), 0)
                    done[node] = node
                case Assign():
                    done[node] = node
                case Detach() if node.src[0] in done:
                    done[node] = done[node.src[0]]
                case _:
                    if ready or not node.src:
                        done[node] = rebuild(node, tuple(done[s] for s in node.src)) if node.src else node
                    else:
                        stack.append((node, True))
                        stack.extend((s, False) for s in node.src if s not in done)
        return done[root]

    def _device_of(self, value: Node) -> str | None:
        """The device of the buffers that a resolved value reads."""
        reads = self.program.reads
        stack = [value]
        seen: set[Node] = set()
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            match reads.get(node, node.op):
                case ReadAt(ref=ref) | Buffer(ref=ref):
                    return ref.device
                case _:
                    stack.extend(node.src)
        return None

    def _output(self, node: Node) -> BufferRef:
        """A statement that computes a wanted node into a buffer of its own, unless it is in one already."""
        place = node.place
        if place is not None and place[1].is_contiguous and place[1].nbytes == place[0].nbytes:
            return place[0]
        value = self.resolve(node)
        device = self._device_of(value) or engine.default_device()
        ref = engine.new_ref(node.nbytes, device)
        self.program.fresh.add(ref)
        self.program.keep.add(ref)
        self.program.floating.add(len(self.program.statements))
        self._add(Write(ref, View.contiguous(node.dtype, node.shape), value))
        return ref

    # -- entries

    def _statements(self, entries: list[tuple[Storage, AnyEntry]]) -> None:
        """All entries as statements, runs of rollable ones together."""
        known, observed = self.rolled(entries)
        gathering = Gathering()
        last: dict[Storage, int] = {}
        prior: dict[Storage, int] = {}
        first = 0  # the number of the first write that waits

        def emit() -> None:
            for group in reroll.roll(gathering.take(), prior):
                self._group(group)
            prior.update(last)
            last.clear()

        for storage, entry in self._pieces(known, observed):
            if last and any(self._begins(source, first, last) for source in self._used(storage, entry)):
                emit()  # version 0 is computed when it is first used: after all that it reads
            seen = observed.get(storage)
            before = last.get(storage)
            if seen and before is not None:
                place = bisect_left(seen, before)
                if place < len(seen) and seen[place] < first_of(entry):
                    emit()
            if self.gather(storage, entry, gathering):
                first = first if last else first_of(entry)
                last[storage] = entry.sequence
            else:
                emit()
                self._single(storage, entry)
                prior[storage] = entry.sequence
        emit()

    def rolled(
        self, entries: list[tuple[Storage, AnyEntry]]
    ) -> tuple[list[tuple[Storage, AnyEntry | Item]], dict[Storage, list[int]]]:
        """The entries, those that may be rolled known and with stamps as new as they may be; and what is observed.

        Elements that read older moments, or write what is read so, are taken apart.
        """
        self._see_through([entry for _, entry in entries if isinstance(entry, Entry)])
        for storage, entry in entries:
            if isinstance(entry, Entry) and (found := self.item(storage, entry)) is not None:
                self._rollable[entry.sequence] = found
        self._see_no_more([entry for _, entry in entries if isinstance(entry, Entry)])
        writes = [self._numbered(storage, entry) for storage, entry in entries]
        older = outdated(writes)
        taken: list[tuple[Storage, AnyEntry | Item]] = []
        for storage, entry in entries:
            if older and isinstance(entry, Elements) and not older.isdisjoint({storage, *entry.sources()}):
                taken.extend((storage, item) for item in self._items(storage, entry))
            else:
                taken.append((storage, entry))
        if older:
            taken.sort(key=lambda pair: first_of(pair[1]))
            writes = [self._numbered(storage, entry) for storage, entry in taken]
        found = renew(writes, older)
        copies = set_aside(writes, older, self._kind)
        if copies:
            taken = self._with_copies(taken, copies)
            writes = [self._numbered(storage, entry) for storage, entry in taken]
            found = renew(writes, older)
        alone = [entry for _, entry in taken if isinstance(entry, Entry) and entry.sequence not in self._rollable]
        return taken, self._observed(alone, writes, older, found)

    def _see_through(self, entries: list[Entry]) -> None:
        """Find the temporaries of turns."""
        candidates = {s for s in self.slice.bases if s.base is not None and s.ref is None and not (s.log or s.readers)}
        candidates.difference_update(self.wanted)
        if candidates:
            self.temporaries.update(made_in_turns(candidates, [entry.value for entry in entries]))

    def _see_no_more(self, entries: list[Entry]) -> None:
        """Leave out the temporaries that something reads as they are."""
        if not self.temporaries:
            return
        rolled = self._rollable
        values = [node for e in entries if e.sequence not in rolled for node in (e.value, *e.indices)]
        values += [entry.value for entry, _ in rolled.values() if isinstance(entry, Entry)]
        values += self.nodes
        values += [s.base for s in self.slice.bases - self.temporaries if s.base is not None]
        self.temporaries.difference_update(still_read(values, self.temporaries))

    def _with_copies(
        self, entries: list[tuple[Storage, AnyEntry | Item]], copies: list[Item]
    ) -> list[tuple[Storage, AnyEntry | Item]]:
        """Entries with the writes that copy what some of them read and others overwrite before."""
        for storage in {copy.storage for copy in copies}:
            self.private.add(storage)
        self._rollable.update((copy.sequence, (copy, copy)) for copy in copies)
        self._rollable.update(
            (n, (item, item)) for n, (_, item) in list(self._rollable.items()) if _reads_any(item, self.private)
        )
        return sorted([*entries, *((copy.storage, copy) for copy in copies)], key=lambda pair: first_of(pair[1]))

    def _numbered(self, storage: Storage, entry: AnyEntry | Item) -> Numbered:
        """An entry, its number, and what it is to those who ask which bytes are read and written."""
        known = self._rollable.get(entry.sequence)
        if known is not None:
            return storage, entry.sequence, known[1]
        assert not isinstance(entry, Item)
        return storage, entry.sequence, target(entry)

    def _items(self, storage: Storage, entry: Elements) -> list[Item]:
        """Elements one by one."""
        gathering = Gathering()
        self.gather(storage, entry, gathering)
        items = gathering.take().items()
        self._rollable.update((item.sequence, (item, item)) for item in items)
        return items

    def _pieces(
        self, entries: list[tuple[Storage, AnyEntry | Item]], observed: dict[Storage, list[int]]
    ) -> list[tuple[Storage, AnyEntry | Item]]:
        """The entries in program order, with elements cut wherever the statements so far may have to be made.

        That is at a write that is not rolled, between writes that a living read saw, and before the first use of a
        storage whose version 0 is still to be computed.
        """
        stamps: set[int] = set()
        before: dict[Storage, int] = {}
        pieces: list[tuple[Storage, AnyEntry | Item]] = []
        for storage, entry in entries:
            seen = observed.get(storage, ())
            own = entry.cut(seen) if isinstance(entry, Elements) else [entry]
            pieces.extend((storage, piece) for piece in own)
            for piece in own:
                first = first_of(piece)
                newest = before.get(storage)
                place = bisect_left(seen, newest) if newest is not None else len(seen)
                if (newest is None and storage.base is not None) or (place < len(seen) and seen[place] < first):
                    stamps.add(first - 1)
                before[storage] = piece.sequence
            if isinstance(entry, Elements):
                stamps.update(_first_uses(entry))
            if not isinstance(entry, Elements) and entry.sequence not in self._rollable:
                stamps.add(entry.sequence)
        ordered = sorted(stamps)
        cut = [
            (storage, piece)
            for storage, entry in pieces
            for piece in (entry.cut(ordered) if isinstance(entry, Elements) else (entry,))
        ]
        cut.sort(key=lambda pair: first_of(pair[1]))
        return cut

    def _used(self, storage: Storage, entry: AnyEntry | Item) -> Iterable[Storage]:
        """The storages that a write uses."""
        if isinstance(entry, Elements):
            return (storage, *entry.sources())
        rollable = self._rollable.get(entry.sequence)
        if rollable is None:
            return (storage,)
        _, item = rollable
        return (storage, *(step.storage for step, _ in item.kind.reads if isinstance(step.storage, Storage)))

    def _begins(self, storage: Storage, first: int, written: Container[Storage]) -> bool:
        """Whether version 0 of a storage is still to be computed, from what a write of this number or a later one made.

        Of those that wait, a storage that is written has had its version 0 looked at.
        """
        if storage.base is None or storage in self.homes or storage in written:
            return False
        return _newest(storage.base, self._newest) >= first

    def _observed(
        self, alone: list[Entry], writes: list[Numbered], older: set[Storage], found: dict[Storage, set[int]]
    ) -> dict[Storage, list[int]]:
        """The moments of each storage that some read needs to be the end of a group.

        They are those of reads whose bytes are overwritten before they are used, and of reads in versions 0.
        """
        reads: dict[Storage, list[Node]] = {}
        for node in _computed(value for entry in alone for value in (entry.value, *entry.indices)):
            match node.op:
                case Read(storage=Storage() as storage) if node in self.own:
                    reads.setdefault(storage, []).append(node)
                case _:
                    pass
        again = [
            node
            for storage, own in reads.items()
            for node in overwritten(storage, self.slice.stamps.get(storage, -1), own)
        ]
        founding = self.slice.founding(self.temporaries)
        taped = self.tapes.want(self.lost.keys() - set(founding), writes, older)
        for node in itertools.chain(self.lost.keys() - taped, founding, again):
            match node.op:
                case Read(storage=Storage() as storage, stamp=seen) if storage.log and first_of(storage.log[0]) <= seen:
                    found.setdefault(storage, set()).add(seen)
                case _:
                    pass
        return {storage: sorted(stamps) for storage, stamps in found.items()}

    def gather(self, storage: Storage, entry: AnyEntry | Item, gathering: Gathering) -> bool:
        """Put an entry among the writes that may be rolled; gives False for one that may not."""
        if isinstance(entry, Elements):
            for skeleton, sequences, offsets, columns in entry.by_skeleton():
                pattern = cast_pattern(skeleton.pattern(), entry.dtype)
                gathering.extend(self._kind(storage, entry.dtype, (), (), pattern), sequences, offsets, columns)
            return True
        known = self._rollable.get(entry.sequence)
        if known is not None:
            gathering.add(known[1])
        return known is not None

    def item(self, storage: Storage, entry: Entry) -> tuple[Entry, Item] | None:
        """A node's write in the form in which it can be rolled, and as a write of what temporaries are; or None."""
        if entry.indices or entry.combine != "set":
            return None
        value = seen_through(entry.value, self.temporaries) if self.temporaries else entry.value
        found = of_node(value)
        if found is None or not supports(found[0]) or not _is_on_grid(entry.view, *found):
            return None
        view = entry.view
        kind = self._kind(storage, view.dtype, view.shape, view.strides, found[0])
        plain = entry if value is entry.value else replace(entry, value=value)
        return plain, Item(entry.sequence, kind, view.offset, found[1])

    def _kind(
        self, storage: Storage, dtype: object, shape: tuple[int, ...], strides: tuple[int, ...], pattern: Pattern
    ) -> Kind:
        """The one object for these common properties."""
        key = (storage, dtype, shape, strides, pattern)
        kind = self._kinds.get(key)
        if kind is None:
            kind = Kind(storage, dtype, shape, strides, pattern, tuple(pattern.reads))  # pyright: ignore[reportArgumentType]
            self._kinds[key] = kind
        return kind

    def _group(self, group: reroll.Group) -> None:
        """One group as statements."""
        match group:
            case reroll.Single(item=item):
                self._keep(Gathering([item]).take())
                self._single(item.storage, self._rollable.get(item.sequence, (item,))[0])
            case reroll.Parallel(runs=runs, writes=writes):
                for storage in writes.ends:
                    self.home(storage)
                self._keep(writes)
                start = len(self.program.statements)
                for run in runs:
                    self._add(whole_write(run, self._reader(start), self.home(run.kind.storage)))
                self._mark_group(writes)
            case reroll.Sequential(writes=writes):
                self._add(Turns(self.tapes.beside(group), self.home).repeat())
                self._mark_group(writes)

    def _mark_group(self, writes: Writes) -> None:
        """Note that the statements so far have made the writes of a group."""
        starts = writes.starts
        for storage, last in writes.ends.items():
            self._mark(storage, starts[storage], last)

    def _reader(self, start: int) -> Reader:
        """Views of storages as they are just before a statement."""

        def reader(storage: Storage, view: View) -> Node:
            if storage in self.homes or storage.ref is not None:
                return read_at(self.home(storage), view, start)
            if storage.base is None:
                return expand(const(view.dtype, 0), view.shape)
            return view_of(view, self.resolve(storage.base))

        return reader

    def _keep(self, writes: Writes) -> None:
        """Keep what is wanted of what writes read that do not read one another."""
        runs = [copy for run in writes.runs for copy in self.tapes.taped(run)]
        for run in runs:
            self.home(run.kind.storage)
            self.home(run.kind.reads[0][0].storage)  # pyright: ignore[reportArgumentType] -- reads hold storages
        reader = self._reader(len(self.program.statements))
        for run in runs:
            self._add(whole_write(run, reader, self.home(run.kind.storage)))

    def _gather(self, storage: Storage, view: View, reads: list[Node]) -> None:
        """What many reads see, one after the other: one write for all that lie in one buffer in one form."""
        each = View.contiguous(view.dtype, view.shape[1:])
        columns: dict[tuple[BufferRef, int, tuple[int, ...]], tuple[list[int], list[int]]] = {}
        for number, value in enumerate([self.resolve(read) for read in reads]):
            place = view.offset + number * each.nbytes
            match self.program.reads.get(value, value.op):
                case ReadAt(ref=ref, view=source, position=position):
                    places, offsets = columns.setdefault((ref, position, source.strides), ([], []))
                    places.append(place)
                    offsets.append(source.offset)
                case _:
                    self._add(Write(self.home(storage), View.contiguous(view.dtype, each.shape, place), value))
        for (ref, position, strides), (places, offsets) in columns.items():
            source = Storage(ref.nbytes, ref.device, ref=ref)
            step = Step("read", view.dtype, each.shape, strides, source)
            run = copies(step, storage, np.array(places), np.array(offsets), np.zeros(len(places), np.int64))
            self._add(whole_write(run, functools.partial(_read_buffer, position), self.home(storage)))

    def _single(self, storage: Storage, entry: AnyEntry | Item) -> None:
        """One entry as one statement."""
        ref = self.home(storage)
        match entry:
            case Segment(dtype=dtype, numbers=numbers):
                self._add(self._segment(storage, dtype, numbers, ref))
            case Entry(view=view, value=value, indices=indices, combine=combine, site=site):
                places = tuple(self.resolve(index) for index in indices)
                self._add(Write(ref, view, self.resolve(value), places, combine, site=site))
            case LoopEntry(loop=loop):
                self._add(Turns(loop, self.home).repeat())
            case GatherEntry(view=view, reads=reads):
                self._gather(storage, view, reads)
            case Item(kind=kind):
                value = scalar_node(kind.pattern, entry.recorded, kind.dtype)
                self._add(Write(ref, entry.view, self.resolve(value)))
            case Elements():
                raise InternalError("journal: elements are rolled, not written one by one")
        self._mark(storage, entry.sequence, entry.sequence)

    def _segment(self, storage: Storage, dtype: DType, numbers: dict[int, int | float | bool], ref: BufferRef) -> Write:
        """A segment of numbers as a whole-array write."""
        kind = self._kind(storage, dtype, (), (), Pattern((Step("number", dtype),)))
        offsets = offsets_of(dtype, numbers)
        run = Run(kind, offsets, offsets, offsets, [list(numbers.values())])  # a whole write does not ask for places
        return whole_write(run, _no_reads, ref)

    # -- old readers

    def _save_readers(self) -> None:
        """Keep what living readers outside this slice still need of bytes that it overwrites."""
        for storage, ref in list(self.homes.items()):
            if storage in self.marks:
                self._save_origin(storage, ref)
        for node in self.lost:
            taped = self.tapes.places.get(node)
            if taped is not None:
                self.saved.append((weakref.ref(node), self.homes[taped[0]], taped[1]))
                continue
            match node.op:
                case Read(storage=Storage() as storage, view=view, stamp=seen):
                    ref = self.homes[storage]
                    fresh = engine.new_ref(view.nbytes, ref.device)
                    self.program.fresh.add(fresh)
                    self.program.keep.add(fresh)
                    self.program.floating.add(len(self.program.statements))
                    whole = View.contiguous(view.dtype, view.shape)
                    self._add(Write(fresh, whole, read_at(ref, view, self.position(storage, seen))))
                    self.saved.append((weakref.ref(node), fresh, whole))
                case _:
                    pass

    def _save_origin(self, storage: Storage, ref: BufferRef) -> None:
        """Keep the computed value that the bytes were, where somebody still uses it."""
        node = storage.origin() if storage.origin is not None else None
        if node is not None and node.place is not None and node.place[0] is ref:
            fresh = engine.new_ref(node.nbytes, ref.device)
            self.program.fresh.add(fresh)
            self.program.keep.add(fresh)
            self.program.floating.add(len(self.program.statements))
            whole = View.contiguous(node.dtype, node.shape)
            self._add(Write(fresh, whole, read_at(ref, whole, 0)))
            self.saved.append((weakref.ref(node), fresh, whole))
        storage.origin = None

    def _commit(self, renamed: dict[BufferRef, BufferRef]) -> None:
        """Retire the entries that have run."""
        for storage, ref in self.homes.items():
            storage.ref = renamed.get(ref, ref)
            storage.base = None
            storage.retire(self.slice.stamps.get(storage, 0))
        for reference, ref, view in self.saved:
            node = reference()
            if node is not None:
                node.place = renamed.get(ref, ref), view


def _only_within(roots: list[Node], wanted: Sequence[Node]) -> set[Node]:
    """The reads that only some values of a slice hold: nobody will ask for what they see once it is overwritten.

    Decided by reference counts (CPython's): a node with more of them than the slice accounts for is held elsewhere, and
    so is all that it reads. Any miscount upwards keeps a value that nobody needs, which is safe.
    """
    if not any(isinstance(node.op, Read) or node.src for node in roots):
        return set()
    order = toposort(roots)
    expected = _references(order, roots)
    held: set[Node] = set()
    goals = set(wanted)
    for number in range(len(order) - 1, -1, -1):
        if order[number] in goals:
            continue
        if order[number] in held or sys.getrefcount(order[number]) > expected[order[number]]:
            held.add(order[number])
            held.update(order[number].src)
    return {node for node in order if isinstance(node.op, Read) and node not in held}


def is_constant(root: Node) -> bool:
    """Whether a value depends on no bytes: it is one node on all devices, and can always be computed again."""
    stack = [root]
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        if node.place is not None or isinstance(node.op, (Buffer, Read, ReadAt, Assign)):
            return False
        seen.add(node)
        stack.extend(node.src)
    return True


def _computed(roots: Iterable[Node]) -> list[Node]:
    """All nodes of some values but those whose values are kept, inputs before users."""
    found = toposort(roots, enter=lambda node: node.place is None)
    return [node for node in found if node.place is None]


def _references(order: list[Node], roots: list[Node]) -> dict[Node, int]:
    """The references to a node that a slice accounts for; a function, since its loop variables hold nodes too."""
    expected: dict[Node, int] = dict.fromkeys(order, _OVERHEAD)
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


_OVERHEAD: Final = _overhead()


def _overhead_of_storages() -> int:
    """The references to a storage that a slice's own tables make, and those of counting."""
    storage = Storage(0, "CPU")
    bases, tables = {storage}, ({storage: 0}, {storage: 0})
    del storage
    return next(sys.getrefcount(storage) + 0 * len(tables) for storage in bases)


_OVERHEAD_OF_STORAGES: Final = _overhead_of_storages()


def _reads_of(storage: Storage) -> set[Node]:
    """The reads of a storage that are alive."""
    return {node for reference in storage.live if (node := reference()) is not None}


def _newest(root: Node, found: dict[Node, int]) -> int:
    """The number of the last write that a value sees, through versions 0 of storages as well.

    Args:
        found: What is known of values, to which what is found is added.
    """
    stack = [root]
    while stack:
        node = stack[-1]
        newest, below = 0, node.src
        if node.place is not None:
            below = ()
        elif isinstance(node.op, Read) and isinstance(node.op.storage, Storage):
            newest, base = node.op.stamp, node.op.storage.base
            below = () if base is None else (base,)
        missing = [source for source in below if source not in found]
        stack.extend(missing)
        if not missing:
            found[stack.pop()] = max([newest, *(found[source] for source in below)])
    return found[root]


def _first_uses(entry: Elements) -> list[int]:
    """The stamps before the first uses of storages whose version 0 is still to be computed."""
    if not any(source.base is not None for source in entry.sources()):
        return []
    found: dict[Storage, int] = {}
    for skeleton, sequences, _, _ in entry.by_skeleton():
        for source in skeleton.storages:
            if source.base is not None:
                found[source] = min(sequences[0], found.get(source, sequences[0]))
    return [sequence - 1 for sequence in found.values()]


def _reads_any(item: Item, storages: set[Storage]) -> bool:
    """Whether a write reads one of some storages."""
    return any(step.storage in storages for step, _ in item.kind.reads)


def scalar_node(pattern: Pattern, holes: tuple[Hole, ...], dtype: object) -> Node:
    """A scalar expression as a node, its reads as of their stamps."""

    def leaf(step: Step, hole: int) -> tuple[Node, bool]:
        if step.kind == "number":
            return const(step.dtype, holes[hole]), False
        storage: Storage = step.storage  # pyright: ignore[reportAssignmentType] -- reads hold storages
        view = View(step.dtype, step.shape, step.strides, int(holes[hole]))
        return storage.read_past(view, int(holes[hole + 1])), False

    return batch(cast_pattern(pattern, dtype), (), leaf)


def cast_pattern(pattern: Pattern, dtype: object) -> Pattern:
    """A pattern whose value has a dtype."""
    if pattern.steps[-1].dtype is dtype:
        return pattern
    last = Step("op", dtype, op=Cast(dtype), src=(len(pattern.steps) - 1,))  # pyright: ignore[reportArgumentType]
    return Pattern((*pattern.steps, last))


def _is_on_grid(view: View, pattern: Pattern, holes: tuple[Hole, ...]) -> bool:
    """Whether all elements that a write touches lie at multiples of their size (those that do not are not rolled)."""
    if any(place % view.dtype.itemsize for place in (view.offset, *view.strides)):
        return False
    return not any(
        int(holes[hole]) % step.dtype.itemsize or any(s % step.dtype.itemsize for s in step.strides)
        for step, hole in pattern.reads
    )


def _read_buffer(position: int, storage: Storage, view: View) -> Node:
    """A view of a storage's buffer just before a statement."""
    assert storage.ref is not None
    return read_at(storage.ref, view, position)


def _no_reads(storage: Storage, view: View) -> Node:
    """Numbers read nothing."""
    raise InternalError("journal: a segment of numbers has no reads")
