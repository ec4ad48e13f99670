"""Prologues: small values that only a product of few rows needs, computed by each chunk of its kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.core.size import varies
from intaglio.ir.node import toposort
from intaglio.ops.memory import Buffer
from intaglio.schedule.chains import Chain, is_plain, is_whole, roots_of, writes_of
from intaglio.schedule.fuse import is_dot, work_of
from intaglio.schedule.program import Statement, Write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.ops.memory import BufferRef

ROWS: Final = 4  # of a product at most: one of more rows has more chunks, and each takes longer to compute for
SMALL: Final = 1 << 15  # bytes of what each chunk computes, at most: the first cache holds it
WORTH: Final = 512  # multiplications of the product for each element that is computed, at least


@dataclass(frozen=True, slots=True)
class Prologued:
    """Writes of one kernel: all but the last make small values, which only the last needs, and each of its chunks."""

    writes: tuple[Write, ...]


Group: TypeAlias = list[Statement] | Chain | Prologued


def with_prologues(groups: Sequence[Group], private: set[BufferRef]) -> Sequence[Group]:
    """Groups of statements, of which those that only a product of few rows needs come first in its kernel.

    Args:
        groups: Those of a kernel each, in order.
        private: The buffers that only these read.
    """
    products = {number: product for number, group in enumerate(groups) if (product := _product(group)) is not None}
    if not products:
        return groups
    reads = [_reads(group) for group in groups]
    readers = _numbers(reads)
    writers = _numbers([{w.ref for s in _statements(group) for w in writes_of(s)} for group in groups])

    def is_changed(ref: BufferRef, after: int, until: int) -> bool:
        return any(after < number <= until for number in writers.get(ref, ()))

    taken: set[int] = set()
    made: dict[int, Prologued] = {}
    for number, product in products.items():
        makers: dict[int, Write] = {}
        for ref in reads[number] & private:
            if readers[ref] != [number] or len(writers.get(ref, ())) != 1:
                continue
            (at,) = writers[ref]
            maker = _maker(groups[at])
            if maker is not None and not any(is_changed(r, at, number) for r in reads[at]):
                makers[at] = maker
        first = [makers[at] for at in sorted(makers)]
        if first and _pays(first, product):
            taken.update(makers)
            made[number] = Prologued((*first, product))
    return [made.get(number, group) for number, group in enumerate(groups) if number not in taken]


def _statements(group: Group) -> Sequence[Statement]:
    """The statements of a group."""
    return group if isinstance(group, list) else group.writes


def _reads(group: Group) -> set[BufferRef]:
    """The buffers that a group reads."""
    nodes = toposort([value for s in _statements(group) for value in roots_of(s)])
    return {n.op.ref for n in nodes if isinstance(n.op, Buffer)}


def _numbers(groups: Sequence[set[BufferRef]]) -> dict[BufferRef, list[int]]:
    """The numbers of the groups that each buffer belongs to."""
    found: dict[BufferRef, list[int]] = {}
    for number, refs in enumerate(groups):
        for ref in refs:
            found.setdefault(ref, []).append(number)
    return found


def _product(group: Group) -> Write | None:
    """The only write of a group, if that is a product of few rows by a matrix, of fixed size."""
    write = _only(group)
    if write is None or varies(write.value.size):
        return None
    dots = [n for n in toposort((write.value,)) if is_dot(n)]
    few = all(n.size <= ROWS * n.shape[-1] and not varies(n.src[0].size) for n in dots)
    return write if dots and few and is_plain(write) else None


def _maker(group: Group) -> Write | None:
    """The only write of a group, if it fills a small buffer by what each chunk may compute again."""
    write = _only(group)
    if write is None or not is_plain(write) or not is_whole(write) or varies(write.value.nbytes):
        return None
    order = toposort((write.value,))
    return write if write.value.nbytes <= SMALL and not any(map(is_dot, order)) else None


def _only(group: Group) -> Write | None:
    """The only statement of a group, if it is a write."""
    if not isinstance(group, list) or len(group) > 1:
        return None
    (statement,) = group
    return statement if isinstance(statement, Write) else None


def _pays(makers: list[Write], product: Write) -> bool:
    """Whether what each chunk computes is little beside the product."""
    work = sum(map(work_of, makers))
    multiplied = max(n.src[0].size for n in toposort((product.value,)) if is_dot(n))
    return sum(maker.value.nbytes for maker in makers) <= SMALL and work * WORTH <= multiplied
