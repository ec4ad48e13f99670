"""Kernels to linear code: the statements of a kernel as loop nests, tiled, vectorised and split in chunks."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import InternalError
from intaglio.core.size import REACH
from intaglio.ir.node import Node, make, rebuild, substitute, toposort, walk
from intaglio.ir.rewrite import rewrite
from intaglio.lower.binding import Binding, Instance
from intaglio.lower.blocks import Blocks, Member, Sheets, block_rows, written_over
from intaglio.lower.choice import MODEL, Choice, Decisions
from intaglio.lower.columns import HEAVY, Kept, by_reductions, rows_below
from intaglio.lower.dots import Dots, dot_ranges
from intaglio.lower.emit import LINE, STRIDED, Emitter, usual
from intaglio.lower.index import Index, number
from intaglio.lower.loops import CHUNK, Loops, Place
from intaglio.lower.merge import merge_folds
from intaglio.lower.parts import Part, Parts, nest
from intaglio.lower.positions import position_of
from intaglio.lower.product import Product, row_range, turned_column
from intaglio.lower.ranges import Scalarize, has_division
from intaglio.lower.rescale import Rescaled, Stores, are_long, row_block
from intaglio.lower.scans import Running
from intaglio.lower.size import SizedIndex, check_sizes, with_argument
from intaglio.lower.slabs import Slabs, is_slabbed
from intaglio.lower.sliding import sliding
from intaglio.lower.stream import all_streamed
from intaglio.lower.words import Words, in_words
from intaglio.ops.elementwise import Elementwise, add, and_, cast, eq, ge, lt, minimum, or_, shl
from intaglio.ops.loop import Block, For, Linear, Range, Rows, Sink, Store, StoreAt, Switch
from intaglio.ops.memory import Const, Load, Local, Param, Window, load
from intaglio.ops.movement import Reshape
from intaglio.ops.reduce import COMBINES, Fold, Reduce, Scan
from intaglio.ops.rescaling import exponentials
from intaglio.ops.transcendental import FORMS as _FORMS  # noqa: F401 # pyright: ignore[reportUnusedImport] -- fills a table
from intaglio.rules.choices import choices, logic
from intaglio.rules.floats import casts, floats
from intaglio.rules.integers import integers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.core.target import Target
    from intaglio.lower.choice import Decision

PANEL: Final = 32  # columns of a packed factor that lie together
TILE: Final = 16  # elements of a line of memory: the height of a transposition's blocks
SCRATCH: Final = 1 << 16  # bytes of scratch at most
UNROLL: Final = 2  # vectors at once in elementwise loops
COLUMNS: Final = 4  # vectors at once where columns are reduced, and read again: some of a line's neighbours
VECTORS: Final = (1, 2, 4, 8, 16)  # as many may be tried
SHORT: Final = 24  # nodes of an expression of which as many vectors are computed at once as registers hold
LONG: Final = 60  # nodes from which an expression is computed for one vector at a time, as it is soon compiled
LONGEST: Final = 400  # nodes up to which a long expression of many elements is computed for some vectors at a time
MANY: Final = 1 << 22  # elements of work from which a kernel's time counts more than its compilation's
EXACT: Final = choices + logic + integers + floats + casts


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel in linear form, and how it is launched: `chunks` pieces, which threads may share if `parallel`."""

    linear: Node
    name: str
    chunks: int
    parallel: bool
    flops: int
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
        self.target: Final = target
        self.index: Final = index
        self.emitter: Final = Emitter(index, target)
        self.decide: Final = Decisions(choice)
        self.loops: Final = Loops(self.emitter, self.decide)
        self.axes: Final = itertools.count()
        self.written: Final = {
            _group(n.src[0])
            for n in walk((ast,))
            if isinstance(n.op, (Store, StoreAt)) and len(n.src) >= 2 and not isinstance(n.src[0].src[0].op, Local)
        }
        self.statement: int = 0
        self.kind: str = "E"
        self.part: Part | None = None
        self.sizes: list[int] = []
        self.alone: Final = _only_stored(self.ast)
        self.past: Final[set[int]] = set()
        self.over: Final[dict[Node, Node]] = {}  # scratch -> that whose bytes it takes

    def run(self) -> Lowered:
        """Lower every statement."""
        statements = list(self.ast.src)
        groups = self._grouped(statements)
        split = len(groups) == 1 and isinstance(groups[0][0].op, (Store, StoreAt, Rows, For)) and not self.index.sized
        for group in groups:
            self._statement(group, split=split)
        name = f"{self.kind}_{'_'.join(self.index.spelled(n) for n in self.sizes[:6]) or '1'}" + (
            f"_n{len(statements)}" if len(statements) > 1 else ""
        )
        code = self.emitter.frames[0].code
        linear = make(Linear(name, tuple(sorted(self.past))), *(substitute(code, self.over) if self.over else code))
        flops = sum(_work(n) for n in walk(statements))
        chunks = self.loops.chunks
        return Lowered(linear, name, chunks, chunks > 1, flops, decisions=self.decide.taken)

    def _grouped(self, statements: Sequence[Node]) -> list[list[Node]]:
        """Adjacent stores of one shape that do not read what the others write share a loop nest."""
        groups: list[list[Node]] = []
        for node in statements:
            if groups and isinstance(node.op, Store) and isinstance(groups[-1][0].op, Store):
                others = groups[-1]
                same = others[0].src[0].shape == node.src[0].shape and not _has_scan(node) and not _has_scan(others[0])
                written = {_group(o.src[0]) for o in others}
                before = {g for o in others for g in _groups_read(o)}
                own = _group(node.src[0])
                if same and not (_groups_read(node) & written) and own not in written and own not in before:
                    others.append(node)
                    continue
            groups.append([node])
        return groups

    def _scalarize(self) -> Scalarize:
        """Values for one statement: loads of memory that the kernel writes are this statement's own."""
        self.statement += 1
        epoch = self.statement

        def of(pointer: Node) -> int:
            return epoch if isinstance(pointer.op, Param) and pointer.op.group in self.written else 0

        return Scalarize(self.index, self.axes, of)

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
                self._store_at(node, combine, split=split)
            case For(free=True):
                self._for_parts(node, split=split)
            case For():
                self._for(node)
            case Rows(lead=lead):
                self._rows(node.src, lead, split=split)
            case Switch():
                self._switch(node)
            case Block() | Sink():
                for inner in self._grouped(node.src):
                    self._statement(inner)
            case _:
                raise InternalError(f"lower: {node.op.name} is no statement")

    # -- sequential statements

    def _for(self, node: Node, part: Part | None = None) -> None:
        """A sequential loop of statements, or a part of their first axis."""
        self.kind = "s"
        self.part = part
        r, *body = node.src
        emitter = self.emitter
        bit = emitter.bit(r)
        self.sizes.append(self.index.affine(r.src[0])[0])

        def run(_: Node, carried: list[Node]) -> list[Node]:
            for inner in self._grouped(body):
                self._statement(inner)
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
        which = self.emitter.emit(self._decomposed(self._scalarize().at(selector, ())), {})
        for k, arm in enumerate(arms):
            level = len(self.emitter.frames) - 1
            chosen = self.emitter.put(level, eq(which, number(k)))

            def run(arm: Node = arm) -> None:
                for inner in self._grouped(arm.src):
                    self._statement(inner)

            self.emitter.when(chosen, run)

    def _store_at(self, node: Node, combine: str, *, split: bool) -> None:
        """A scatter: positions one after the other (the last wins), the axes after them vectorised.

        Threads share an axis along which no two elements have one place: one that is no index's, or whose index is its
        counter. Each goes through all positions, so that what comes to one place comes in the same order.
        """
        self.kind = "w"
        target, value, *indices = node.src
        scalar = self._scalarize()
        emitter = self.emitter
        rank = indices[0].rank
        own = [scalar.range(n) for n in value.shape]
        self.sizes.extend(value.shape)
        lead = tuple(own[:rank])
        places = [self._decomposed(scalar.at(i, lead)) for i in indices]
        inside: Node | None = None
        for at, extent in zip(places, target.shape, strict=False):
            for test in (ge(at, number(0)), lt(at, number(extent))):
                inside = test if inside is None else and_(inside, test)
        pointer, index = self._target(target, (*places, *own[rank:]), scalar)
        result = self._decomposed(scalar.at(value, tuple(own)))
        if combine != "set":
            old = load(pointer, index, epoch=scalar.epoch(pointer))
            result = make(COMBINES[combine].op, old, result)
        for r in lead:
            emitter.pinned |= emitter.bit(r)
        split = split and math.prod(value.shape) >= 2 * CHUNK and self.target.threads > 1
        place = Place(pointer, index, result)
        rest = own[rank:]
        loops = list(lead)
        if rest and not any(self._steps(index, r) == 1 for r in rest):  # by rows of the target, not by its columns
            loops, rest = [*rest, *lead], []
        first = 0  # the loop that threads share
        begin: Node | None = None
        end: Node | None = None
        for k, r in enumerate(loops):
            alone = r not in lead or any(list(self.index.affine(p)[1]) == [r] for p in places)
            if split and alone and self.loops.extent(r) > self._line(place, r):
                first, split = k, False
                begin, end = self._share_of(r, self._line(place, r))

        def body(_: Node, carried: list[Node]) -> list[Node]:
            condition = emitter.emit(inside, {}) if inside is not None else None

            def inner() -> None:
                self._nest([place], rest, split=False, parts=split)

            if condition is None:
                inner()
            else:
                emitter.when(condition, inner)
            return carried

        def from_first(_: Node, carried: list[Node]) -> list[Node]:
            self.loops.nest(loops[first:], body, begin, end)
            return carried

        self.loops.nest(loops[:first], from_first)
        for r in lead:
            emitter.pinned &= ~emitter.bit(r)

    def _line(self, place: Place, r: Node) -> int:
        """How many steps of a range there are to a line of memory: fewer would have threads write to one line."""
        step = abs(self._steps(place.index, r)) * place.pointer.dtype.itemsize
        return -(-LINE // max(step, 1))

    def _share_of(self, r: Node, unit: int) -> tuple[Node, Node]:
        """The part of a range that one thread takes."""
        extent = self.loops.extent(r)
        per = -(-extent // self.target.threads)
        return self.loops.chunk_of(extent, -(-per // unit) * unit)

    def _scan(self, node: Node, op: Scan, *, split: bool) -> None:
        """A running reduction: the axis in order, the others around it."""
        self.kind = "c"
        scalar = self._scalarize()
        target, value = node.src
        (x,) = value.src
        own = [scalar.range(n) for n in x.shape]
        self.sizes.extend(x.shape)
        pointer, index = self._target(target, tuple(own), scalar)
        carrier = COMBINES[op.kind].carrier(x.dtype)
        body = self._decomposed(cast(scalar.at(x, tuple(own)), carrier))
        self.decide.begin()
        place = Place(pointer, index, body)
        self._pass_caches([place], x.size)
        along = own[op.axis]
        Running(self.loops, place, op.kind, along, [r for r in own if r is not along]).run(split=split)

    def _rows(self, stores: Sequence[Node], lead: int, *, split: bool) -> None:
        """Stores that run together for some rows at a time, with scratch for those rows only."""
        self.kind = "b"
        *sheets, rows = stores[-1].src[0].shape[:lead]
        inner = [s.src[0].shape[lead:] for s in stores]
        lines = [math.prod(n) * s.src[0].dtype.itemsize for n, s in zip(inner, stores[:-1], strict=False)]
        self.sizes.extend([*sheets, rows, *(n for shape in inner for n in shape)])
        found = exponentials([n.src[0] for n in stores[:-1]], [n.src[1] for n in stores], lead)
        if found is not None and are_long(found, self.target):
            scalar = self._scalarize()
            places = self._sheets(scalar, sheets, rows, row_block(found, math.prod(sheets), rows, self.target))
            made = Stores(stores, found, scalar, self._target, self._decomposed)
            Rescaled(self.loops, self.axes, places, made, nest=self._inside, column=self._vector_range).run(split=split)
            return
        height = block_rows(rows, sum(lines), self.target.level2)
        members, places = self._members(stores, sheets, rows, height, inner)
        over = written_over(members, places.row, self.index)
        height = block_rows(rows, sum(lines) - sum(lines[k] for k in over), self.target.level2)
        members, places = self._members(stores, sheets, rows, height, inner)
        self.over.update((members[a].place.pointer, members[b].place.pointer) for a, b in over.items())
        Blocks(self.loops, self.axes, places, members, nest=self._inside, column=self._vector_range).run(split=split)

    def _inside(self, places: list[Place], ranges: list[Node]) -> None:
        """The loops of stores within others."""
        self._nest(places, ranges, split=False)

    def _sheets(self, scalar: Scalarize, sheets: list[int], rows: int, height: int) -> Sheets:
        """The ranges of sheets and of blocks of their rows."""
        sheet, first, row = (scalar.range(n) for n in (math.prod(sheets), rows - height + 1, height))
        own = *self.index.unflatten(sheet, tuple(sheets)), self.index.add(first, row)
        return Sheets(sheet, first, row, rows, own, (*own[:-1], first))

    def _members(
        self, stores: Sequence[Node], sheets: list[int], rows: int, height: int, inner: list[tuple[int, ...]]
    ) -> tuple[list[Member], Sheets]:
        """Stores that run together, with scratch for a block of rows; and where the blocks are."""
        scalar = self._scalarize()
        places = self._sheets(scalar, sheets, rows, height)
        scratch: dict[Node, tuple[Node, Node, int]] = {}  # by what is of all rows: that of some, its first place, epoch
        members: list[Member] = []
        for store, shape in zip(stores, inner, strict=True):
            rest = [scalar.range(n) if n != 1 else number(0) for n in shape]
            window = store.src[0]
            pointer, index = self._target(window, (*places.own, *rest), scalar)
            value = self._decomposed(scalar.at(store.src[1], (*places.own, *rest)))
            loads = [n for n in walk((value,)) if isinstance(n.op, Load) and n.src[0] in scratch]
            (value,) = substitute((value,), {n: self._in_scratch(n, *scratch[n.src[0]]) for n in loads})
            if isinstance(pointer.op, Local):
                _, base = self._target(window, (*places.starts, *(number(0) for _ in rest)), scalar)
                held = make(Local(next(self.axes), pointer.op.of, height * math.prod(shape)))
                scratch[pointer] = held, base, 1 + len(members)
                pointer, index = held, self.index.sum([(index, 1), (base, -1)])
            members.append(Member(Place(pointer, index, value), [r for r in rest if isinstance(r.op, Range)]))
        return members, places

    def _in_scratch(self, node: Node, held: Node, base: Node, epoch: int) -> Node:
        """A load of what is known of all rows, from where it is kept of some."""
        return load(held, self.index.sum([(node.src[1], 1), (base, -1)]), *node.src[2:], epoch=epoch)

    # -- stores

    def _target(self, window: Node, indices: tuple[Node, ...], scalar: Scalarize) -> tuple[Node, Node]:
        """The pointer and element index of a window's element."""
        op = window.op
        if not isinstance(op, Window):
            raise InternalError(f"lower: a store into {op.name}")
        item = op.view.dtype.itemsize
        parts = [(i, s // item) for i, s in zip(indices, op.view.strides, strict=True)]
        place = self.index.sum(parts, op.view.offset // item)
        pointer, *offsets = window.src
        for offset in offsets:
            place = self.index.add(place, self.index.div(self._decomposed(scalar.at(offset, ())), item))
        return pointer, place

    def _stores(self, group: list[Node], *, split: bool) -> None:
        """Stores of one shape as one nest: adjacent axes merged, or cut as they were, so that no division stays."""
        shape = group[0].src[0].shape
        part = self.part
        ways = _mergings(shape) if part is None else [(shape[0], *m) for m in _mergings(shape[1:])]
        merged = [m for m in ways if all(self.index.fits(n) for n in m)]
        least = self.index.least
        best: tuple[list[Place], list[Node]] | None = None
        for extents in [*merged, *([] if self.index.sized or part else _cut_as_they_were(group))]:
            self.index.least = least
            scalar = self._scalarize()
            own = [scalar.range(n) for n in extents]
            position = self.index.flatten(tuple(own), extents)
            indices = self.index.unflatten(position, shape)
            places: list[Place] = []
            for node in group:
                pointer, index = self._target(node.src[0], indices, scalar)
                places.append(Place(pointer, index, self._decomposed(scalar.at(node.src[1], indices))))
            roots = [p.index for p in places] + [p.value for p in places]
            whole = not any(has_division(roots, r) for r in own)
            if whole or best is None or extents is merged[-1]:
                best = places, own
            if whole:
                break
        assert best is not None
        if shape and shape[-1] % PANEL == 0 and shape[-1] > PANEL and part is None:
            best = self._in_panels(group, shape, best)
        places, own = best
        ranges = [r for r in own if self.index.affine(r.src[0]) != (1, {})]
        ones = [r for r in own if r not in ranges]
        if any(isinstance(n.op, Fold) for p in places for n in walk((p.value,))):
            self.kind = "r" if self.kind == "E" else self.kind
        self.sizes.extend(self.index.affine(r.src[0])[0] for r in ranges)
        self.sizes.extend(
            self.index.affine(r.src[0])[0]
            for r in dict.fromkeys(
                r for p in places for n in walk((p.value,)) if isinstance(n.op, Fold) for r in n.src[1:]
            )
        )
        for r in ones:
            self.emitter.bit(r)
            self.emitter.bound[r] = Binding(len(self.emitter.frames) - 1, number(0))
        if part is None:
            apart = by_reductions(self.emitter, places, ranges)
            for some, around in apart:
                self._nest(some, around, split=split and len(apart) == 1)
        else:
            self._part(places, ranges, part)
        for r in ones:
            del self.emitter.bound[r]

    def _part(self, places: list[Place], ranges: list[Node], part: Part) -> None:
        """The loops of stores of one shape for a part of their first axis."""
        v = self._vector_range(places, ranges) if part.stop is not None else None
        lanes = min(self.emitter.lanes_of(p.value) for p in places)
        vector = (v, lanes, self._unroll(places, v, 1)) if v is not None else None
        nest(self.loops, places, ranges, part, vector, functools.partial(self._finish, places))

    def _finish(self, places: list[Place], instances: list[Instance], _: int) -> None:
        """The stores of some instances."""
        for place in places:
            self.emitter.store_all(place.pointer, place.index, place.value, instances)

    def _in_panels(
        self, group: list[Node], shape: tuple[int, ...], best: tuple[list[Place], list[Node]]
    ) -> tuple[list[Place], list[Node]]:
        """The nest with its last axis split in panels, where a factor that was packed so leaves divisions otherwise."""
        places, own = best
        if not any(isinstance(n.op, Fold) for p in places for n in walk((p.value,))):
            return best
        roots = [p.index for p in places] + [p.value for p in places]
        if not has_division(roots, own[-1]):
            return best
        scalar = self._scalarize()
        extents = (*shape[:-1], shape[-1] // PANEL, PANEL)
        split = [scalar.range(n) for n in extents]
        last = self.index.sum([(split[-2], PANEL), (split[-1], 1)])
        indices = (*split[:-2], last)
        made: list[Place] = []
        for node in group:
            pointer, index = self._target(node.src[0], indices, scalar)
            made.append(Place(pointer, index, self._decomposed(scalar.at(node.src[1], indices))))
        roots = [p.index for p in made] + [p.value for p in made]
        if any(has_division(roots, r) for r in split[-2:]):
            return best
        rows = [*split[:-3], split[-2], *split[-3:-2], split[-1]]
        return made, rows

    def _decomposed(self, root: Node) -> Node:
        """An expression by primitive ops, its reductions over as few ranges as can be."""
        (simple,) = rewrite([decompose(root, in_parts=self.index.sized)], EXACT)
        return merge_folds(simple, self.index)

    def _steps(self, index: Node, r: Node) -> int:
        """How far a range steps through memory."""
        return self.index.affine(index)[1].get(r, 0)

    def _nest(self, places: list[Place], ranges: list[Node], *, split: bool, parts: bool = False) -> None:
        """The loops of stores of one shape. `parts`: within other loops, threads share the outermost of these."""
        if not ranges:
            for place in places:
                self.emitter.store(place.pointer, place.index, self.emitter.emit(place.value, {}), {})
            return
        self.decide.begin()
        v = self._vector_range(places, ranges)
        rows = rows_below(self.emitter, places, ranges, v) if v is not None else []
        if v is not None and rows:
            self._columns(places, [r for r in ranges if r is not v and r not in rows], v, rows, split=split)
            return
        row: Node | None = None
        alone = len(places) == 1 and not self.index.sized
        if v is None and alone and self.target.vector_bytes:
            v = turned_column(self.loops, places[0].value, places[0].index, ranges)
        if v is not None and alone:
            row = row_range(self.loops, places[0].value, ranges, v)
        if row is not None:
            self._pass_caches(places, math.prod(self.loops.extent(r) for r in ranges))
        sheets = [r for r in ranges if r is not row and r is not v]
        words: Words | None = None
        if v is not None and row is not None and split:
            words = in_words(self.loops, self.axes, places[0], row, v, sheets)
        if words is not None and words.is_exact:
            words.run(ranges)
            return
        taken = all_streamed(self.loops, self.axes, places, ranges, v) if v is not None and not self.index.sized else []
        for stream in taken:
            stream.run(ranges, split=split)
        if taken:
            return
        slabbed = v is not None and row is not None and is_slabbed(self.loops, places[0], row, v)
        if v is not None and row is not None and slabbed and self.decide.of("slabs", 1, (0,)):
            Slabs(self.loops, self.axes, places[0], row=row, column=v).run(sheets, split=split)
            return
        if words is not None:
            words.run(ranges)
            return
        if v is not None and row is not None:
            slid = sliding(self.loops, self.axes, places[0], row=row, column=v, others=sheets)
            if slid is not None and self.decide.of("slid", 1, (0,)):
                slid.run([r for r in sheets if r is not slid.line], split=split)
                return
            Product(self.loops, self.axes, places[0], row=row, column=v).run(ranges, split=split)
            return
        dots = dot_ranges(self.loops, places[0], ranges) if v is None and alone and self.target.vector_bytes else None
        if v is not None:
            places = self._keep_rows(places, v)
        places = sorted(places, key=_has_no_position)  # which give extremes as well
        extents = {r: self.index.affine(r.src[0])[0] for r in ranges}
        work = 1
        for r in ranges:
            work *= extents[r]
        inner = sum(_fold_size(p.value, self.index) for p in places)
        work *= max(1, inner)
        if dots is not None:
            sheets = [r for r in ranges if r not in dots]
            Dots(self.loops, places[0], *dots).run(sheets, work, split=split)
            return
        outer = self._order([r for r in ranges if r is not v])
        lanes = self._lanes(places)
        unroll = 1 if v is None else self._unroll(places, v, work)

        finish = functools.partial(self._finish, places)

        def innermost(_: Node, carried: list[Node]) -> list[Node]:
            if v is None:
                finish([{}], 0)
            else:
                self.loops.vectors(v, lanes, unroll, finish)
            return carried

        self._pass_caches(places, math.prod(extents.values()))
        turned = self._turned(places, outer, v, extents)
        block = 0 if turned is None else self.decide.of("block", TILE, (0, TILE // 2, 2 * TILE, 4 * TILE))
        first = outer[0] if outer else v
        shared_folds = first is not None and any(  # each chunk would compute them again
            isinstance(n.op, Fold) and not self.emitter.mask(n) & self.emitter.bit(first)
            for n in toposort([p.value for p in places], enter=lambda n: not isinstance(n.op, Fold))
        )
        folds = any(isinstance(n.op, Fold) for n in walk([p.value for p in places]))
        if parts and first is not None and extents[first] > self._line(places[0], first) and not folds:
            share = self._lanes(places) if first is v else 1
            begin, end = self._share_of(first, max(share, self._line(places[0], first)))
            if first is v:
                self.loops.vectors_between(first, begin, end, share, 1, finish)
            else:
                self.loops.nest(outer, innermost, begin, end)
        elif v is not None and turned is not None and block:
            self._tiles(places, outer, v, turned, extents, work if split else 0, lanes, block)
        elif first is not None and split and work >= 2 * CHUNK and self.target.threads > 1 and not shared_folds:
            self._split(first, extents[first], work, outer, v, lanes, unroll, innermost, finish)
        else:
            self.loops.nest(outer, innermost)

    def _columns(self, places: list[Place], outer: list[Node], v: Node, rows: list[Node], *, split: bool) -> None:
        """The loops of stores that also reduce down columns: some of those at a time, and inside them the rows."""
        work = math.prod(self.loops.extent(r) for r in (*outer, v, *rows))
        self._pass_caches(places, work)
        lanes = self._lanes(places)
        unroll = self.decide.of("vectors", COLUMNS, VECTORS)
        kept = None if self.index.sized else Kept(self.loops, self.axes, rows, v, lanes * unroll)

        def down(instances: list[Instance], _: int) -> None:
            def stores(places: list[Place]) -> None:
                def run(_: Node, carried: list[Node]) -> list[Node]:
                    if kept is not None:
                        kept.ask(instances)
                    self._finish(places, instances, lanes)
                    return carried

                self.loops.nest(rows, run)

            if kept is None:
                stores(places)
            else:
                kept.write(places, stores)

        def across(_: Node, carried: list[Node]) -> list[Node]:
            self.loops.vectors(v, lanes, unroll, down)
            return carried

        if split and work >= 2 * CHUNK and self.target.threads > 1:
            first = outer[0] if outer else v
            self._split(first, self.loops.extent(first), work, outer, v, lanes, unroll, across, down)
        else:
            self.loops.nest(outer, across)

    def _pass_caches(self, places: list[Place], size: int) -> None:
        """Have large results that the kernel does nothing else with written past the caches; not those of any size."""
        for place in places if not self.index.varies(size) else ():
            op = place.pointer.op
            if isinstance(op, Param) and op.group in self.alone and size * op.of.itemsize >= self.target.far:
                self.past.add(op.slot)

    def _keep_rows(self, places: list[Place], v: Node) -> list[Place]:
        """What a fold computes at some cost, and the stores need again, is kept for a row: (load of scratch) for it."""
        emitter = self.emitter
        extent = self.index.affine(v.src[0])
        top = toposort([p.value for p in places], enter=lambda n: not isinstance(n.op, Fold))
        needed = set(top)
        for fold in top:
            if not isinstance(fold.op, Fold) or len(fold.src) != 2 or emitter.mask(fold) & emitter.bit(v):
                continue
            body, r = fold.src
            if self.index.affine(r.src[0]) != extent:
                continue
            inner = [
                n
                for n in toposort((body,), enter=lambda n: not isinstance(n.op, Fold))
                if isinstance(n.op, Elementwise) and n.dtype.is_float and emitter.mask(n) & emitter.bit(r)
            ]
            twins = substitute(inner, {r: v})
            for node, twin in zip(reversed(inner), reversed(twins), strict=True):
                if twin not in needed:
                    continue
                cost = sum(isinstance(n.op, Elementwise) for n in walk((node,)) if emitter.mask(n) & emitter.bit(r))
                row = self._row(places, fold, node.dtype, v, extent[0]) if cost >= HEAVY else None
                if row is None:
                    break
                pointer, place, epoch = row
                made = substitute([p.value for p in places], {twin: load(pointer, place, epoch=epoch)})
                if fold not in toposort(made, enter=lambda n: not isinstance(n.op, Fold)):
                    break
                emitter.kept[body] = node, substitute((place,), {v: r})[0], pointer
                return [Place(p.pointer, p.index, value) for p, value in zip(places, made, strict=True)]
        return places

    def _row(
        self, places: list[Place], fold: Node, dtype: DType, v: Node, extent: int
    ) -> tuple[Node, Node, int] | None:
        """Where the values of a fold's row are kept: (pointer, index, epoch of its loads).

        That is scratch, or the row that is stored to in the end, where the length of a row is known when it runs.
        """
        if extent * dtype.itemsize <= SCRATCH:
            return make(Local(next(self.axes), dtype, extent)), v, 0
        place = places[0]
        own = place.pointer.op
        if not self.index.varies(extent) or len(places) > 1 or not isinstance(own, Param) or own.of is not dtype:
            return None
        emitter = self.emitter
        rows = emitter.mask(place.index) & ~emitter.bit(v)
        read = any(isinstance(n.op, Param) and n.op.group == own.group for n in walk((place.value,)))
        return None if read or rows & ~emitter.mask(fold) else (place.pointer, place.index, self.statement)

    def _turned(self, places: list[Place], outer: list[Node], v: Node | None, extents: dict[Node, int]) -> Node | None:
        """The range along which loads that lie far apart along the vector range are of neighbours: a transposition."""
        nodes = list(walk([p.value for p in places]))
        if v is None or any(isinstance(n.op, Fold) for n in nodes):
            return None  # a fold stays outside the loops that it does not depend on
        bit = self.emitter.bit(v)
        for n in nodes:
            if isinstance(n.op, Load) and self.emitter.mask(n.src[1]) & bit:
                for r in reversed(outer):
                    if extents[r] >= TILE and extents[v] >= TILE and self._steps(n.src[1], r) == 1:
                        return r if abs(self._steps(n.src[1], v)) > TILE else None
        return None

    def _tiles(
        self,
        places: list[Place],
        outer: list[Node],
        v: Node,
        r: Node,
        extents: dict[Node, int],
        work: int,
        lanes: int,
        size: int,
    ) -> None:
        """Blocks of a range that loads step along by one, inside them vectors: what is loaded stays in cache."""
        emitter = self.emitter
        height = number(extents[r])

        def block(counter: Node, carried: list[Node]) -> list[Node]:
            level = len(emitter.frames) - 1
            stop = emitter.put(level, minimum(emitter.put(level, add(counter, number(size))), height))

            def column(instances: list[Instance], _: int) -> None:
                def run(_: Node, carried: list[Node]) -> list[Node]:
                    for instance in instances:
                        for place in places:
                            emitter.store(place.pointer, place.index, emitter.emit(place.value, instance), instance)
                    return carried

                emitter.loop(counter, stop, 1, (), run, lambda f, c: (r, Binding(f, c)))

            self.loops.vectors(v, lanes, 1, column)
            return carried

        def blocks(_: Node, carried: list[Node]) -> list[Node]:
            emitter.loop(number(0), height, size, (), block)
            return carried

        others = [o for o in outer if o is not r]
        if work < 2 * CHUNK or self.target.threads == 1:
            self.loops.nest(others, blocks)
        elif others:
            begin, stop = self.loops.chunk(extents[others[0]], work, 1)
            self.loops.nest(others, blocks, begin, stop)
        else:
            begin, stop = self.loops.chunk(extents[r], work, size)
            emitter.loop(begin, stop, size, (), block)

    def _split(
        self,
        first: Node,
        extent: int,
        work: int,
        outer: list[Node],
        v: Node | None,
        lanes: int,
        unroll: int,
        innermost: Callable[[Node, list[Node]], list[Node]],
        finish: Callable[[list[Instance], int], None],
    ) -> None:
        """The outermost loop in chunks of equal length, for threads to share."""
        if first is not v:
            lanes = unroll = 1
        while unroll > 1 and extent < lanes * unroll:
            unroll //= 2
        begin, end = self.loops.chunk(extent, work, lanes * unroll)
        if first is not v:
            self.loops.nest(outer, innermost, begin, end)
            return
        self.loops.vectors_between(first, begin, end, lanes, unroll, finish)

    def _unroll(self, places: list[Place], v: Node, work: int) -> int:
        """How many vectors at once."""
        return self.decide.of("vectors", self._usual_unroll(places, v, work), VECTORS)

    def _usual_unroll(self, places: list[Place], v: Node, work: int) -> int:
        """As the model says: many in sums of rows out of memory, of which each turn then reads a long piece."""
        size = _node_count(places)
        bit = self.emitter.bit(v)
        rows = any(isinstance(n.op, Fold) and self.emitter.mask(n) & bit for p in places for n in walk((p.value,)))
        far = work * places[0].value.dtype.itemsize > 2 * self.target.level2
        if rows and far and size < SHORT and len(places) == 1:
            return self.target.vector_registers // 2
        if work < MANY:
            return UNROLL if len(toposort([p.value for p in places])) < LONG else 1
        return UNROLL if size < LONG else 2 * UNROLL if size < LONGEST else 1  # steps of one vector wait for each other

    # -- choices

    def _lanes(self, places: list[Place]) -> int:
        """How many lanes the vectors of a nest have; half of the usual may do, where no fold is in vectors as well."""
        lanes = min(self.emitter.lanes_of(p.value) for p in places)
        return self.decide.of("lanes", lanes, () if lanes < 4 or _has_fold(places) else (lanes // 2,))

    def _order(self, outer: list[Node]) -> list[Node]:
        """The loops around the vectors, from the outermost in."""
        usual = tuple(range(len(outer)))
        swaps = [(*usual[:k], k + 1, k, *usual[k + 2 :]) for k in usual[:-1]]
        return [outer[k] for k in self.decide.of("order", usual, swaps)]

    def _vector_range(self, places: list[Place], ranges: list[Node]) -> Node | None:
        """The range that becomes a vector; another one may be tried where there is no fold, whose order that sets."""
        usual = self._usual_vector_range(places, ranges)
        if usual is None or _has_fold(places):
            return usual
        lanes = min(self.emitter.lanes_of(p.value) for p in places)
        extents = [self.index.affine(r.src[0]) for r in ranges]
        others = [k for k, (extent, rest) in enumerate(extents) if not rest and extent >= lanes]
        return ranges[self.decide.of("vector", ranges.index(usual), others)]

    def _usual_vector_range(self, places: list[Place], ranges: list[Node]) -> Node | None:
        """As the model says: one along which stores and loads are of neighbours."""
        best: tuple[int, Node] | None = None
        if not self.target.vector_bytes:
            return None
        for r in ranges:
            extent, rest = self.index.affine(r.src[0])
            lanes = min(self.emitter.lanes_of(p.value) for p in places)
            if rest or extent < max(2, min(lanes, 4)):
                continue
            score = 0
            for p in places:
                step = self._steps(p.index, r)
                score += 4 if step == 1 else -6
                bit = self.emitter.bit(r)
                often = {n for f in walk((p.value,)) if isinstance(f.op, Fold) for n in walk(f.src)}
                for n in walk((p.value,)):
                    if isinstance(n.op, Load):
                        place = n.src[1]
                        if not self.emitter.mask(place) & bit:
                            continue
                        step = self._steps(place, r)
                        nested = any(isinstance(s.op, Load) for s in walk((place,)))
                        near = len(n.src) == 2 and 2 <= self.emitter.stride(place, r) <= STRIDED
                        weight = 8 if n in often else 1
                        score += weight if step == 1 else -2 * weight if not nested and not near else 0
            if best is None or score >= best[0]:
                best = score, r
        if best is None or best[0] <= 0:
            return None
        return best[1]


def decompose(root: Node, *, in_parts: bool = False) -> Node:
    """An expression with every op that is not primitive replaced by its decomposition, until none is left.

    Args:
        in_parts: Whether large integers of decompositions are put together from halves, so that none is taken for
            one that depends on the nominal size.
    """
    done: dict[Node, Node] = {}
    forms: dict[Node, Node] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if node in forms:
            done[node] = done[forms[node]]
            continue
        missing = [s for s in node.src if s not in done]
        if missing:
            stack.extend(missing)
            continue
        made = rebuild(node, tuple(done[s] for s in node.src)) if node.src else node
        op = made.op
        if isinstance(op, Elementwise) and op.is_decomposed(made.dtype):
            form = op.decompose(*made.src)
            forms[node] = _in_parts(form, made.src) if in_parts else form
            done.update((s, s) for s in made.src)
            stack.append(forms[node])
        else:
            done[node] = made
    return done[root]


def _cut_as_they_were(group: list[Node]) -> list[tuple[int, ...]]:
    """The extents of a shape, cut where the axes that reshapes merged into it were: none where that gives no axes."""
    shape = group[0].src[0].shape
    size = math.prod(shape)
    ends = {*_ends(shape)}
    for node in walk(store.src[1] for store in group):
        if isinstance(node.op, Reshape) and node.size == size:
            ends.update(_ends(node.src[0].shape))
    if not size or len(ends) == len({*_ends(shape)}):
        return []
    order = sorted(ends)
    if any(b % a for a, b in itertools.pairwise(order)):
        return []
    return [tuple(b // a for a, b in reversed(list(itertools.pairwise(order))))]


def _ends(shape: tuple[int, ...]) -> list[int]:
    """How many elements the last axes of a shape have together: none of them, one, two, and so on."""
    return list(itertools.accumulate(reversed(shape), operator.mul, initial=1))


def _in_parts(form: Node, operands: tuple[Node, ...]) -> Node:
    """A decomposition whose integers are all less than those that depend on the size."""
    large = [n for n in toposort((form,), enter=lambda n: n not in operands) if _is_large(n)]
    made: dict[Node, Node] = {}
    for node in large:
        assert isinstance(node.op, Const)
        high, low = divmod(int(node.op.value), 1 << 32)
        made[node] = or_(shl(number(high), number(32)), number(low))
    return substitute((form,), made)[0]


def _is_large(node: Node) -> bool:
    """Whether a node is an integer that might be taken for one that depends on the nominal size."""
    return isinstance(node.op, Const) and node.dtype is dtypes.int64 and abs(int(node.op.value)) >= REACH


def _group(window: Node) -> int:
    """The group of the bytes that a window is on."""
    pointer = window.src[0].op
    if not isinstance(pointer, Param):
        raise InternalError(f"lower: a store through {pointer.name}")
    return pointer.group


def _groups_read(node: Node) -> set[int]:
    """The groups that a statement's value reads."""
    return {n.op.group for s in node.src[1:] for n in walk((s,)) if isinstance(n.op, Param)}


def _only_stored(ast: Node) -> set[int]:
    """The groups of bytes that a kernel of stores writes once, and does not read."""
    if not all(isinstance(n.op, Store) for n in ast.src):
        return set()
    written = [_group(n.src[0]) for n in ast.src]
    return {g for g in written if written.count(g) == 1}.difference(*map(_groups_read, ast.src))


def _has_scan(node: Node) -> bool:
    """Whether a store's value is a scan."""
    return isinstance(node.src[1].op, Scan)


def _mergings(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shape with adjacent axes merged into one, two or three, most merged first, and the shape itself last."""
    found: dict[tuple[int, ...], None] = {}
    for count in range(min(3, len(shape) - 1)):
        for inner in itertools.combinations(range(1, len(shape)), count):
            cuts = (0, *inner, len(shape))
            extents = tuple(math.prod(shape[a:b]) for a, b in itertools.pairwise(cuts))
            if count == 0 or 1 not in extents:
                found[extents] = None
    found[shape] = None
    return list(found)


def _has_no_position(place: Place) -> bool:
    """Whether a value asks for no position of an extreme."""
    return not any(position_of(n) for n in walk((place.value,)) if isinstance(n.op, Fold))


def _fold_size(value: Node, index: Index) -> int:
    """How many values the folds of an expression take for one result."""
    total = 0
    for n in walk((value,)):
        if isinstance(n.op, Fold):
            size = 1
            for r in n.src[1:]:
                size *= index.affine(r.src[0])[0]
            total += size
    return total


def _has_fold(places: list[Place]) -> bool:
    """Whether a nest reduces something."""
    return any(isinstance(n.op, Fold) for n in walk([p.value for p in places]))


def _node_count(places: list[Place]) -> int:
    """How many nodes the values of a nest usually need."""
    return len(usual([p.value for p in places]))


def _work(node: Node) -> int:
    """The arithmetic operations of one tensor node."""
    op = node.op
    if isinstance(op, Elementwise) and node.dtype.is_float:
        return node.size
    if isinstance(op, (Reduce, Scan)) and node.dtype.is_float:
        return node.src[0].size
    return 0
