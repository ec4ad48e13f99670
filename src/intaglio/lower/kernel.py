"""Kernels to linear code, statement by statement."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from intaglio.core.errors import InternalError
from intaglio.ir.node import Node, make, substitute, walk
from intaglio.lower.axes import in_loops
from intaglio.lower.binding import Binding
from intaglio.lower.choice import MODEL, Choice, Decisions
from intaglio.lower.columns import by_reductions
from intaglio.lower.emit import Emitter
from intaglio.lower.groups import bytes_moved, in_nests, only_stored
from intaglio.lower.index import Index, number
from intaglio.lower.loops import Loops, Place, has_fold
from intaglio.lower.nests import Nests
from intaglio.lower.parts import Part, Parts
from intaglio.lower.rows import ByRows
from intaglio.lower.scans import Running
from intaglio.lower.scatter import Scatter
from intaglio.lower.sheets import BySheets
from intaglio.lower.size import SizedIndex, check_sizes, with_argument
from intaglio.lower.values import Values
from intaglio.ops.elementwise import Elementwise, cast, eq
from intaglio.ops.loop import Block, For, Linear, Prologue, Rows, Sink, Store, StoreAt, Switch
from intaglio.ops.memory import Arg, Param
from intaglio.ops.reduce import COMBINES, Fold, Reduce, Scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.core.target import Target
    from intaglio.lower.choice import Decision


WORTH: Final = 1 << 21  # what a kernel of any size is estimated to take from where threads share it (`engine/waves.py`)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel in linear form, and how it is launched: `chunks` pieces, which threads may share if `parallel`."""

    linear: Node
    name: str
    chunks: int
    parallel: bool
    flops: int
    series: int = 0  # if launches may be chunks of one call, how many arguments each has
    worth: int = 0  # what it must be estimated to take for threads to share it, where that depends on a size
    least: int = 0  # the least size for which the code is right, where a size is an argument
    decisions: tuple[Decision, ...] = ()


def lower(ast: Node, target: Target, size_slot: int | None = None, choice: Choice = MODEL) -> Lowered:
    """A KERNEL-level `Sink` as instructions for a target.

    Args:
        size_slot: The slot of an int64 argument that takes the place of the nominal size in the kernel's integers
            when it runs. `flops` is then counted at the nominal size.
        choice: Where to decide otherwise than the cost model.

    Raises: UnsizedError if the kernel cannot be lowered for every size.
    """
    if size_slot is None:
        return _Kernel(ast, target, Index(), choice).run()
    index = SizedIndex(size_slot)
    check_sizes(ast, index)
    lowered = _Kernel(ast, target, index, choice).run()
    linear = make(lowered.linear.op, *with_argument(list(lowered.linear.src), index))
    return replace(lowered, linear=linear, least=index.least)


class _Kernel:
    """One kernel being lowered."""

    def __init__(self, ast: Node, target: Target, index: Index, choice: Choice) -> None:
        self.ast: Final = ast
        self.index: Final = index
        self.emitter: Final = Emitter(index, target)
        self.decide: Final = Decisions(choice)
        self.loops: Final = Loops(self.emitter, self.decide)
        self.values: Final = Values(ast, index)
        self.nests: Final = Nests(self.loops, self.values, only_stored(ast), bytes_moved(ast))
        self.part: Part | None = None
        self.over: Final[dict[Node, Node]] = {}  # scratch -> that whose bytes it takes
        self.kind: str = "E"  # the first letter of the kernel's name
        self.sizes: Final[list[int]] = []  # the numbers in it

    def run(self) -> Lowered:
        """Lower every statement."""
        statements = list(self.ast.src)
        nests = in_nests(statements)
        alone = nests[0][0].op if len(nests) == 1 else None
        if self.index.sized:
            split = isinstance(alone, Rows) and alone.sheets
        else:
            split = isinstance(alone, (Store, StoreAt, Prologue, Rows, For))
        for group in nests:
            self._statement(group, split=split)
        code = self.emitter.frames[0].code
        name, past = self._name(), tuple(sorted(self.nests.past))
        series = 1 + max(_slots(self.ast)) if self.loops.series else 0
        linear = make(Linear(name, past, series), *(substitute(code, self.over) if self.over else code))
        flops = sum(_work(n) for n in walk(statements))
        chunks = self.loops.chunks
        worth = WORTH if self.index.sized else 0
        return Lowered(linear, name, chunks, chunks > 1, flops, series, worth, decisions=self.decide.taken)

    def _name(self) -> str:
        """The kernel's name: what it does, of which sizes, in how many statements."""
        sizes = "_".join(map(self.index.spelled, self.sizes[:6])) or "1"
        count = len(self.ast.src)
        return f"{self.kind}_{sizes}_n{count}" if count > 1 else f"{self.kind}_{sizes}"

    def _statements(self, statements: Sequence[Node]) -> None:
        """Statements within others."""
        for group in in_nests(statements):
            self._statement(group)

    def _statement(self, group: list[Node], *, split: bool = False) -> None:
        """One statement, or stores that share a nest."""
        node = group[0]
        match node.op:
            case Store():
                value = node.src[1]
                if isinstance(value.op, Scan):
                    self._scan(node, value.op, split=split)
                else:
                    self._stores(group, split=split)
            case StoreAt(combine=combine):
                self.kind = "w"
                self.sizes.extend(node.src[1].shape)
                Scatter(self.nests, self.values, node, combine).run(split=split)
            case For(free=True):
                self._for_parts(node, split=split)
            case For():
                self._for(node)
            case Prologue():
                self._prologue(node.src, split=split)
            case Rows():
                self._rows(node.src, node.op, split=split)
            case Switch():
                self._switch(node)
            case Block() | Sink():
                self._statements(node.src)
            case _:
                raise InternalError(f"lower: {node.op.name} is no statement")

    def _for(self, node: Node, part: Part | None = None) -> None:
        """A sequential loop of statements, or a part of their first axis."""
        self.kind = "s"
        self.part = part
        r, *body = node.src
        emitter = self.emitter
        bit = emitter.bit(r)
        self.sizes.append(self.index.affine(r.src[0])[0])

        def run(_: Node, carried: list[Node]) -> list[Node]:
            self._statements(body)
            return carried

        emitter.pinned |= bit
        emitter.loop(number(0), r.src[0], 1, (), run, lambda frame, counter: (r, Binding(frame, counter)))
        emitter.pinned &= ~bit
        self.part = None

    def _for_parts(self, node: Node, *, split: bool) -> None:
        """A sequential loop of statements, one part of their first axis after the other."""
        size = len(self.sizes)

        def run(part: Part | None) -> None:
            del self.sizes[size:]
            self._for(node, part)

        Parts(self.loops, node, run).run(split=split)

    def _switch(self, node: Node) -> None:
        """One of several blocks."""
        selector, *arms = node.src
        which = self.emitter.emit(self.values.at(self.values.scalarize(), selector, ()), {})
        for k, arm in enumerate(arms):
            level = len(self.emitter.frames) - 1
            chosen = self.emitter.put(level, eq(which, number(k)))
            self.emitter.when(chosen, functools.partial(self._statements, arm.src))

    def _scan(self, node: Node, op: Scan, *, split: bool) -> None:
        """A running reduction: the axis in order, the others around it."""
        self.kind = "c"
        scalar = self.values.scalarize()
        target, value = node.src
        (x,) = value.src
        own = [scalar.range(n) for n in x.shape]
        self.sizes.extend(x.shape)
        pointer, index = self.values.target(target, tuple(own), scalar)
        carrier = COMBINES[op.kind].carrier(x.dtype)
        place = Place(pointer, index, self.values.decomposed(cast(scalar.at(x, tuple(own)), carrier)))
        self.decide.begin()
        self.nests.pass_caches([place], x.size)
        along = own[op.axis]
        Running(self.loops, place, op.kind, along, [r for r in own if r is not along]).run(split=split)

    def _prologue(self, stores: Sequence[Node], *, split: bool) -> None:
        """Stores of which each chunk makes all but the last."""
        *makers, last = stores
        for maker in makers:
            self._stores([maker])
        self._stores([last], split=split)

    def _rows(self, stores: Sequence[Node], op: Rows, *, split: bool) -> None:
        """Stores that run together for some rows, or for one sheet of them, at a time."""
        self.kind = "b"
        rows = (BySheets if op.sheets else ByRows)(self.nests, self.values, stores, op.lead)
        self.sizes.extend(rows.sizes)
        rows.run(split=split)
        self.over.update(rows.over)

    def _stores(self, group: list[Node], *, split: bool = False) -> None:
        """Stores of one shape, which share their loops."""
        places, own = in_loops(self.values, group, in_parts=self.part is not None)
        extents = {r: self.index.affine(r.src[0]) for r in own}
        ranges = [r for r in own if extents[r] != (1, {})]
        ones = [r for r in own if extents[r] == (1, {})]
        if has_fold(places) and self.kind == "E":
            self.kind = "r"
        self.sizes.extend(map(self.loops.extent, (*ranges, *_folded(places))))
        for r in ones:
            self.emitter.bit(r)
            self.emitter.bound[r] = Binding(len(self.emitter.frames) - 1, number(0))
        if self.part is None:
            apart = by_reductions(self.emitter, places, ranges)
            for some, around in apart:
                self.nests.run(some, around, split=split and len(apart) == 1)
        else:
            self.nests.part(places, ranges, self.part)
        for r in ones:
            del self.emitter.bound[r]


def _folded(places: list[Place]) -> list[Node]:
    """The ranges of the folds of a nest."""
    folds = (n for p in places for n in walk((p.value,)) if isinstance(n.op, Fold))
    return [*dict.fromkeys(r for n in folds for r in n.src[1:])]


def _slots(ast: Node) -> set[int]:
    """The slots of the arguments of a kernel."""
    return {n.op.slot for n in walk((ast,)) if isinstance(n.op, (Param, Arg))}


def _work(node: Node) -> int:
    """The arithmetic operations of one tensor node."""
    op = node.op
    if isinstance(op, Elementwise) and node.dtype.is_float:
        return node.size
    if isinstance(op, (Reduce, Scan)) and node.dtype.is_float:
        return node.src[0].size
    return 0
