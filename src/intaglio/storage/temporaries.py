"""Temporaries of a loop's turns: computed values that each turn makes anew, views, and writes as wholes only.

They have a storage each, since they were viewed, cloned or written; what reads them can as well be computed from what
they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.ir.node import Node, substitute, toposort, walk
from intaglio.ops.memory import Read
from intaglio.ops.viewed import view_of
from intaglio.storage.journal import Entry
from intaglio.storage.skeleton import ReadStep, is_small, of_node
from intaglio.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from intaglio.storage.journal import AnyEntry

NEAREST: Final = 4  # storages read by which values are told apart at a glance
GLANCE: Final = 32  # nodes that are looked at for them

Versions: TypeAlias = "tuple[Sequence[int], Sequence[Node]]"  # the values that a storage has had, and since when


def versions(base: Node, storage: Storage, log: Iterable[AnyEntry]) -> Versions | None:
    """What a storage was after each of its writes; None where one is not a value of the whole."""
    numbers, values = [0], [base]
    for entry in log:
        if not isinstance(entry, Entry) or entry.indices or entry.combine != "set":
            return None
        if not entry.view.is_contiguous or entry.view.nbytes != storage.nbytes:
            return None
        numbers.append(entry.sequence)
        values.append(entry.value)
    return numbers, values


def made_in_turns(candidates: Mapping[Storage, Versions], values: Iterable[Node]) -> set[Storage]:
    """Those of some storages that hold what others hold in other turns.

    There are as many of a form as reads of each, at least: else a loop goes through the elements of a few.

    Args:
        candidates: Storages with a version 0 that is yet to be computed, and no writes but of the whole.
        values: What reads them, and what is written to those that are written.
    """
    forms: dict[object, list[Storage]] = {}
    for storage, (_, own) in _likely(candidates).items():
        found = [of_node(value) for value in own]
        steps = [
            tuple(
                (s.dtype, s.shape, s.strides) if isinstance(s, ReadStep) and s.storage in candidates else s
                for s in one[0].steps
            )
            for one in found
            if one is not None
        ]
        if len(steps) == len(own):
            forms.setdefault((storage.nbytes, *steps), []).append(storage)
    bases = [candidates[storage][1][0] for own in forms.values() if len(own) > 1 for storage in own]
    uses = Counter(source for value in [*values, *bases] for source in _read(value, candidates))
    return {s for own in forms.values() if 1 < len(own) >= max(uses[s] for s in own) for s in own}


def _likely(candidates: Mapping[Storage, Versions]) -> dict[Storage, Versions]:
    """Those that others resemble at a glance, so that the rest, as the layers of a model, are not looked at in full."""
    alike: dict[object, list[Storage]] = {}
    for storage, (_, own) in candidates.items():
        alike.setdefault((storage.nbytes, *[_nearest(value, candidates) for value in own]), []).append(storage)
    return {storage: candidates[storage] for own in alike.values() if len(own) > 1 for storage in own}


def _nearest(root: Node, candidates: Container[Storage]) -> tuple[Storage, ...]:
    """The storages but candidates that a value reads after the fewest steps, as far as a few nodes tell."""
    found: list[Storage] = []
    order, seen = [root], {root}
    for node in order:  # grows on the way
        op = node.op
        if isinstance(op, Read) and isinstance(op.storage, Storage) and op.storage not in candidates:
            found.append(op.storage)
        if len(found) == NEAREST or len(order) > GLANCE:
            break
        fresh = [source for source in node.src if source not in seen]
        seen.update(fresh)
        order += fresh
    return tuple(found)


def seen_through(value: Node, temporaries: Mapping[Storage, Versions]) -> Node:
    """A value with reads of temporaries as what these are; as it is where it would be too large for a loop's body."""
    through = value
    while is_small(through):
        inner = {
            node: view_of(node.op.view, _as_of(temporaries[node.op.storage], node.op.stamp))
            for node in toposort((through,))
            if isinstance(node.op, Read) and isinstance(node.op.storage, Storage) and node.op.storage in temporaries
        }
        if not inner:
            return through
        through = substitute((through,), inner)[0]
    return value


def _as_of(known: Versions, stamp: int) -> Node:
    """The value of a storage as of a stamp."""
    return known[1][bisect_right(known[0], stamp) - 1]


def still_read(values: Iterable[Node], temporaries: Mapping[Storage, Versions]) -> set[Storage]:
    """The temporaries that some values read, through others as well."""
    found: set[Storage] = set()
    work = list(values)
    seen: set[Node] = set()
    while work:
        node = work.pop()
        if node in seen:
            continue
        seen.add(node)
        work.extend(node.src)
        match node.op:
            case Read(storage=Storage() as storage) if storage in temporaries and storage not in found:
                found.add(storage)
                work.extend(temporaries[storage][1])
            case _:
                pass
    return found


def _read(value: Node, candidates: Container[Storage]) -> list[Storage]:
    """The candidates that a value reads, once a read; of values that are small enough to be seen through."""
    if not is_small(value):
        return []
    reads = (node.op for node in walk((value,)))
    return [
        op.storage
        for op in reads
        if isinstance(op, Read) and isinstance(op.storage, Storage) and op.storage in candidates
    ]
