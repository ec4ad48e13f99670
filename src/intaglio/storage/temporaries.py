"""Temporaries of a loop's turns: computed values that each turn makes anew, views, and does not write.

They have a storage each, since they were viewed or cloned; what reads them can as well be computed from what they are.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from intaglio.ir.node import Node, substitute, toposort, walk
from intaglio.ops.memory import Read
from intaglio.storage.skeleton import ReadStep, is_small, of_node
from intaglio.storage.storage import Storage
from intaglio.storage.viewed import view_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable


def made_in_turns(candidates: set[Storage], values: Iterable[Node]) -> set[Storage]:
    """Those of some storages that were never written and hold what others hold in other turns.

    There are as many of a form as reads of each, at least: else a loop goes through the elements of a few.

    Args:
        candidates: Storages with a version 0 that is yet to be computed, and no write.
        values: What reads them.
    """
    forms: dict[object, list[Storage]] = {}
    for storage in candidates:
        found = of_node(storage.base) if storage.base is not None else None
        if found is not None:
            steps = tuple(
                (s.dtype, s.shape, s.strides) if isinstance(s, ReadStep) and s.storage in candidates else s
                for s in found[0].steps
            )
            forms.setdefault((storage.nbytes, steps), []).append(storage)
    uses = Counter(
        source
        for value in [*values, *(storage.base for own in forms.values() if len(own) > 1 for storage in own)]
        if value is not None
        for source in _read(value, candidates)
    )
    return {s for own in forms.values() if 1 < len(own) >= max(uses[s] for s in own) for s in own}


def seen_through(value: Node, temporaries: Container[Storage]) -> Node:
    """A value with reads of temporaries as what these are; as it is where it would be too large for a loop's body."""
    through = value
    while is_small(through):
        inner = {
            node: view_of(node.op.view, node.op.storage.base)
            for node in toposort((through,))
            if isinstance(node.op, Read)
            and isinstance(node.op.storage, Storage)
            and node.op.storage in temporaries
            and node.op.storage.base is not None
        }
        if not inner:
            return through
        through = substitute((through,), inner)[0]
    return value


def still_read(values: Iterable[Node], temporaries: set[Storage]) -> set[Storage]:
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
                work.extend([storage.base] if storage.base is not None else [])
            case _:
                pass
    return found


def _read(value: Node, candidates: set[Storage]) -> list[Storage]:
    """The candidates that a value reads, once a read; of values that are small enough to be seen through."""
    if not is_small(value):
        return []
    reads = (node.op for node in walk((value,)))
    return [
        op.storage
        for op in reads
        if isinstance(op, Read) and isinstance(op.storage, Storage) and op.storage in candidates
    ]
