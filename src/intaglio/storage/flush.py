"""The flush: the slice of the journal that some values need, trimmed, re-rolled, resolved to buffers and run."""

from __future__ import annotations

import functools
import weakref
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from intaglio.core.config import settings_now
from intaglio.core.dtypes import dtypes
from intaglio.core.errors import InternalError
from intaglio.engine import realize as engine
from intaglio.engine.debug import watches_kernels
from intaglio.ir.node import Node, make, rebuild
from intaglio.ir.view import View
from intaglio.ops.elementwise import Detach
from intaglio.ops.loop import ASSIGN, Assign, Kernel
from intaglio.ops.memory import Buffer, BufferRef, Read, buffer, const
from intaglio.ops.movement import expand
from intaglio.ops.reduce import reduce
from intaglio.ops.viewed import view_of
from intaglio.schedule.kernels import PlannedKernel
from intaglio.schedule.program import Output, Program, ReadAt, Write, read_at
from intaglio.storage import checks, reroll, trim
from intaglio.storage.build import copies, whole_write
from intaglio.storage.grouping import Grouping
from intaglio.storage.journal import AnyEntry, Elements, Entry, GatherEntry, LoopEntry, Segment
from intaglio.storage.kept import keep_everything, keep_overwritten
from intaglio.storage.nested import loops
from intaglio.storage.postponed import Pending, postponed, run_postponed
from intaglio.storage.recall import Name, Recalled, learn, recall
from intaglio.storage.recomputed import recomputed
from intaglio.storage.scalars import ScalarHandle, register_scalars, scalar_node
from intaglio.storage.skeleton import NumberStep, Pattern, ReadStep
from intaglio.storage.slice import Slice, is_constant, whole_home
from intaglio.storage.spent import spent
from intaglio.storage.standing import UNKNOWN, plans, standing
from intaglio.storage.storage import Storage, pending
from intaglio.storage.writes import Gathering, Item, Run, Writes, offsets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from intaglio.core.config import Config
    from intaglio.core.dtypes import DType
    from intaglio.engine.plan import Plan
    from intaglio.schedule.program import Statement
    from intaglio.storage.build import Reader
    from intaglio.storage.checks import Check


class Habit:
    """Whether the last flush found writes pending: those of a loop all do, or none."""

    __slots__ = ("pends",)

    def __init__(self) -> None:
        self.pends: bool = False


habit: Final = Habit()


def flush(
    storages: Iterable[Storage] = (),
    nodes: Sequence[Node] = (),
    owners: Sequence[ScalarHandle] = (),
    stored: Sequence[Node] | None = None,
) -> list[BufferRef]:
    """Bring storages up to date and compute nodes; gives the buffer of each node, whole and row-major.

    Args:
        owners: Who holds the nodes (the first of them), and lets go of them for what this gives.
        stored: Of the nodes, those that only are on the way, and that nobody will follow back; None where it is yet to
            be found out what there is to be stored (`storage/recomputed.py`).
    """
    with engine.lock:
        settings = settings_now()
        wanted = list(storages)
        alike = habit.pends and bool(pending)  # as the last flush was, so mostly is the next
        again = recall(wanted, nodes, settings, _given_up(nodes, owners, stored)) if alike else None
        still = standing(wanted, nodes, settings, anew=stored is not None) if again is None else None
        if still is None and not alike:
            again = recall(wanted, nodes, settings, _given_up(nodes, owners, stored))
        if stored is None and not isinstance(still, tuple) and not isinstance(again, Recalled):  # it is not known
            more, followed = recomputed.to_store(wanted, nodes) if owners or not nodes else ([], False)
            if more:
                return _storing(more, wanted, nodes, owners, followed=followed)
            still = standing(wanted, nodes, settings) if still is UNKNOWN else None
        if still is None:
            habit.pends = again is not None
            if not isinstance(again, Recalled):
                return _made(wanted, nodes, _given_up(nodes, owners, stored), again, settings)
            _run(again.plan, again.commit, settings)
            return again.outputs
        habit.pends = False
        assert isinstance(still, tuple)
        plan, homes, outputs = still
        if plan is None:
            run_postponed([*outputs, *[storage.ref for storage in wanted if storage.ref is not None]])
        elif plan.form.heirs and plan.form.may_inherit(plan.refs):
            _run_over(plan, homes, nodes, outputs, owners, settings)
        else:
            _run(plan, functools.partial(_found, homes) if homes else None, settings)
        return outputs


def _made(
    wanted: Sequence[Storage], nodes: Sequence[Node], given_up: Sequence[Node], name: Name | None, settings: Config
) -> list[BufferRef]:
    """Flush what is not known by its history; gives the buffers of nodes.

    It may be known without the writes that nobody will see; else a program is made.

    Args:
        name: What the whole history is to be known by.
    """
    part, is_trimmed = _needed(wanted, nodes, given_up)
    if is_trimmed:
        del part  # which holds storages
        again = recall(wanted, nodes, settings, given_up)
        if isinstance(again, Recalled):
            _run(again.plan, again.commit, settings)
            return again.outputs
        part, name = Slice(wanted, nodes, given_up), again
    return Flush(part).run(name, settings)


def _given_up(nodes: Sequence[Node], owners: Sequence[ScalarHandle], stored: Sequence[Node] | None) -> Sequence[Node]:
    """The wanted values of which nobody will ask what they were computed from: no gradients follow them."""
    if stored is None and not owners:
        return nodes
    return [*[n for n, owner in zip(nodes, owners, strict=False) if owner._grad_state is not True], *(stored or ())]


def _storing(
    more: Sequence[Node],
    storages: Sequence[Storage],
    nodes: Sequence[Node],
    owners: Sequence[ScalarHandle],
    *,
    followed: bool,
) -> list[BufferRef]:
    """Flush, and store some more values for those who hold them. `followed`: whether gradients may follow them."""
    outputs = flush(storages, [*nodes, *more], owners, () if followed else more)
    for node, ref in zip(more, outputs[len(nodes) :], strict=True):
        node.place = ref, View.contiguous(node.dtype, node.shape)
    return outputs[: len(nodes)]


def partition(
    storages: Iterable[Storage], nodes: Sequence[Node], owners: Sequence[ScalarHandle]
) -> tuple[Pending, list[BufferRef]]:
    """As flush, but the kernels run when a value is needed: (they, the buffer that each node will be in)."""
    with engine.lock:
        wanted = list(storages)
        still = standing(wanted, nodes, settings_now())
        plan, homes, outputs = still if isinstance(still, tuple) else (None, {}, [])
        if plan is None:
            builder = Flush(_needed(wanted, nodes, _given_up(nodes, owners, None))[0])
            return builder.postpone(builder.build())
        held = _postponed(plan)
        _found(homes)
        return held, outputs


def _run(plan: Plan, commit: Callable[[], None] | None, settings: Config) -> None:
    """Run a plan after what is postponed on its buffers. `commit`: notes that it has run, if that changes anything."""
    if postponed:
        run_postponed(plan.buffers)
    engine.execute(plan, commit, settings)


def _run_over(
    plan: Plan,
    homes: dict[Storage, BufferRef],
    nodes: Sequence[Node],
    outputs: Sequence[BufferRef],
    owners: Sequence[ScalarHandle],
    settings: Config,
) -> None:
    """Run a plan, whose results take the memory of inputs that nobody will ask for when it has run.

    All results are noted before an interrupt can come: nothing could compute them a second time.
    """
    if not plan.form.ready:
        plan.steps(settings.beam)  # only then all is known of its heirs
    watched = watches_kernels(settings) or settings.beam  # kernels that are searched for may be others
    taken = [] if watched else spent(plan, homes, nodes, owners)
    if not taken:
        plan.form.note_living(plan.refs)
        _run(plan, functools.partial(_found, homes) if homes else None, settings)
        return

    def commit() -> None:
        _found(homes)
        for node, ref in zip(nodes, outputs, strict=True):
            if node.place is None and not is_constant(node):
                node.place = ref, View.contiguous(node.dtype, node.shape)
        engine.forsake(plan, taken)

    if postponed:
        run_postponed(plan.buffers)
    engine.execute(plan, commit, settings, taken)


def _found(homes: dict[Storage, BufferRef]) -> None:
    """Note where the versions 0 of some storages are."""
    for storage, ref in homes.items():
        storage.ref = ref
        storage.base = None


def _postponed(plan: Plan) -> Pending:
    """Kernels that will run before their buffers are touched."""
    nodes: dict[BufferRef, Node] = {}
    for kernel in plan.kernels:
        if isinstance(kernel, PlannedKernel):
            edges = [buffer(ref) for ref in kernel.buffers]
            made = make(Kernel(kernel.metadata), kernel.ast, *edges)
            for ref in kernel.written:
                nodes[ref] = make(ASSIGN, buffer(ref), made)
    held = Pending(plan, nodes)
    postponed.append(held)
    return held


def _needed(storages: Sequence[Storage], nodes: Sequence[Node], given_up: Sequence[Node]) -> tuple[Slice, bool]:
    """The entries that some values need, with their positions checked, and without those that nobody will see.

    And whether there were any of those.
    """
    part = Slice(storages, nodes, given_up)
    while part.checks:
        _verify(part.checks)
        part = Slice(storages, nodes, given_up)
    stamps = trim.doubtful(part.stamps) if part.stamps else None
    if stamps:
        register_scalars()
        part.release()
        if trim.trim(stamps):
            del part  # and with it the storages that payloads held which are gone
            trim.trim(stamps)
            return Slice(storages, nodes, given_up), True
    return part, False


def pin(storage: Storage) -> None:
    """Share a storage's bytes with the outside from now on: they are up to date, and stay where they are.

    What was read of them before is computed first, since the outside may write at any time.
    """
    with engine.lock:
        register_scalars()
        flush(list(storage.readers or ()))
        flush([storage])
        keep_everything(storage)
        # what others hold -> what it is now
        readers = {node: node for node in storage.living_reads() if node.place is None}
        origin = storage.origin() if storage.origin is not None else None
        if origin is not None and origin.place is not None and origin.place[0] is storage.ref:
            readers[origin] = storage.read(origin.place[1])
        for node, ref in zip(readers, flush((), list(readers.values())), strict=True):
            node.place = ref, View.contiguous(node.dtype, node.shape)
        storage.origin = None
        storage.pin()


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


@dataclass(slots=True)
class Marks:
    """The groups of writes to a storage that a program has made: their first and last numbers, and the next statement.

    In order. Numbers between two groups are those of writes that were not asked for any more.
    """

    firsts: list[int] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


class Flush:
    """One flush in the making: statements, and where each storage's bytes are."""

    def __init__(self, part: Slice) -> None:
        self.slice: Final = part
        self.program: Final = Program([])
        self.homes: Final[dict[Storage, BufferRef]] = {}
        self.marks: Final[dict[Storage, Marks]] = {}
        self.resolved: Final[dict[Node, Node]] = {}
        self.saved: Final[list[tuple[weakref.ref[Node], BufferRef, View]]] = []
        self._is_rolled: bool = False  # whether writes were rolled into one, or a loop

    @cached_property
    def groups(self) -> Grouping:
        """How the entries are grouped."""
        return Grouping(self.slice, self.homes)

    def run(self, name: Name | None, settings: Config) -> list[BufferRef]:
        """Build the program, run it, then retire its entries.

        Args:
            name: What the flush is to be known by.
            settings: Those in force.
        """
        outputs = self.build()
        renamed: dict[BufferRef, BufferRef] = {}
        if self.program.statements or self.program.outputs:
            plan = self._learnt(name) if name is not None else None
            plan = plan or plans.plan(self.program)
            renamed = plan.renamed
            _run(plan, lambda: self._commit(renamed), settings)
        else:
            run_postponed([*outputs, *[s.ref for s in self.slice.wanted if s.ref is not None]])
            self._commit(renamed)
        return [renamed.get(ref, ref) for ref in outputs]

    def _learnt(self, name: Name) -> Plan | None:
        """The plan, known by the name of the flush from now on; None where that does not tell what was made of it."""
        groups = self.groups
        if self._is_rolled or groups.temporaries or groups.instances or groups.private:
            return None
        saved: dict[Node, BufferRef] = {}
        for reference, ref, view in self.saved:
            node = reference()
            if node is None or view.nbytes != ref.nbytes:
                return None
            saved[node] = ref
        tapes = {storage for storage, _ in groups.tapes.places.values()}
        homes = {storage: ref for storage, ref in self.homes.items() if storage.ref is None and storage not in tapes}
        return learn(name, self.slice.wanted, self.slice.nodes, self.program, homes, saved)

    def build(self) -> list[BufferRef]:
        """The program; gives the buffer of each wanted node."""
        if self.slice.stamps:
            register_scalars()
        self.slice.close()
        self.slice.find_own()
        for storage, stamp in self.slice.stamps.items():
            if storage.log:
                self.slice.own.difference_update(keep_overwritten(storage, stamp))
        self.slice.find_lost()
        self._statements(self.slice.entries())
        for storage in self.slice.wanted:
            self.home(storage)
        outputs = [whole_home(node) or self._resolved_output(node) for node in self.slice.nodes]
        self._save_readers()
        self.program.keep.update(ref for s, ref in self.homes.items() if s not in self.groups.private)
        self.program.pinned.update(ref for s, ref in self.homes.items() if s.stays)
        return outputs

    def postpone(self, outputs: list[BufferRef]) -> tuple[Pending, list[BufferRef]]:
        """Plan, and retire the entries as if the kernels had run: they run before their buffers are touched."""
        plan = plans.plan(self.program)
        held = _postponed(plan)
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

    def _add(self, statement: Statement) -> None:
        """Append a statement."""
        self.program.statements.append(statement)

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
            taped = self.groups.tapes.places.get(node)
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

    def _resolved_output(self, node: Node) -> BufferRef:
        """The buffer of a wanted node, resolved."""
        value = self.resolve(node)
        return self._output(value, self._device_of(value) or engine.default_device())

    def _output(self, value: Node, device: str) -> BufferRef:
        """The buffer that a value will be in."""
        view = View.contiguous(value.dtype, value.shape)
        ref = BufferRef(view.nbytes, device)
        self.program.outputs.append(Output(ref, view, value))
        return ref

    # -- entries

    def _statements(self, entries: list[tuple[Storage, AnyEntry]]) -> None:
        """All entries as statements, runs of rollable ones together."""
        for step in self.groups.steps(entries):
            if isinstance(step, tuple):
                self._single(*step)
            else:
                self._group(step)

    def _group(self, group: reroll.Group) -> None:
        """One group as statements."""
        match group:
            case reroll.Single(item=item):
                self._keep(Gathering([item]).take())
                self._single(item.storage, self.groups.plain(item))
            case reroll.Parallel(runs=runs, writes=writes):
                self._is_rolled = True
                for storage in writes.ends:
                    self.home(storage)
                self._keep(writes)
                start = len(self.program.statements)
                for run in runs:
                    self._add(whole_write(run, self._reader(start), self.home(run.kind.storage)))
                self._mark_group(writes)
            case reroll.Sequential(writes=writes):
                self._is_rolled = True
                for repeat in loops(self.groups.tapes.beside(group), self.home):
                    self._add(repeat)
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
        runs = [copy for run in writes.runs for copy in self.groups.tapes.taped(run)]
        for run in runs:
            self.home(run.kind.storage)
            self.home(run.kind.reads[0][0].storage)
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
            step = ReadStep(view.dtype, each.shape, strides, source)
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
            case LoopEntry(loop=group):
                for repeat in loops(group, self.home):
                    self._add(repeat)
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
        kind = self.groups.kind(storage, dtype, (), (), Pattern((NumberStep(dtype),)))
        offsets = offsets_of(dtype, numbers)
        run = Run(kind, offsets, offsets, offsets, [list(numbers.values())])  # a whole write does not ask for places
        return whole_write(run, _no_reads, ref)

    # -- old readers

    def _save_readers(self) -> None:
        """Keep what living readers outside this slice still need of bytes that it overwrites."""
        for storage, ref in list(self.homes.items()):
            if storage in self.marks:
                self._save_origin(storage, ref)
        for node in self.slice.lost:
            taped = self.groups.tapes.places.get(node)
            if taped is not None:
                self.saved.append((weakref.ref(node), self.homes[taped[0]], taped[1]))
                continue
            match node.op:
                case Read(storage=Storage() as storage, view=view, stamp=seen):
                    ref = self.homes[storage]
                    self._save(node, read_at(ref, view, self.position(storage, seen)), ref.device)
                case _:
                    pass

    def _save_origin(self, storage: Storage, ref: BufferRef) -> None:
        """Keep the computed value that the bytes were, where somebody still uses it."""
        node = storage.origin() if storage.origin is not None else None
        if node is not None and node.place is not None and node.place[0] is ref:
            self._save(node, read_at(ref, View.contiguous(node.dtype, node.shape), 0), ref.device)
        storage.origin = None

    def _save(self, node: Node, value: Node, device: str) -> None:
        """Compute the value of a node for those who hold it."""
        fresh = self._output(value, device)
        self.saved.append((weakref.ref(node), fresh, View.contiguous(value.dtype, value.shape)))

    def _commit(self, renamed: dict[BufferRef, BufferRef]) -> None:
        """Retire the entries that have run."""
        for storage, ref in self.homes.items():
            storage.ref = renamed.get(ref, ref)
            storage.base = None
            storage.retire(self.slice.stamps.get(storage, 0))
        for storage in self.groups.done:
            storage.base = None
            storage.retire(self.slice.stamps[storage])
        for reference, ref, view in self.saved:
            node = reference()
            if node is not None:
                node.place = renamed.get(ref, ref), view


def _read_buffer(position: int, storage: Storage, view: View) -> Node:
    """A view of a storage's buffer just before a statement."""
    assert storage.ref is not None
    return read_at(storage.ref, view, position)


def _no_reads(storage: Storage, view: View) -> Node:
    """Numbers read nothing."""
    raise InternalError("journal: a segment of numbers has no reads")
