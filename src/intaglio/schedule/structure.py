"""The structure of a program: what is left when its buffers are numbered and its numbers and starts are taken out.

Programs of one structure need the same kernels, with other pointers and arguments: the plan of one serves all.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, make, rebuild, toposort
from intaglio.ir.view import View
from intaglio.ops.elementwise import Detach, Elementwise
from intaglio.ops.loop import Range
from intaglio.ops.memory import Buffer, BufferRef, Const, buffer
from intaglio.schedule.kernels import offsets_of, stays
from intaglio.schedule.program import Hole, Program, ReadAt, Repeat, Write, read_at

if TYPE_CHECKING:
    from collections.abc import Hashable

    from intaglio.schedule.program import Statement

ALIGNED: Final = 8  # bytes: where a buffer is taken to start, every element stays aligned
is_plain: Final = lru_cache(maxsize=4096)(stays)


@dataclass(slots=True)
class _Uses:
    """What a program does with one buffer."""

    number: int
    low: int = 1 << 62  # the first byte of its views
    high: int = 0  # the byte past the last
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
        return self.low // ALIGNED * ALIGNED if self.moves else 0


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
        self.key: Final[Hashable] = self._key()

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
        return uses

    def _key(self) -> Hashable:
        """Every value, statement and buffer, by number."""
        program = self._program
        reads = program.reads
        at: dict[Node, int] = {}
        counters = 0
        items: list[Hashable] = []
        for node in self._order:
            at[node] = len(at)
            read = reads.get(node)
            op: Hashable
            match read or node.op:
                case ReadAt(ref=ref, view=view, position=position):
                    op = (self._uses[ref].number, self._moved(ref, view), position)
                case Buffer(ref=ref):
                    op = self._uses[ref].number
                case Const() if node in self._holes:
                    op = node.dtype
                case Range():
                    op = ("range", counters)
                    counters += 1
                case other:
                    op = other
            items.append((op, *[at[s] for s in node.src]) if read is None else op)
        for _, arms, values in self._statements:
            items.append(tuple(len(arm) for arm in arms))
            for write in itertools.chain(*arms):
                forms = (write.combine, len(write.indices), write.offset is None)
                items.append((self._uses[write.ref].number, self._moved(write.ref, write.view), *forms))
            items.append(tuple([at[v] for v in values]))
        for ref, uses in self._uses.items():
            of_program = (ref in program.fresh, ref in program.keep, ref in program.pinned)
            items.append((ref.device, -1 if uses.moves else ref.nbytes, *of_program))
        items.append(tuple(sorted(program.floating)))
        return tuple(items)

    def _moved(self, ref: BufferRef, view: View) -> View:
        """A view from where the structure sees its buffer."""
        start = self._uses[ref].start
        return view if not start else View(view.dtype, view.shape, view.strides, view.offset - start)

    def stand_in(self) -> tuple[Program, list[BufferRef]]:
        """A program of this structure over buffers that have no bytes, with `Hole`s for numbers; and those buffers."""
        new = {
            ref: BufferRef(uses.high - uses.start if uses.moves else ref.nbytes, ref.device)
            for ref, uses in self._uses.items()
        }
        reads = self._program.reads
        done: dict[Node, Node] = {}
        for node in self._order:
            match reads.get(node) or node.op:
                case ReadAt(ref=ref, view=view, position=position):
                    done[node] = read_at(new[ref], self._moved(ref, view), position)
                case Buffer(ref=ref):
                    done[node] = buffer(new[ref])
                case Const(of=of) if node in self._holes:
                    done[node] = make(Hole(self._holes[node], of))
                case _:
                    done[node] = rebuild(node, tuple(done[s] for s in node.src)) if node.src else node

        def write(old: Write) -> Write:
            return replace(
                old,
                ref=new[old.ref],
                view=self._moved(old.ref, old.view),
                value=done[old.value],
                indices=tuple(done[i] for i in old.indices),
                offset=None if old.offset is None else done[old.offset],
            )

        program = self._program
        statements: list[Statement] = []
        for statement in program.statements:
            if isinstance(statement, Repeat):
                selector = None if statement.selector is None else done[statement.selector]
                arms = tuple(tuple(write(w) for w in arm) for arm in statement.arms)
                statements.append(Repeat(done[statement.counter], arms, selector))
            else:
                statements.append(write(statement))
        fresh, keep, pinned = (
            {new[ref] for ref in refs if ref in new} for refs in (program.fresh, program.keep, program.pinned)
        )
        return Program(statements, {}, fresh, keep, set(program.floating), pinned), list(new.values())


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
