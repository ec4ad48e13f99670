"""The structure of a program: what is left when its buffers are numbered and its numbers and starts are taken out.

Programs of one structure need the same kernels, with other pointers and arguments: the plan of one serves all.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from intaglio.core.dtypes import DType
from intaglio.core.errors import InternalError
from intaglio.ir.node import Node, Op, make, toposort
from intaglio.ir.view import View
from intaglio.ops.elementwise import Detach, Elementwise
from intaglio.ops.loop import Range
from intaglio.ops.memory import Buffer, BufferRef, Const, buffer
from intaglio.schedule.kernels import offsets_of, stays
from intaglio.schedule.program import Hole, Program, ReadAt, Repeat, Write, read_at

if TYPE_CHECKING:
    from collections.abc import Hashable

    from intaglio.schedule.program import Statement

is_plain: Final = lru_cache(maxsize=4096)(stays)


@dataclass(slots=True)
class _Uses:
    """What a program does with one buffer."""

    number: int
    low: int = 1 << 62  # the first byte of its views
    high: int = 0  # the byte past the last
    item: int = 1  # the size of their largest elements
    read: bool = False
    written: bool = False
    whole: bool = False  # seen as all of its bytes, or yet to be allocated

    @property
    def moves(self) -> bool:
        """Whether only the distances between its views matter, not how many bytes lie before and after them."""
        return not (self.whole or (self.read and self.written))

    @property
    def start(self) -> int:
        """The byte from which the structure sees the buffer."""
        return self.low // self.item * self.item if self.moves else 0

    def size(self, ref: BufferRef) -> int:
        """The bytes that the structure sees."""
        return self.high - self.start if self.moves else ref.nbytes


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
    keep: bool
    pinned: bool


class Key(NamedTuple):
    """A structure: everything that planning may look at, and enough to make a program of it."""

    values: tuple[tuple[Hashable, ...], ...]  # an op and the numbers of its inputs; or read, buffer, hole, range
    statements: tuple[WriteForm | RepeatForm, ...]
    buffers: tuple[BufferForm, ...]
    floating: tuple[int, ...]


class Structure:
    """A program taken apart: a key, equal for programs of one structure, and what was taken out to make it so.

    Attributes:
        key: All that planning may look at.
        refs: The buffers in order of first use.
        starts: For each, the byte from which the structure sees it.
        numbers: The literals that kernels take as arguments.
        size: How many values the program has.
    """

    def __init__(self, program: Program) -> None:
        self._program: Final = program
        self._statements: Final = [(s, _arms(s), _values(s)) for s in program.statements]
        roots = [value for _, _, values in self._statements for value in values]
        reads = program.reads
        self._order: Final = toposort(roots, enter=lambda node: node not in reads)
        self._uses: Final[dict[BufferRef, _Uses]] = {}
        self._holes: Final[dict[Node, int]] = {}
        self._survey(set(roots))
        self.refs: Final = list(self._uses)
        self.starts: Final = [uses.start for uses in self._uses.values()]
        self.numbers: Final = [node.op for node in self._holes if isinstance(node.op, Const)]
        self.size: Final = len(self._order)
        self.key: Final = self._key()

    @property
    def largest(self) -> int:
        """The elements of its largest value."""
        return max((node.size for node in self._order), default=0)

    def _survey(self, stay: set[Node]) -> None:
        """See what is done with each buffer, and which literals kernels take as arguments wherever they are used."""
        reads = self._program.reads
        fixed = offsets_of(self._program.statements)
        found: dict[Node, None] = {}
        for node in self._order:
            op = reads.get(node) or node.op
            if isinstance(op, ReadAt):
                self._note(op.ref, op.view).read = True
                continue
            if isinstance(op, Buffer):
                self._note(op.ref, None).read = True
            lifts = isinstance(op, Elementwise) and not isinstance(op, Detach) and node not in fixed
            for source in node.src:
                if isinstance(source.op, Const):
                    if lifts and not is_plain(source.op):
                        found[source] = None
                    else:
                        stay.add(source)
        for _, arms, _ in self._statements:
            for write in itertools.chain(*arms):
                self._note(write.ref, write.view if write.offset is None else None).written = True
        for node in found:
            if node not in stay:
                self._holes[node] = len(self._holes)

    def _note(self, ref: BufferRef, view: View | None) -> _Uses:
        """One more use of a buffer: through a view, or as a whole."""
        uses = self._uses.get(ref)
        if uses is None:
            uses = self._uses[ref] = _Uses(len(self._uses), whole=ref in self._program.fresh)
        if view is None:
            uses.whole = True
        else:
            low, high = view.byte_bounds()
            uses.low = min(uses.low, low)
            uses.high = max(uses.high, high)
            uses.item = max(uses.item, view.dtype.itemsize)
        return uses

    def _key(self) -> Key:
        """Every value, statement and buffer, by number."""
        program = self._program
        reads = program.reads
        at: dict[Node, int] = {}
        values: list[tuple[Hashable, ...]] = []
        for node in self._order:
            at[node] = len(at)
            match reads.get(node) or node.op:
                case ReadAt(ref=ref, view=view, position=position):
                    values.append(("read", self._uses[ref].number, self._moved(ref, view), position))
                case Buffer(ref=ref):
                    values.append(("buffer", self._uses[ref].number))
                case Const() if node in self._holes:
                    values.append(("hole", self._holes[node], node.dtype))
                case Range():
                    values.append(("range", at[node.src[0]]))
                case op:
                    values.append((op, *[at[s] for s in node.src]))

        def write(w: Write) -> WriteForm:
            ref, offset = self._uses[w.ref].number, w.offset
            return WriteForm(
                ref,
                self._moved(w.ref, w.view),
                w.combine,
                at[w.value],
                tuple([at[i] for i in w.indices]),
                None if offset is None else at[offset],
            )

        statements: list[WriteForm | RepeatForm] = []
        for statement in program.statements:
            if isinstance(statement, Repeat):
                arms = tuple(tuple(write(w) for w in arm) for arm in statement.arms)
                selector = statement.selector
                which = None if selector is None else at[selector]
                form = RepeatForm(at[statement.counter], arms, which, statement.free, statement.joined)
                statements.append(form)
            else:
                statements.append(write(statement))
        buffers = [
            BufferForm(ref.device, uses.size(ref), ref in program.fresh, ref in program.keep, ref in program.pinned)
            for ref, uses in self._uses.items()
        ]
        return Key(tuple(values), tuple(statements), tuple(buffers), tuple(sorted(program.floating)))

    def _moved(self, ref: BufferRef, view: View) -> View:
        """A view from where the structure sees its buffer."""
        start = self._uses[ref].start
        return view if not start else View(view.dtype, view.shape, view.strides, view.offset - start)


def stand_in(key: Key) -> tuple[Program, list[BufferRef]]:
    """A program of a structure over buffers that have no bytes, with `Hole`s for numbers; and those buffers."""
    refs = [BufferRef(form.nbytes, form.device) for form in key.buffers]
    done: list[Node] = []
    for number, form in enumerate(key.values):
        match form:
            case ("read", int(ref), View() as view, int(position)):
                made = read_at(refs[ref], view, position)
            case ("buffer", int(ref)):
                made = buffer(refs[ref])
            case ("hole", int(hole), DType() as dtype):
                made = make(Hole(hole, dtype))
            case ("range", int(bound)):
                made = make(Range(number), done[bound])
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
    return Program(statements, {}, fresh, keep, set(key.floating), pinned), refs


def _arms(statement: Statement) -> tuple[tuple[Write, ...], ...]:
    """The writes of a statement, by arm."""
    return statement.arms if isinstance(statement, Repeat) else ((statement,),)


def _values(statement: Statement) -> list[Node]:
    """The values of a statement, in a fixed order."""
    found: list[Node] = []
    for write in itertools.chain(*_arms(statement)):
        found += (write.value, *write.indices)
        if write.offset is not None:
            found.append(write.offset)
    if isinstance(statement, Repeat):
        found.append(statement.counter)
        if statement.selector is not None:
            found.append(statement.selector)
    return found
