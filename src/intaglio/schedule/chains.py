"""Chains of products: statements that run together for some rows at a time, what lies between them in scratch."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, toposort
from intaglio.ir.view import View
from intaglio.ops.elementwise import Elementwise
from intaglio.ops.memory import Buffer, BufferRef, Window, buffer, window
from intaglio.ops.movement import Expand, Flip, Pad, Permute, Reshape, Shrink
from intaglio.ops.reduce import Reduce
from intaglio.ops.rescaling import exponentials
from intaglio.schedule.fuse import is_product
from intaglio.schedule.program import Repeat, Statement, Write

if TYPE_CHECKING:
    from collections.abc import Iterator

THIN: Final = 256  # terms, or columns, of a product whose matrix stays in a cache: each number is worth little work
SHORT: Final = 16  # rows from which a chain runs by blocks of them
PRODUCTS: Final = 4  # of a chain at most: each may have scratch of its own on the stack
LARGE: Final = 1 << 14  # numbers between the products from which they are better not moved through memory
WIDE: Final = 1 << 18  # bytes of what lies between them for one row at most, if it is there as a whole: on the stack

Origins = tuple[int, ...]  # for each axis of a node, the axis of the statement whose position it has; -1: another


@dataclass(frozen=True, slots=True)
class Chain:
    """Writes in order, of one shape along their first `lead` axes; all but the last are read only by those after them.

    Each reads of the others what is at its own place along those axes; without such axes, all of it.
    """

    writes: tuple[Write, ...]
    lead: int


def chained(statements: list[Statement], private: set[BufferRef]) -> list[list[Statement] | Chain]:
    """Statements in order, those that are a chain put together at the place of their last.

    Args:
        private: The buffers that only these statements read.
    """
    program = _Statements(statements, private)
    chains: dict[int, Chain] = {}
    inside: set[int] = set()
    for number in reversed(range(len(statements))):
        members, last = program.chain(number) if number not in inside else ([], None)
        if last is not None:
            writes = tuple(s for k in members[:-1] if isinstance(s := statements[k], Write))
            chains[number] = Chain((*writes, last), last.value.rank - 1)
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
    """What reads and writes which buffers."""

    def __init__(self, statements: list[Statement], private: set[BufferRef]) -> None:
        self.statements: Final = statements
        self.reads: Final[list[set[BufferRef]]] = []
        self.readers: Final[dict[BufferRef, set[int]]] = {}
        self.writers: Final[dict[BufferRef, list[int]]] = {}
        self.private: Final = private
        self.heavy: Final[list[int]] = []
        for number, statement in enumerate(statements):
            read: set[BufferRef] = set()
            product = False
            for node in toposort(roots_of(statement)):
                if isinstance(node.op, Buffer):
                    read.add(node.op.ref)
                product = product or is_product(node)
            if product and isinstance(statement, Write):
                self.heavy.append(number)
            self.reads.append(read)
            for ref in read:
                self.readers.setdefault(ref, set()).add(number)
            for write in writes_of(statement):
                self.writers.setdefault(write.ref, []).append(number)

    def chain(self, last: int) -> tuple[list[int], Write | None]:
        """The numbers of the statements of the chain that ends in one, if one does, and its write, as it is then."""
        statement = self.statements[last]
        if len(self.heavy) < 2 or last not in self.heavy or not isinstance(statement, Write) or not is_plain(statement):
            return [], None
        statement = _unmoved(statement)
        lead = statement.value.shape[:-1]
        if not lead or lead[-1] < SHORT or statement.ref in self.reads[last]:
            return [], None
        members = {last: statement}
        for number in reversed(range(last)):
            maker = self.statements[number]
            if isinstance(maker, Write) and self._joins(number, maker, members, lead):
                members[number] = maker
        found = sorted(members)
        return (found, statement) if self._pays(members, len(lead)) and self._may_wait(found) else ([], None)

    def _joins(self, number: int, maker: Write, members: dict[int, Write], lead: tuple[int, ...]) -> bool:
        """Whether a statement makes what only members of a chain read, at their own rows."""
        ref = maker.ref
        if number in self.heavy and (sum(k in members for k in self.heavy) == PRODUCTS or not _has_thin(maker)):
            return False
        if ref not in self.private or self.writers[ref] != [number] or not self.readers.get(ref, set()) <= set(members):
            return False
        if not is_plain(maker) or not is_whole(maker) or maker.value.shape[: len(lead)] != lead:
            return False
        readers = [s for k, s in members.items() if ref in self.reads[k]]
        return bool(readers) and all(_reads_own_rows(s.value, maker, len(lead)) for s in readers)

    def _pays(self, members: dict[int, Write], lead: int) -> bool:
        """Whether a chain has a product of which another is made, much between them, and only thin matrices."""
        last = max(members)
        makers = [members[k] for k in sorted(members) if k != last]
        if not any(k in members for k in self.heavy if k != last):
            return False
        row = sum(math.prod(s.value.shape[lead:]) * s.value.dtype.itemsize for s in makers)
        if max(s.value.size for s in makers) < LARGE or (row > WIDE and not _goes_by(makers, members[last], lead)):
            return False
        return _has_thin(members[last])

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


def _has_thin(write: Write) -> bool:
    """Whether all products of a write are by thin matrices."""
    return all(_is_thin(n) for n in toposort((write.value,)) if is_product(n))


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
