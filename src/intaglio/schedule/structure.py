"""The structure of a program: what is left when its buffers are numbered and its numbers and starts are taken out.

Programs of one structure need the same kernels, with other pointers and arguments: the plan of one serves all.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from intaglio.core.dtypes import DType
from intaglio.core.errors import InternalError
from intaglio.ir.node import Node, Op, make, rebuild, toposort
from intaglio.ir.view import View
from intaglio.ops.composite import Composite
from intaglio.ops.elementwise import Detach, Elementwise, Sloped
from intaglio.ops.loop import Range
from intaglio.ops.memory import Buffer, BufferRef, Const, Read, buffer
from intaglio.ops.viewed import view_of
from intaglio.schedule.kernels import offsets_of, stays
from intaglio.schedule.program import Hole, Output, Program, ReadAt, Repeat, Write, read_at, values_of, writes_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from intaglio.schedule.program import Statement

is_plain: Final = lru_cache(maxsize=4096)(stays)
bounds: Final = lru_cache(maxsize=4096)(View.byte_bounds)


def cut(views: Sequence[View]) -> tuple[int, int]:
    """Where what some views of a buffer see begins, and how many bytes it takes.

    Mostly only the distances between the views of a buffer matter, not how many bytes lie before and after them.
    """
    low, high = bounds(views[0])
    item = views[0].dtype.itemsize
    for view in views[1:]:
        first, end = bounds(view)
        low, high, item = min(low, first), max(high, end), max(item, view.dtype.itemsize)
    start = low // item * item
    return start, high - start


def part_of(views: Sequence[View]) -> int | None:
    """Which of all views through which a buffer is read counts as one of a buffer of its own, if any does.

    Of two, the one that lies within the other. So a row of a table that is read elsewhere as well is any row.
    """
    if len(views) != 2:
        return None
    (low, high), (first, end) = bounds(views[0]), bounds(views[1])
    if (low, high) == (first, end) or (low - first) * (high - end) > 0:
        return None
    return int(high - low > end - first)


class _Uses:
    """What a program does with one buffer."""

    __slots__ = ("number", "read", "start", "views", "whole", "written")

    def __init__(self, number: int, *, whole: bool) -> None:
        self.number: Final = number
        self.views: Final[list[View]] = []
        self.read: bool = False
        self.written: bool = False
        self.whole: bool = whole  # seen as all of its bytes, or yet to be allocated
        self.start: int = 0  # the byte from which the structure sees the buffer

    def cut(self, nbytes: int) -> int:
        """Find the start in a buffer of so many bytes, and the bytes that the structure sees."""
        if self.whole or (self.read and self.written):
            return nbytes
        self.start, seen = cut(self.views)
        return seen

    def moved(self, view: View) -> View:
        """A view from where the structure sees the buffer."""
        start = self.start
        return View(view.dtype, view.shape, view.strides, view.offset - start) if start else view


class WriteForm(NamedTuple):
    """A `Write` by numbers: of its buffer and of its values."""

    ref: int
    view: View
    combine: str
    value: int
    indices: tuple[int, ...]
    offset: int | None


class RepeatForm(NamedTuple):
    """A `Repeat` by numbers."""

    counter: int
    arms: tuple[tuple[WriteForm, ...], ...]
    selector: int | None
    free: bool
    joined: bool


class BufferForm(NamedTuple):
    """What a structure says of a buffer."""

    device: str
    nbytes: int
    fresh: bool
    keep: bool = False
    pinned: bool = False


class OutputForm(NamedTuple):
    """An `Output` by the number of its value."""

    value: int
    view: View
    device: str
    nbytes: int


class Key(NamedTuple):
    """A structure: everything that planning may look at, and enough to make a program of it."""

    values: tuple[tuple[Hashable, ...], ...]  # an op and the numbers of its inputs; or read, view, buffer, hole...
    statements: tuple[WriteForm | RepeatForm, ...]
    buffers: tuple[BufferForm, ...]
    outputs: tuple[OutputForm, ...]


class Structure:
    """A program taken apart: a key, equal for programs of one structure, and what was taken out to make it so.

    Attributes:
        key: All that planning may look at.
        refs: The buffers in order of first use, then those of outputs.
        starts: For each, the byte from which the structure sees it.
        numbers: The literals that kernels take as arguments.
        size: How many values the program has.
    """

    def __init__(self, program: Program) -> None:
        self._program: Final = program
        roots = [value for statement in program.statements for value in values_of(statement)]
        roots += [output.value for output in program.outputs]
        self._order: Final = _in_order(program, roots)
        at = self._at = {node: number for number, node in enumerate(self._order)}
        self._uses: Final[dict[BufferRef, _Uses]] = {}
        self._reads: Final[list[tuple[int, _Uses, ReadAt]]] = []  # by the number of the value
        values, self._holes = self._taken_apart({root for root in roots if isinstance(root.op, Const)})
        for statement in program.statements:
            for write in writes_of(statement):
                self._see(write.ref, write.view if write.offset is None else None).written = True
        seen = [*self._uses.items(), *self._parts()]
        buffers = tuple([self._buffer(ref, uses) for ref, uses in seen])
        for number, uses, read in self._reads:
            values[number] = ("read", uses.number, uses.moved(read.view), read.position)
        for number, node in enumerate(self._holes):
            values[at[node]] = ("hole", number, node.dtype)
        statements = tuple([self._form(statement) for statement in program.statements])
        outputs = tuple([OutputForm(at[value], view, ref.device, ref.nbytes) for ref, view, value in program.outputs])
        self.key: Final = Key(tuple(values), statements, buffers, outputs)
        self.refs: Final = [*[ref for ref, _ in seen], *[output.ref for output in program.outputs]]
        self.starts: Final = [*[uses.start for _, uses in seen], *[0] * len(outputs)]
        self.numbers: Final[list[Const]] = [node.op for node in self._holes if isinstance(node.op, Const)]
        self.size: Final = len(self._order)

    @property
    def largest(self) -> int:
        """The elements of its largest value."""
        return max((node.size for node in self._order), default=0)

    def _taken_apart(self, stay: set[Node]) -> tuple[list[tuple[Hashable, ...]], list[Node]]:
        """Every value by numbers, but reads, which are noted; and the literals that kernels take as arguments.

        Those are the ones that only arithmetic uses.

        Args:
            stay: Literals that something else uses.
        """
        reads, views = self._program.reads, self._program.views
        fixed = offsets_of(self._program.statements)
        at = self._at
        literals = False  # whether any came so far
        lifted: dict[Node, None] = {}
        values: list[tuple[Hashable, ...]] = []
        for node in self._order:
            op = reads.get(node) or node.op
            kind = op.__class__
            if isinstance(op, ReadAt):
                uses = self._see(op.ref, op.view)
                uses.read = True
                self._reads.append((len(values), uses, op))
                values.append(())
            elif kind is Const:
                literals = True
                values.append((op,))
            elif isinstance(op, Buffer):
                uses = self._see(op.ref, None)
                uses.read = True
                values.append(("buffer", uses.number))
            elif isinstance(op, Read):
                values.append(("view", op.view, at[views[node]]))
            elif kind is Range:
                values.append(("range", at[node.src[0]]))
                stay.update(node.src)
            else:
                values.append((op, *[at[source] for source in node.src]))
                if literals:
                    self._sort(node, op, lifted, stay, fixed)
        return values, [node for node in lifted if node not in stay]

    def _sort(self, node: Node, op: Op, lifted: dict[Node, None], stay: set[Node], fixed: set[Node]) -> None:
        """Put the literals that a value uses to those that are taken out, or that stay."""
        lifts = isinstance(op, (Elementwise, Composite)) and not isinstance(op, Detach) and node not in fixed
        for source in node.src:
            if isinstance(source.op, Const):
                if lifts and not is_plain(source.op):
                    lifted[source] = None
                else:
                    stay.add(source)

    def _see(self, ref: BufferRef, view: View | None) -> _Uses:
        """One more use of a buffer: through a view, or as a whole."""
        uses = self._uses.get(ref)
        if uses is None:
            uses = self._uses[ref] = _Uses(len(self._uses), whole=ref in self._program.fresh)
        if view is None:
            uses.whole = True
        else:
            uses.views.append(view)
        return uses

    def _parts(self) -> list[tuple[BufferRef, _Uses]]:
        """Parts of buffers that are only read, which have numbers of their own (`part_of`)."""
        parts: dict[_Uses, tuple[BufferRef, _Uses]] = {}
        for ref, uses in self._uses.items():
            inner = None if uses.written or uses.whole else part_of(uses.views)
            if inner is not None:
                part = _Uses(len(self._uses) + len(parts), whole=False)
                part.views.append(uses.views.pop(inner))
                parts[uses] = ref, part
        if parts:
            for place, (number, uses, read) in enumerate(self._reads):
                part = parts.get(uses)
                if part is not None and read.view in part[1].views:
                    self._reads[place] = number, part[1], read
        return list(parts.values())

    def _buffer(self, ref: BufferRef, uses: _Uses) -> BufferForm:
        """What is said of a buffer; of one that is only read, that it is there."""
        nbytes = uses.cut(ref.nbytes)
        if not uses.written:
            return BufferForm(ref.device, nbytes, ref in self._program.fresh)
        program = self._program
        return BufferForm(ref.device, nbytes, ref in program.fresh, ref in program.keep, ref in program.pinned)

    def _form(self, statement: Statement) -> WriteForm | RepeatForm:
        """A statement by numbers."""
        if isinstance(statement, Write):
            return self._write(statement)
        arms = tuple(tuple(self._write(w) for w in arm) for arm in statement.arms)
        selector = statement.selector
        which = None if selector is None else self._at[selector]
        return RepeatForm(self._at[statement.counter], arms, which, statement.free, statement.joined)

    def _write(self, write: Write) -> WriteForm:
        """A write by numbers."""
        at, uses = self._at, self._uses[write.ref]
        indices = tuple([at[index] for index in write.indices])
        offset = None if write.offset is None else at[write.offset]
        return WriteForm(uses.number, uses.moved(write.view), write.combine, at[write.value], indices, offset)


def stand_in(key: Key) -> tuple[Program, list[BufferRef]]:
    """A program of a structure over buffers that have no bytes, with `Hole`s for numbers; and those buffers."""
    refs = [BufferRef(form.nbytes, form.device) for form in key.buffers]
    done: list[Node] = []
    for number, form in enumerate(key.values):
        match form:
            case ("read", int(ref), View() as view, int(position)):
                made = read_at(refs[ref], view, position)
            case ("view", View() as view, int(src)):
                made = view_of(view, done[src])
            case ("buffer", int(ref)):
                made = buffer(refs[ref])
            case ("hole", int(hole), DType() as dtype):
                made = make(Hole(hole, dtype))
            case ("range", int(bound)):
                made = make(Range(number), done[bound])
            case (Detach(), int(src)):
                made = done[src]
            case (Composite() as op, *src):
                made = _undetached(op, [done[s] for s in src if isinstance(s, int)])
            case (Sloped() as op, *src):
                made = op.planned(*[done[s] for s in src if isinstance(s, int)])
            case (Op() as op, *src):
                made = make(op, *[done[s] for s in src if isinstance(s, int)])
            case _:
                raise InternalError(f"structure: no value is written {form}")
        done.append(made)

    def write(form: WriteForm) -> Write:
        indices = tuple(done[i] for i in form.indices)
        offset = None if form.offset is None else done[form.offset]
        return Write(refs[form.ref], form.view, done[form.value], indices, form.combine, offset)

    statements: list[Statement] = []
    for form in key.statements:
        if isinstance(form, RepeatForm):
            selector = None if form.selector is None else done[form.selector]
            arms = tuple(tuple(write(w) for w in arm) for arm in form.arms)
            statements.append(Repeat(done[form.counter], arms, selector, form.free, form.joined))
        else:
            statements.append(write(form))
    fresh, keep, pinned = (
        {ref for ref, form in zip(refs, key.buffers, strict=True) if getattr(form, of)}
        for of in ("fresh", "keep", "pinned")
    )
    outputs = [Output(BufferRef(form.nbytes, form.device), form.view, done[form.value]) for form in key.outputs]
    program = Program(statements, fresh=fresh, keep=keep, pinned=pinned, outputs=outputs)
    return program, [*refs, *[output.ref for output in outputs]]


def _undetached(op: Composite, src: list[Node]) -> Node:
    """A composite op written out, without what only gradients ask for."""
    root = op.written_out(*src)
    done: dict[Node, Node] = {}
    for node in toposort((root,), enter=lambda node: node not in src):
        if isinstance(node.op, Detach):
            done[node] = done[node.src[0]]
        elif isinstance(node.op, Sloped):
            done[node] = node.op.planned(*[done[s] for s in node.src])
        else:
            done[node] = node if node in src else rebuild(node, tuple([done[s] for s in node.src]))
    return done[root]


def _in_order(program: Program, roots: list[Node]) -> list[Node]:
    """The values of a program, inputs before users; those that are read have no inputs."""
    if program.order is not None:
        return program.order
    reads = program.reads
    return toposort(roots, enter=lambda node: node not in reads)
