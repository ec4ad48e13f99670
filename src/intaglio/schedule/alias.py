"""Order and hazards: statements with every value computed while the bytes that it reads are still what they were."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from intaglio.ir.node import Node, rebuild, toposort
from intaglio.ir.view import View
from intaglio.ops.elementwise import Elementwise
from intaglio.ops.memory import Buffer, BufferRef, buffer, window
from intaglio.schedule.followers import Followers
from intaglio.schedule.program import Program, ReadAt, Repeat, Statement, Write
from intaglio.schedule.writers import NEVER, Writers

if TYPE_CHECKING:
    from collections.abc import Iterable

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


class _Window(NamedTuple):
    """From when on, and until before which statement, all that a value reads is what it should be."""

    ready: int
    deadline: int
    device: str | None  # of a buffer that it reads


class _Order:
    """The state of one ordering."""

    def __init__(self, program: Program) -> None:
        self.program: Final = program
        outputs = [Write(ref, view, value) for ref, view, value in program.outputs]
        self.statements: Final = [*program.statements, *outputs]
        self.writers: Final[dict[BufferRef, Writers]] = {}
        self.windows: Final[dict[Node, _Window]] = {}
        self.before: Final[dict[int, list[Write]]] = {}  # statements to run just before a number
        self.temps: Final[dict[Node, Node]] = {}  # a value computed early -> its buffer
        self.forms: Final[dict[Node, Node]] = {}  # a value that was stale somewhere -> what it was made there
        self.fresh: Final[set[BufferRef]] = {*program.fresh, *[output.ref for output in program.outputs]}
        self.renamed: Final[dict[BufferRef, BufferRef]] = {}  # a buffer of the program -> where its bytes are now
        self.plain: Final[dict[Node, Node]] = {}  # values with their reads as windows on the buffers of now
        self.followers: Final = Followers()

    def run(self) -> Ordered:
        """Collect writers, place every statement, then resolve reads in order."""
        statements = self.statements
        for number, statement in enumerate(statements):
            for ref, view in _targets(statement):
                self.writers.setdefault(ref, Writers()).add(number, view)
        plain: list[tuple[int, Statement]] = []
        for number, statement in enumerate(statements):
            if isinstance(statement, Repeat):
                plain.append((number, statement))
                continue
            at = number
            if number >= len(self.program.statements):  # an output
                ready, deadline, _ = self._window(statement.value)
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
                out.extend(self._final(plain[number][1], number))
        return Ordered(out, self.renamed, self.fresh)

    # -- windows of validity

    def _window(self, root: Node) -> _Window:
        """When a value can be computed."""
        found = self.windows
        for node in toposort((root,), enter=lambda n: n not in found):
            if node in found:
                continue
            match node.op:
                case ReadAt(ref=ref, view=view, position=position):
                    writers = self.writers.get(ref)
                    found[node] = _Window(position, writers.first(position, view) if writers else NEVER, ref.device)
                case Buffer(ref=ref):
                    found[node] = _Window(0, NEVER, ref.device)
                case _:
                    ready, deadline, device = 0, NEVER, None
                    for source in node.src:
                        a, b, of = found[source]
                        ready, deadline, device = max(ready, a), min(deadline, b), device or of
                    found[node] = _Window(ready, deadline, device)
        return found[root]

    def _valid(self, root: Node, at: int) -> Node:
        """A value whose reads all hold just before statement `at`: what is stale then is computed earlier."""
        if self._window(root).deadline >= at:
            return root
        done: dict[Node, Node] = {}
        stack: list[tuple[Node, Node | None]] = [(root, None)]  # with what is to be rebuilt, once its inputs are done
        while stack:
            node, known = stack.pop()
            if node in done:
                continue
            form = known or self._form(node, at)
            ready, deadline, device = self._window(form)
            if deadline >= at:
                done[node] = form
            elif ready <= deadline and self._is_worth(form, at):
                done[node] = self.forms[node] = self._early(form, deadline, device)
            elif known is not None:
                done[node] = self.forms[node] = rebuild(form, tuple(done[s] for s in form.src))
            else:
                stack.append((node, form))
                stack.extend((s, None) for s in form.src)
        return done[root]

    def _form(self, node: Node, at: int) -> Node:
        """A value as it was last made valid, if that can be computed just before statement `at`."""
        form = self.forms.get(node, node)
        return form if self._window(form).ready <= at else node

    def _is_worth(self, node: Node, at: int) -> bool:
        """Whether to keep this node rather than an input: not where one stale input of fewer bytes gives it."""
        stale = [s for s in node.src if self._window(s).deadline < at]
        return not (len(stale) == 1 and stale[0].nbytes < node.nbytes)

    def _early(self, node: Node, deadline: int, device: str | None) -> Node:
        """A node computed into a buffer of its own just before it would become stale."""
        found = self.temps.get(node)
        if found is None:
            ref = BufferRef(node.nbytes, device or "CPU")
            self.fresh.add(ref)
            whole = View.contiguous(node.dtype, node.shape)
            self.before.setdefault(deadline, []).append(Write(ref, whole, self._valid(node, deadline)))
            found = self.temps[node] = buffer(ref)
            self.windows[found] = _Window(deadline, NEVER, ref.device)
        return window(View.contiguous(node.dtype, node.shape), found)

    # -- final form

    def _physical(self, ref: BufferRef) -> BufferRef:
        """Where a buffer is now."""
        return self.renamed.get(ref, ref)

    def _rename(self, ref: BufferRef, spare: BufferRef) -> None:
        """Note that the bytes of a buffer are in another from now on."""
        self.renamed[ref] = spare
        for node in self.followers.forget(ref):
            self.plain.pop(node, None)

    def _plain(self, root: Node) -> Node:
        """A value with its reads as windows on buffers."""
        done = self.plain
        for node in toposort((root,), enter=lambda n: n not in done):
            if node in done:
                continue
            self.followers.note(node)
            match node.op:
                case ReadAt(ref=ref, view=view):
                    done[node] = window(view, buffer(self._physical(ref)))
                case Buffer(ref=ref):
                    done[node] = buffer(self._physical(ref))
                case _:
                    done[node] = rebuild(node, tuple(done[s] for s in node.src)) if node.src else node
        return done[root]

    def _final(self, statement: Statement, at: int = -1) -> list[Statement]:
        """A statement over physical buffers; through a temporary, or into a new buffer, where it overlaps itself.

        Args:
            at: Its number, unless it writes a buffer that nothing reads before.
        """
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
            return [replace(statement, arms=arms, selector=selector)]
        ref = self._physical(statement.ref)
        value = self._plain(statement.value)
        indices = tuple(self._plain(i) for i in statement.indices)
        plain = replace(statement, ref=ref, value=value, indices=indices)
        if not self._overlaps_itself(statement, at):
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
        for index, given in zip(indices, statement.indices, strict=True):
            if self._window(given).deadline == at:
                spot = BufferRef(index.nbytes, ref.device)
                self.fresh.add(spot)
                shape = View.contiguous(index.dtype, index.shape)
                out.append(Write(spot, shape, index))
                places.append(window(shape, buffer(spot)))
            else:
                places.append(index)
        out.append(replace(plain, value=window(whole, buffer(temp)), indices=tuple(places)))
        return out

    def _overlaps_itself(self, statement: Write, at: int) -> bool:
        """Whether statement number `at` reads bytes that it writes, other than each element its own.

        All that it reads holds until it runs: what it overwrites is what holds no longer.
        """
        if any(self._window(index).deadline == at for index in statement.indices):
            return True
        stack: list[tuple[Node, bool]] = [(statement.value, not statement.indices)]
        seen: set[tuple[Node, bool]] = set()
        target = statement.view
        while stack:
            node, aligned = stack.pop()
            if (node, aligned) in seen or self._window(node).deadline != at:
                continue
            seen.add((node, aligned))
            match node.op:
                case ReadAt(ref=ref, view=view):
                    same = view[1:] == target[1:] and view.dtype.itemsize == target.dtype.itemsize
                    if ref is statement.ref and not (aligned and same) and view.overlaps(target):
                        return True
                case op:
                    keeps = aligned and isinstance(op, Elementwise)
                    stack.extend((s, keeps and s.shape == node.shape) for s in node.src)
        return False

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
        self._rename(logical, spare)
        return out


def _targets(statement: Statement) -> Iterable[tuple[BufferRef, View | None]]:
    """What a statement writes: buffers and views (None: anywhere in it)."""
    if isinstance(statement, Repeat):
        for write in itertools.chain(*statement.arms):
            yield write.ref, None
    else:
        yield statement.ref, statement.view
