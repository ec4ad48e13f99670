"""Order and hazards: statements with every value computed while the bytes that it reads are still what they were."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, rebuild, toposort
from intaglio.ir.view import View
from intaglio.ops.elementwise import Elementwise
from intaglio.ops.memory import Buffer, BufferRef, Window, buffer, window
from intaglio.schedule.program import Program, ReadAt, Repeat, Statement, Write

if TYPE_CHECKING:
    from collections.abc import Iterable

NEVER: Final = 1 << 60
SPARE: Final = 8  # a write that leaves at most one byte in so many untouched may go to a new buffer
SMALL: Final = 1 << 14  # bytes of a buffer up to which a copy of the rest costs less than a kernel of its own


@dataclass(slots=True)
class Ordered:
    """Statements over physical buffers, in an order in which plain reads are right; and where buffers ended up."""

    statements: list[Statement]
    renamed: dict[BufferRef, BufferRef]
    fresh: set[BufferRef]


def order(program: Program) -> Ordered:
    """Statements in a safe order: early copies of what would be overwritten, temporaries for self-overlap."""
    return _Order(program).run()


class _Order:
    """The state of one ordering."""

    def __init__(self, program: Program) -> None:
        self.program: Final = program
        self.writers: Final[dict[BufferRef, list[tuple[int, View | None]]]] = {}
        self.before: Final[dict[int, list[Write]]] = {}  # statements to run just before a number
        self.temps: Final[dict[Node, tuple[BufferRef, int]]] = {}  # a value computed early, and from when it is there
        self.fresh: Final[set[BufferRef]] = set(program.fresh)
        self.renamed: Final[dict[BufferRef, BufferRef]] = {}
        self.placed: Final[dict[int, int]] = {}

    def run(self) -> Ordered:
        """Collect writers, place every statement, then resolve reads in order."""
        statements = self.program.statements
        for number, statement in enumerate(statements):
            for ref, view in _targets(statement):
                self.writers.setdefault(ref, []).append((number, view))
        plain: list[tuple[int, Statement]] = []
        for number, statement in enumerate(statements):
            if isinstance(statement, Repeat):
                plain.append((number, statement))
                continue
            at = number
            if number in self.program.floating:
                ready, deadline = self._windows(statement.value)[statement.value]
                at = max(ready, min(deadline, number))
            values = [self._valid(value, at) for value in (statement.value, *statement.indices)]
            plain.append((at, replace(statement, value=values[0], indices=tuple(values[1:]))))
        slots: dict[int, list[Statement]] = {}
        for (at, statement), number in zip(plain, range(len(plain)), strict=True):
            slots.setdefault(at, []).append(statement) if at != number else None
        out: list[Statement] = []
        for number in range(len(statements) + 1):
            for early in self.before.get(number, ()):
                out.extend(self._final(early))
            for moved in slots.get(number, ()):
                out.extend(self._final(moved))
            if number < len(plain) and plain[number][0] == number:
                out.extend(self._final(plain[number][1]))
        return Ordered(out, self.renamed, self.fresh)

    # -- windows of validity

    def _overwritten(self, op: ReadAt) -> int:
        """The number of the first statement at or after a read's position that overwrites some of its bytes."""
        for number, view in self.writers.get(op.ref, ()):
            if number >= op.position and (view is None or view.overlaps(op.view)):
                return number
        return NEVER

    def _windows(self, root: Node) -> dict[Node, tuple[int, int]]:
        """For each node, (from when, until before which statement) its reads are what they should be."""
        found: dict[Node, tuple[int, int]] = {}
        for node in toposort((root,)):
            match node.op:
                case ReadAt() as op:
                    found[node] = (op.position, self._overwritten(op))
                case _:
                    ready, deadline = 0, NEVER
                    for source in node.src:
                        a, b = found[source]
                        ready, deadline = max(ready, a), min(deadline, b)
                    found[node] = (ready, deadline)
        return found

    def _valid(self, root: Node, at: int) -> Node:
        """A value whose reads all hold just before statement `at`: what is stale then is computed earlier."""
        windows = self._windows(root)
        if windows[root][1] >= at:
            return root
        done: dict[Node, Node] = {}
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if node in done:
                continue
            start, deadline = windows[node]
            if deadline >= at:
                done[node] = node
            elif start <= deadline and _worth(node, windows, at):
                done[node] = self._early(node, deadline)
            elif ready:
                done[node] = rebuild(node, tuple(done[s] for s in node.src))
            else:
                stack.append((node, True))
                stack.extend((s, False) for s in node.src)
        return done[root]

    def _early(self, node: Node, deadline: int) -> Node:
        """A node computed into a buffer of its own just before it would become stale."""
        found = self.temps.get(node)
        if found is None:
            ref = BufferRef(node.nbytes, _device(node))
            self.fresh.add(ref)
            whole = View.contiguous(node.dtype, node.shape)
            self.before.setdefault(deadline, []).append(Write(ref, whole, self._valid(node, deadline)))
            found = self.temps[node] = ref, deadline
        return window(View.contiguous(node.dtype, node.shape), buffer(found[0]))

    # -- final form

    def _physical(self, ref: BufferRef) -> BufferRef:
        """Where a buffer is now."""
        while ref in self.renamed:
            ref = self.renamed[ref]
        return ref

    def _plain(self, root: Node) -> Node:
        """A value with its reads as windows on buffers."""
        done: dict[Node, Node] = {}
        for node in toposort((root,)):
            match node.op:
                case ReadAt(ref=ref, view=view):
                    done[node] = window(view, buffer(self._physical(ref)))
                case Buffer(ref=ref):
                    done[node] = buffer(self._physical(ref))
                case _:
                    done[node] = rebuild(node, tuple(done[s] for s in node.src)) if node.src else node
        return done[root]

    def _final(self, statement: Statement) -> list[Statement]:
        """A statement over physical buffers; through a temporary, or into a new buffer, where it overlaps itself."""
        if isinstance(statement, Repeat):
            arms = tuple(
                tuple(
                    replace(
                        w,
                        ref=self._physical(w.ref),
                        value=self._plain(w.value),
                        offset=self._plain(w.offset) if w.offset is not None else None,
                    )
                    for w in arm
                )
                for arm in statement.arms
            )
            selector = self._plain(statement.selector) if statement.selector is not None else None
            return [Repeat(statement.counter, arms, selector)]
        ref = self._physical(statement.ref)
        value = self._plain(statement.value)
        indices = tuple(self._plain(i) for i in statement.indices)
        plain = replace(statement, ref=ref, value=value, indices=indices)
        if not _overlaps_itself(plain):
            return [plain]
        moved = self._moved(statement.ref, plain)
        if moved is not None:
            return moved
        temp = BufferRef(value.nbytes, ref.device)
        self.fresh.add(temp)
        whole = View.contiguous(value.dtype, value.shape)
        first = Write(temp, whole, value)
        out: list[Statement] = [first]
        places: list[Node] = []
        for index in indices:
            if _reads(index, ref):
                spot = BufferRef(index.nbytes, ref.device)
                self.fresh.add(spot)
                shape = View.contiguous(index.dtype, index.shape)
                out.append(Write(spot, shape, index))
                places.append(window(shape, buffer(spot)))
            else:
                places.append(index)
        out.append(replace(plain, value=window(whole, buffer(temp)), indices=tuple(places)))
        return out

    def _moved(self, logical: BufferRef, statement: Write) -> list[Statement] | None:
        """The statement into a new buffer, and the few bytes that it leaves alone copied, where that is cheaper."""
        ref, view = statement.ref, statement.view
        if statement.indices or ref in self.program.pinned or ref.nbytes < 64:
            return None
        if (ref.nbytes - view.nbytes) * SPARE > ref.nbytes > SMALL:
            return None
        around = view.around(ref.nbytes)
        if around is None:
            return None
        spare = BufferRef(ref.nbytes, ref.device)
        self.fresh.add(spare)
        out: list[Statement] = [replace(statement, ref=spare)]
        out.extend(Write(spare, piece, window(piece, buffer(ref))) for piece in around)
        self.renamed[ref] = spare
        return out


def _worth(node: Node, windows: dict[Node, tuple[int, int]], at: int) -> bool:
    """Whether to keep this node rather than an input: not where one stale input of fewer bytes gives it."""
    stale = [s for s in node.src if windows[s][1] < at]
    return not (len(stale) == 1 and stale[0].nbytes < node.nbytes)


def _targets(statement: Statement) -> Iterable[tuple[BufferRef, View | None]]:
    """What a statement writes: buffers and views (None: anywhere in it)."""
    if isinstance(statement, Repeat):
        for write in itertools.chain(*statement.arms):
            yield write.ref, None
    else:
        yield statement.ref, statement.view


def _reads(root: Node, ref: BufferRef) -> bool:
    """Whether a plain value reads a buffer."""
    return any(isinstance(n.op, Buffer) and n.op.ref is ref for n in toposort((root,)))


def _overlaps_itself(statement: Write) -> bool:
    """Whether a statement reads bytes that it writes, other than each element its own."""
    if any(_reads(index, statement.ref) for index in statement.indices):
        return True
    stack: list[tuple[Node, bool]] = [(statement.value, not statement.indices)]
    seen: set[tuple[Node, bool]] = set()
    while stack:
        node, aligned = stack.pop()
        if (node, aligned) in seen:
            continue
        seen.add((node, aligned))
        op = node.op
        if isinstance(op, Window) and isinstance(node.src[0].op, Buffer):
            if node.src[0].op.ref is statement.ref and op.view.overlaps(statement.view):
                same = (op.view.shape, op.view.strides, op.view.offset, op.view.dtype.itemsize) == (
                    statement.view.shape, statement.view.strides, statement.view.offset, statement.view.dtype.itemsize
                )  # fmt: skip
                if not (aligned and same):
                    return True
            continue
        keeps = aligned and isinstance(op, Elementwise)
        stack.extend((s, keeps and s.shape == node.shape) for s in node.src)
    return False


def _device(node: Node) -> str:
    """The device of a value, by a buffer that it reads."""
    for n in toposort((node,)):
        match n.op:
            case ReadAt(ref=ref) | Buffer(ref=ref):
                return ref.device
            case _:
                pass
    return "CPU"
