"""Chains of products: statements that run together for some rows at a time, what lies between them in scratch."""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from sys import maxsize
from typing import TYPE_CHECKING, Final

from intaglio.core.size import at, varies
from intaglio.ir.node import Node, toposort
from intaglio.ir.view import View
from intaglio.ops.elementwise import Elementwise
from intaglio.ops.memory import Buffer, BufferRef, Window, buffer, window
from intaglio.ops.movement import Expand, Flip, Pad, Permute, Reshape, Shrink
from intaglio.ops.reduce import Reduce
from intaglio.ops.rescaling import exponentials
from intaglio.ops.scratch import SHEET
from intaglio.schedule.fuse import is_dot, is_product, repeated, work_of
from intaglio.schedule.program import Repeat, Statement, Write

if TYPE_CHECKING:
    from collections.abc import Iterator

THIN: Final = 256  # terms, or columns, of a product whose matrix stays in a cache: each number is worth little work
SHORT: Final = 16  # rows from which a chain runs by blocks of them
PRODUCTS: Final = 4  # of a chain at most: each may have scratch of its own on the stack
LARGE: Final = 1 << 14  # numbers between the products from which they are better not moved through memory
WIDE: Final = 1 << 18  # bytes of what lies between them for one row at most, if it is there as a whole: on the stack
ENOUGH: Final = 8  # sheets from which a few threads share these as well as what is in them
LITTLE: Final = 1 << 19  # values that the members of a chain take up to which threads share none of them

Origins = tuple[int, ...]  # for each axis of a node, the axis of the statement whose position it has; -1: another


@dataclass(frozen=True, slots=True)
class Chain:
    """Writes in order, of one shape along their first `lead` axes; all but the last are read only by those after them.

    Each reads of the others what is at its own place along those axes: a row, or (`sheets`) a sheet of a few rows, all
    of which are computed together.
    """

    writes: tuple[Write, ...]
    lead: int
    sheets: bool = False

    @property
    def most(self) -> int:
        """The size up to which there is room for what lies between the writes, if that is at the nominal one."""
        sizes = [_line(write, self.lead) for write in self.writes[:-1]]
        ends = [bisect_right(range(1, SHEET + 1), SHEET, key=lambda n, size=s: at(size, n)) for s in sizes if varies(s)]
        return min(ends, default=maxsize)


def chained(
    statements: list[Statement], private: set[BufferRef], *, nominal: bool = False, threads: int = 1
) -> list[list[Statement] | Chain]:
    """Statements in order, those that are a chain put together at the place of their last.

    Args:
        private: The buffers that only these statements read.
        nominal: They are at the nominal size: only chains by sheets can be.
        threads: How many will share what takes long, as far as it is known.
    """
    program = _Statements(statements, private, max(ENOUGH, threads))
    chains: dict[int, Chain] = {}
    inside: set[int] = set()
    for number in reversed(program.dots if len(program.dots) > 1 else {}):
        members, chain = program.chain(number, nominal=nominal) if number not in inside else ([], None)
        if chain is not None:
            chains[number] = chain
            inside.update(members)
    out: list[list[Statement] | Chain] = [[]]
    for number, statement in enumerate(statements):
        if number in chains:
            out += [chains[number], []]
        elif number not in inside:
            plain = out[-1]
            assert isinstance(plain, list)
            plain.append(statement)
    return [part for part in out if part]


class _Statements:
    """What reads and writes which buffers.

    Attributes:
        enough: Sheets of which chains may take long.
        heavy: The writes of products of matrices, by number.
        dots: Those, and writes of matrices times vectors.
    """

    def __init__(self, statements: list[Statement], private: set[BufferRef], enough: int) -> None:
        self.statements: Final = statements
        self.enough: Final = enough
        self.reads: Final[list[set[BufferRef]]] = []
        self.readers: Final[dict[BufferRef, set[int]]] = {}
        self.writers: Final[dict[BufferRef, list[int]]] = {}
        self.private: Final = private
        self.heavy: Final[dict[int, None]] = {}
        self.dots: Final[dict[int, None]] = {}
        for number, statement in enumerate(statements):
            read: set[BufferRef] = set()
            dot = product = False
            for node in toposort(roots_of(statement)):
                if isinstance(node.op, Buffer):
                    read.add(node.op.ref)
                dot = dot or is_dot(node)
                product = product or is_product(node)
            if isinstance(statement, Write):
                self.dots.update({number: None} if dot else {})
                self.heavy.update({number: None} if product else {})
            self.reads.append(read)
            for ref in read:
                self.readers.setdefault(ref, set()).add(number)
            for write in writes_of(statement):
                self.writers.setdefault(write.ref, []).append(number)

    def chain(self, last: int, *, nominal: bool) -> tuple[list[int], Chain | None]:
        """The numbers of the statements of the chain that ends in one, if one does, and the chain."""
        statement = self.statements[last]
        if not isinstance(statement, Write) or not is_plain(statement):
            return [], None
        statement = _unmoved(statement)
        shape = statement.value.shape
        sheets = len(shape) < 2 or shape[-2] < SHORT
        if statement.ref in self.reads[last] or (not sheets and (nominal or last not in self.heavy)):
            return [], None
        lead = _apart(statement.value) if sheets else len(shape) - 1
        members = self._members(last, statement, lead, sheets=sheets)
        found = sorted(members)
        pays = self._pays_by_sheets if sheets else self._pays
        if not pays(members, lead) or not self._may_wait(found):
            return [], None
        return found, Chain(tuple(members[k] for k in found), lead, sheets)

    def _members(self, last: int, statement: Write, lead: int, *, sheets: bool) -> dict[int, Write]:
        """The statements that may be in a chain with one, which is its last, and that one, by number."""
        members = {last: statement}
        waiting = self._makers(last)
        seen = {last, *waiting}
        heapq.heapify(waiting)
        while waiting:  # from the latest on: all that read what it makes are known then
            number = -heapq.heappop(waiting)
            maker = self.statements[number]
            if isinstance(maker, Write) and self._joins(number, maker, members, lead, sheets=sheets):
                members[number] = maker
                for other in self._makers(number):
                    if other not in seen:
                        seen.add(other)
                        heapq.heappush(waiting, other)
        return members

    def _makers(self, number: int) -> list[int]:
        """The statements before one that alone make what only these statements read, and what it reads; negative."""
        read = self.reads[number] & self.private
        return [-writers[0] for ref in read if len(writers := self.writers.get(ref, ())) == 1 and writers[0] < number]

    def _joins(self, number: int, maker: Write, members: dict[int, Write], lead: int, *, sheets: bool) -> bool:
        """Whether a statement makes what only members of a chain read, at their own rows or sheets."""
        ref, products, shape = maker.ref, self.dots if sheets else self.heavy, members[max(members)].value.shape
        if not self.readers.get(ref, set()) <= set(members):
            return False
        if number in products and (sum(k in products for k in members) == PRODUCTS or not _has_thin(maker, sheets)):
            return False
        if not is_plain(maker) or not is_whole(maker) or maker.value.shape[:lead] != shape[:lead]:
            return False
        if sheets and _apart(maker.value) < lead:
            return False
        readers = [s for k, s in members.items() if ref in self.reads[k]]
        return bool(readers) and all(_reads_own_rows(s.value, maker, lead) for s in readers)

    def _pays(self, members: dict[int, Write], lead: int) -> bool:
        """Whether a chain has a product of which another is made, much between them, and only thin matrices."""
        last = max(members)
        makers = [members[k] for k in sorted(members) if k != last]
        if not any(k in self.heavy for k in members if k != last):
            return False
        row = sum(_line(s, lead) for s in makers)
        if max(s.value.size for s in makers) < LARGE or (row > WIDE and not _goes_by(makers, members[last], lead)):
            return False
        return _has_thin(members[last])

    def _pays_by_sheets(self, members: dict[int, Write], lead: int) -> bool:
        """Whether sheets have few rows and room in scratch, and there are enough of them for threads, or little to do.

        One sheet in which no largest element is asked for is a network of layers, which are better gone through apart.
        """
        last = max(members)
        value = members[last].value
        makers = [members[k] for k in sorted(members) if k != last]
        sheets, rows = math.prod(value.shape[:lead]), math.prod(value.shape[lead:-1])
        if not any(k in self.dots for k in members if k != last) or rows >= SHORT:
            return False
        if sheets == 1 and not any(_is_largest(n) for n in toposort([s.value for s in makers])):
            return False
        lines = [n for s in makers if not varies(n := _line(s, lead))]
        if any(n > SHEET for n in lines) or sum(lines) > WIDE:
            return False
        work = sum(map(work_of, members.values()))
        return (sheets >= self.enough or varies(work) or work < LITTLE) and _has_thin(members[last], sheets=True)

    def _may_wait(self, members: list[int]) -> bool:
        """Whether all members may run where the last one does: nothing in between writes what they read."""
        target = writes_of(self.statements[members[-1]])[0].ref
        if any(target in self.reads[k] for k in members):
            return False
        own = set(members)
        for number in members[:-1]:
            between = (self.statements[k] for k in range(number + 1, members[-1]) if k not in own)
            written = {w.ref for s in between for w in writes_of(s)}
            if written & self.reads[number]:
                return False
        return True


def writes_of(statement: Statement) -> list[Write]:
    """The writes of a statement."""
    return [statement] if isinstance(statement, Write) else list(itertools.chain(*statement.arms))


def roots_of(statement: Statement) -> list[Node]:
    """What a statement computes from."""
    found = [
        v for w in writes_of(statement) for v in (w.value, *w.indices, *((w.offset,) if w.offset is not None else ()))
    ]
    if isinstance(statement, Repeat) and statement.selector is not None:
        found.append(statement.selector)
    return found


def _goes_by(makers: list[Write], last: Write, lead: int) -> bool:
    """Whether a kernel needs only some columns at a time of what makers make."""
    targets = [window(s.view, buffer(s.ref)) for s in makers]
    return exponentials(targets, [*(s.value for s in makers), last.value], lead) is not None


def is_plain(write: Write) -> bool:
    """Whether a write is of one value, at fixed places, all of it in one kernel."""
    return (
        not write.indices
        and write.combine == "set"
        and write.offset is None
        and write.value.rank >= 1
        and write.view.shape == write.value.shape
        and all(s % write.view.dtype.itemsize == 0 for s in write.view.strides)
        and not any(n.op.name in ("scan", "put", "copy_to") for n in toposort((write.value,)))
    )


def _unmoved(write: Write) -> Write:
    """A write of a value whose axes are moved or joined at last, as one of the value before to places so moved."""
    while isinstance(write.value.op, (Permute, Reshape)):
        op, (value,) = write.value.op, write.value.src
        if isinstance(op, Permute):
            view = write.view.permute(tuple(op.order.index(a) for a in range(value.rank)))
        else:
            view = write.view.reshape(value.shape)
        if view is None:
            break
        write = replace(write, view=view, value=value)
    return write


def is_whole(write: Write) -> bool:
    """Whether a write fills a buffer, in order."""
    return write.view == View.contiguous(write.value.dtype, write.value.shape)


def _line(write: Write, lead: int) -> int:
    """The bytes that a write has at one place along its first axes."""
    return math.prod(write.value.shape[lead:]) * write.value.dtype.itemsize


def _apart(value: Node) -> int:
    """How many first axes a value has along which none of its products uses a factor again."""
    found = value.rank
    for node in toposort((value,)):
        if is_dot(node):
            assert isinstance(node.op, Reduce)
            body = node.src[0]
            kept = [a for a in range(body.rank) if a not in node.op.axes]
            again = {a for factor in body.src for a in repeated(factor)}
            found = min(found, next((k for k, a in enumerate(kept) if a in again), found))
    return found


def _is_largest(node: Node) -> bool:
    """Whether a value is the largest element of others."""
    return isinstance(node.op, Reduce) and node.op.kind == "max"


def _has_thin(write: Write, sheets: bool = False) -> bool:
    """Whether all products of a write are by thin matrices; of `sheets`, those by vectors as well."""
    return all(_is_thin(n) for n in toposort((write.value,)) if (is_dot if sheets else is_product)(n))


def _is_thin(product: Node) -> bool:
    """Whether the matrix of a product has few rows or few columns."""
    assert isinstance(product.op, Reduce)
    shape = product.src[0].shape
    columns = max(a for a in range(len(shape)) if a not in product.op.axes)
    return min(math.prod(shape[a] for a in product.op.axes), shape[columns]) <= THIN


def _reads_own_rows(value: Node, maker: Write, lead: int) -> bool:
    """Whether a value reads of what another statement makes only what is at its own place along the first axes."""
    order = toposort((value,))
    start = tuple(a if a < lead and n != 1 else -1 for a, n in enumerate(value.shape))
    origins: dict[Node, dict[Origins, None]] = {n: {} for n in order}
    origins[value][start] = None
    for node in reversed(order):
        for axes in origins[node]:
            if isinstance(node.op, Window) and isinstance(node.src[0].op, Buffer):
                if node.src[0].op.ref is maker.ref and not _is_own(node.op.view, axes, maker.view, lead):
                    return False
                continue
            for source, given in _inputs(node, axes):
                origins[source][given] = None
    return True


def _is_own(view: View, axes: Origins, whole: View, lead: int) -> bool:
    """Whether a view's elements are in the rows that its axes stand for, of a whole value seen by another view."""
    if view.dtype is not whole.dtype:
        return False
    low = high = view.offset
    found: set[int] = set()
    for origin, n, stride in zip(axes, view.shape, view.strides, strict=True):
        if 0 <= origin < lead and stride == whole.strides[origin] and origin not in found and n == whole.shape[origin]:
            found.add(origin)
        else:
            low += min(0, (n - 1) * stride)
            high += max(0, (n - 1) * stride)
    row = math.prod(whole.shape[lead:]) * whole.dtype.itemsize
    return found == {a for a in range(lead) if whole.shape[a] != 1} and low >= 0 and high < row


def _inputs(node: Node, axes: Origins) -> Iterator[tuple[Node, Origins]]:
    """Whose positions the axes of a node's inputs have."""
    match node.op:
        case Elementwise():
            for source in node.src:
                yield source, axes if source.shape else ()
        case Permute(order=order):
            moved = [-1] * len(order)
            for place, axis in enumerate(order):
                moved[axis] = axes[place]
            yield node.src[0], tuple(moved)
        case Expand():
            (x,) = node.src
            yield x, tuple(-1 if n == 1 else a for n, a in zip(x.shape, axes, strict=True)) if x.shape else ()
        case Shrink(bounds=bounds):
            (x,) = node.src
            yield x, tuple(a if b == (0, n) else -1 for a, b, n in zip(axes, bounds, x.shape, strict=True))
        case Pad(pads=pads):
            yield node.src[0], tuple(a if p == (0, 0) else -1 for a, p in zip(axes, pads, strict=True))
        case Flip(axes=flipped):
            yield node.src[0], tuple(-1 if k in flipped else a for k, a in enumerate(axes))
        case Reshape():
            yield node.src[0], _reshaped(node.src[0].shape, node.shape, axes)
        case Reduce(axes=along):
            (x,) = node.src
            kept = iter(axes)
            yield x, tuple(-1 if a in along else next(kept) for a in range(x.rank))
        case _:
            for source in node.src:
                yield source, (-1,) * source.rank


def _reshaped(old: tuple[int, ...], new: tuple[int, ...], axes: Origins) -> Origins:
    """Whose positions the axes before a reshape have: those that it leaves as they are keep theirs."""
    found = [-1] * len(old)
    if 0 in old:
        return tuple(found)
    places = {math.prod(new[k + 1 :]): k for k in range(len(new)) if new[k] != 1}
    for a, n in enumerate(old):
        k = places.get(math.prod(old[a + 1 :]))
        if n != 1 and k is not None and new[k] == n:
            found[a] = axes[k]
    return tuple(found)
