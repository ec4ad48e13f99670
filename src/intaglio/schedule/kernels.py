"""Statements as kernels: pointers for buffers, arguments for literals, so that equal work has one text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import InternalError
from intaglio.core.size import NOMINAL, varies
from intaglio.ir.node import Node, make, rebuild, toposort, walk
from intaglio.ir.view import View
from intaglio.ops.elementwise import Cast, Detach, Elementwise, and_, bitcast, cast, mul, or_, shl, shr
from intaglio.ops.loop import BLOCK, FOR, PROLOGUE, SWITCH, For, Range, Rows, Store, StoreAt, sink, store
from intaglio.ops.memory import Arg, Buffer, BufferRef, Const, Local, Param, Take, Window, const, iota, window
from intaglio.ops.movement import expand, reshape, shrink
from intaglio.ops.reduce import Reduce, Scan
from intaglio.schedule.chains import Chain
from intaglio.schedule.program import Hole, Repeat, Statement, Write, turns_of
from intaglio.schedule.prologues import Prologued

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.ir.node import Op
    from intaglio.schedule.prologues import Group

PLAIN: Final = (0, 1, -1, 2, 0.5)  # literals that stay in the text: they simplify
Slot: TypeAlias = tuple[BufferRef | DType | Hole, int]


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """A kernel not yet compiled: its AST, and what its arguments are (buffer and byte, dtype and bits, or a hole)."""

    ast: Node
    slots: tuple[Slot, ...]
    device: str
    metadata: tuple[str, ...]
    nbytes: int
    size_slot: int | None = None  # the slot of the size, of a kernel at the nominal size
    size: int = 0  # what it is in this run

    @property
    def written(self) -> list[BufferRef]:
        """The buffers that are stored to."""
        return [slot[0] for k in written_slots(self.ast) if isinstance((slot := self.slots[k])[0], BufferRef)]

    @property
    def buffers(self) -> list[BufferRef]:
        """The buffers, each once, in order of first use."""
        return list(dict.fromkeys(slot[0] for slot in self.slots if isinstance(slot[0], BufferRef)))


@dataclass(frozen=True, slots=True)
class Copy:
    """A move of bytes between devices: the elements of a view of a buffer to the start of another."""

    source: BufferRef
    view: View
    target: BufferRef

    @property
    def buffers(self) -> list[BufferRef]:
        """The buffers that it touches."""
        return [self.source, self.target]


def written_slots(ast: Node) -> list[int]:
    """The slots of the pointers through which a kernel stores."""
    pointers = [n.src[0].src[0].op for n in walk((ast,)) if isinstance(n.op, (Store, StoreAt))]
    return [*dict.fromkeys(pointer.slot for pointer in pointers if isinstance(pointer, Param))]


def build(statements: Group) -> PlannedKernel:
    """Statements that share a kernel, as that kernel."""
    match statements:
        case Chain(writes=writes, lead=lead, sheets=sheets):
            return _Builder().in_scratch(Rows(lead, sheets), writes)
        case Prologued(writes=writes):
            return _Builder().in_scratch(PROLOGUE, writes)
        case _:
            return _Builder().build(statements)


def sized(kernel: PlannedKernel) -> PlannedKernel:
    """A kernel with a slot for the size, if it is at the nominal size."""
    if not any(_varies(node) for node in walk((kernel.ast,))):
        return kernel
    slots = (*kernel.slots, (dtypes.int64, NOMINAL))
    return replace(kernel, slots=slots, size_slot=len(kernel.slots))


def _varies(node: Node) -> bool:
    """Whether an integer of a node depends on the size."""
    match node.op:
        case Const(of=of) as op:
            return of is dtypes.int64 and varies(int(op.value))
        case Window(view=view):
            numbers = (*view.shape, *view.strides, view.offset)
        case _:
            numbers = node.shape
    return any(map(varies, numbers))


class _Builder:
    """The slots of one kernel in the making."""

    def __init__(self) -> None:
        self.slots: Final[list[Slot]] = []
        self.params: Final[dict[tuple[BufferRef, DType, int], Node]] = {}
        self.groups: Final[dict[BufferRef, int]] = {}
        self.scratch: Final[dict[BufferRef, Node]] = {}  # what takes the place of buffers that only a chain knows
        self.done: Final[dict[Node, Node]] = {}
        self.names: Final[dict[str, None]] = {}
        self.fixed: Final[set[Node]] = set()  # byte offsets of sequential loops: their steps stay in the text
        self.counters: Final[dict[Node, int]] = {}
        self.stored: int = 0  # bytes
        self.loaded: Final[dict[Node, int]] = {}  # bytes of each window
        self.turns: int = 1  # how often what moves with the counter of the loop around is moved
        self.repeats: bool = False  # whether what is computed is so in each turn

    @property
    def nbytes(self) -> int:
        """Bytes that are moved."""
        return self.stored + sum(self.loaded.values())

    def build(self, statements: list[Statement]) -> PlannedKernel:
        """The kernel."""
        self.fixed.update(offsets_of(statements))
        nodes = [self.repeat(s) if isinstance(s, Repeat) else self.write(s) for s in statements]
        first = statements[0]
        ref = first.arms[0][0].ref if isinstance(first, Repeat) else first.ref
        return PlannedKernel(sink(*nodes), tuple(self.slots), ref.device, tuple(self.names), self.nbytes)

    def in_scratch(self, op: Op, writes: Sequence[Write]) -> PlannedKernel:
        """The kernel of writes that run together, what only the others read in scratch."""
        *makers, last = writes
        for uid, write in enumerate(makers):
            self.scratch[write.ref] = make(Local(uid, write.view.dtype, write.value.size))
        statement = make(op, *map(self.write, writes))
        return PlannedKernel(sink(statement), tuple(self.slots), last.ref.device, tuple(self.names), self.nbytes)

    def param(self, ref: BufferRef, dtype: DType, shift: int) -> Node:
        """The pointer argument for a buffer seen as a dtype, from a byte that its elements are aligned with."""
        key = (ref, dtype, shift)
        found = self.params.get(key)
        if found is None:
            group = self.groups.setdefault(ref, len(self.groups))
            found = self.params[key] = make(Param(len(self.slots), dtype, group))
            self.slots.append((ref, shift))
        return found

    def argument(self, dtype: DType, slot: Slot) -> Node:
        """A scalar argument."""
        self.slots.append(slot)
        return make(Arg(len(self.slots) - 1, dtype))

    def place(self, view: View, ref: BufferRef, offset: Node | None) -> Node:
        """A window on a buffer; a byte offset that is not 0 becomes an argument."""
        item = view.dtype.itemsize
        shift = view.offset % item
        if _is_crooked(view):
            raise InternalError("schedule: the strides of a kernel's window must be multiples of its item size")
        strides = tuple(s if n > 1 else 0 for s, n in zip(view.strides, view.shape, strict=True))
        if ref in self.scratch:
            return window(View(view.dtype, view.shape, strides, view.offset), self.scratch[ref])
        pointer = self.param(ref, view.dtype, shift)
        start = view.offset - shift
        fixed = View(view.dtype, view.shape, strides, 0)
        if offset is not None:
            return window(View(view.dtype, view.shape, strides, start), pointer, offset)
        if start == 0:
            return window(fixed, pointer)
        return window(fixed, pointer, self.argument(dtypes.int64, (dtypes.int64, dtypes.int64.to_bits(start))))

    def value(self, root: Node) -> Node:
        """A value over pointers and arguments."""
        done = self.done
        order = toposort(
            (root,),
            enter=lambda n: (
                n not in done and not (isinstance(n.op, Window) and isinstance(n.src[0].op, Buffer) and len(n.src) == 1)
            ),
        )
        self.count(order)
        for node in order:
            if node in done:
                continue
            op = node.op
            match op:
                case Window(view=view) if isinstance(source := node.src[0].op, Buffer):
                    offset = done[node.src[1]] if len(node.src) > 1 else None
                    if _is_crooked(view):
                        done[node] = _from_bytes(self.place(_bytes_of(view), source.ref, offset), view)
                    else:
                        done[node] = self.place(view, source.ref, offset)
                case Range():
                    done[node] = make(
                        Range(1_000_000 + self.counters.setdefault(node, len(self.counters))), node.src[0]
                    )
                case Buffer():
                    done[node] = node
                case Detach():
                    done[node] = done[node.src[0]]
                case Elementwise():
                    lift = node not in self.fixed
                    src = [self.literal(s) if lift and not s.src else done[s] for s in node.src]
                    done[node] = make(op, *src)
                    if not isinstance(op, Cast):
                        self.names[op.name] = None
                case _:
                    done[node] = rebuild(node, tuple(done[s] for s in node.src)) if node.src else node
                    if isinstance(op, (Reduce, Scan)):
                        self.names[op.kind] = None
                    elif isinstance(op, Take):
                        self.names[op.name] = None
        return done[root]

    def count(self, order: list[Node]) -> None:
        """Note the bytes that are loaded for a value: of what elements are taken from, those of so many."""
        taken = not self.repeats and any(isinstance(n.op, Take) for n in order)
        needed = _needed(order) if taken else {}
        for node in order:
            if isinstance(node.op, Window) and isinstance(of := node.src[0].op, Buffer) and of.ref not in self.scratch:
                whole = own = _different(node.op.view)
                if needed.get(node, node.size) != node.size:
                    own = _least(needed[node] * node.dtype.itemsize, whole)
                turns = self.turns if len(node.src) > 1 else 1
                before = self.loaded.get(node, 0)  # by other statements, where they take others
                own = own * turns if own == whole else before + own * turns
                self.loaded[node] = max(before, _least(own, whole * turns))

    def literal(self, node: Node) -> Node:
        """A number as an argument, unless it is one that simplifies."""
        found = self.done[node]
        if found is node:
            match node.op:
                case Const(of=of, bits=bits) as op if not stays(op):
                    found = self.done[node] = self.argument(of, (of, bits))
                case Hole(of=of) as op:
                    found = self.done[node] = self.argument(of, (op, 0))
                case _:
                    pass
        return found

    def write(self, statement: Write) -> Node:
        """A write as a store."""
        value = self.value(statement.value)
        indices = tuple(self.value(i) for i in statement.indices)
        offset = self.value(statement.offset) if statement.offset is not None else None
        view = statement.view
        if _is_crooked(view):
            view, value = _bytes_of(view), _to_bytes(value)
            rank = indices[0].rank if indices else 0
            wide = (*value.shape[:rank],) if indices else ()
            indices = tuple(expand(i, wide) if i.shape != wide else i for i in indices)
        target = self.place(view, statement.ref, offset)
        if statement.ref not in self.scratch:
            self.stored += value.nbytes * (self.turns if offset is not None else 1)
        if indices or statement.combine != "set":
            return make(StoreAt(statement.combine), target, value, *indices)
        return store(target, value)

    def repeat(self, statement: Repeat) -> Node:
        """A sequential loop (of whose arms, if there are more, each is taken to run equally often)."""
        self.turns, self.repeats = max(1, turns_of(statement) // len(statement.arms)), True
        arms = [[self.write(w) for w in arm] for arm in statement.arms]
        self.turns = 1
        which = None if statement.selector is None else self.value(statement.selector)
        counter, self.repeats = self.value(statement.counter), False
        if which is None:
            return make(For(statement.free), counter, *arms[0])
        return make(FOR, counter, make(SWITCH, which, *(make(BLOCK, *arm) for arm in arms)))


def _needed(order: list[Node]) -> dict[Node, int]:
    """How many elements of each node the last one needs at most: fewer than all of what elements are taken from.

    Args:
        order: Nodes, inputs before users.
    """
    needed = {order[-1]: order[-1].size}
    for node in reversed(order):
        count = needed[node]
        for source in node.src:
            whole = source.size
            taking = isinstance(node.op, Take) and source is node.src[0]  # elsewhere than others that take from it
            match node.op:
                case Take() if taking:
                    own = _least(count, whole)
                case Reduce() if count < node.size:
                    own = min(count * (whole // node.size), whole)
                case Scan():
                    own = whole
                case _:
                    own = min(count, whole) if count < node.size else whole
            before = needed.get(source, 0)
            needed[source] = _least(before + own, whole) if taking else max(before, own)
    return needed


def _different(view: View) -> int:
    """How many bytes a view shows, at most: those that it shows more than once count once."""
    low, high = view.byte_bounds()
    return _least(prod(n for n, s in zip(view.shape, view.strides, strict=True) if s) * view.dtype.itemsize, high - low)


def _least(count: int, most: int) -> int:
    """A count, but not more than there is; which of them is less is not asked where one varies with the size."""
    return count if varies(count) or varies(most) else min(count, most)


def stays(op: Const) -> bool:
    """Whether a literal stays in a kernel's text: it simplifies, or (a NaN) is equal to nothing."""
    value = op.value
    return op.of.is_bool or value in PLAIN or value != value


def offsets_of(statements: list[Statement]) -> set[Node]:
    """The nodes that compute the byte offsets of sequential loops."""
    roots: list[Node] = []
    for statement in statements:
        if isinstance(statement, Repeat):
            for arm in statement.arms:
                for write in arm:
                    roots.extend(n.src[1] for n in walk((write.value,)) if isinstance(n.op, Window) and len(n.src) > 1)
                    if write.offset is not None:
                        roots.append(write.offset)
    return set(toposort(roots)) if roots else set()


def _is_crooked(view: View) -> bool:
    """Whether elements of a view lie at distances that are no multiple of their size (rows of bytes seen as words)."""
    item = view.dtype.itemsize
    return any(s % item for s, n in zip(view.strides, view.shape, strict=True) if n > 1)


def _bytes_of(view: View) -> View:
    """A view's bytes, along a last axis."""
    return View(dtypes.uint8, (*view.shape, view.dtype.itemsize), (*view.strides, 1), view.offset)


def _word(dtype: DType) -> DType:
    """The unsigned integer of a dtype's size."""
    return {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}[dtype.bits]


def _from_bytes(pieces: Node, view: View) -> Node:
    """Elements put together from their bytes."""
    word = _word(view.dtype)
    total: Node | None = None
    for k in range(view.dtype.itemsize):
        bounds = (*((0, n) for n in view.shape), (k, k + 1))
        piece = cast(reshape(shrink(pieces, bounds), view.shape), word)
        moved = shl(piece, const(word, 8 * k)) if k else piece
        total = moved if total is None else or_(total, moved)
    assert total is not None
    return bitcast(total, view.dtype)


def _to_bytes(value: Node) -> Node:
    """Elements taken apart into bytes, along a last axis."""
    word = _word(value.dtype)
    size = value.dtype.itemsize
    shape = (*value.shape, size)
    wide = expand(reshape(bitcast(value, word), (*value.shape, 1)), shape)
    place = expand(reshape(cast(iota(size), word), (1,) * value.rank + (size,)), shape)
    return cast(and_(shr(wide, mul(place, const(word, 8))), const(word, 255)), dtypes.uint8)
