"""Histories: the writes of a storage as versions, so that gradients flow through them and the views that read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from intaglio.storage.journal import next_sequence

if TYPE_CHECKING:
    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node
    from intaglio.ir.view import View
    from intaglio.storage.storage import Storage


@dataclass(slots=True)
class Record:
    """One write: where, and the value if gradients flow to it (else what it covers gets none)."""

    sequence: int
    view: View
    value: Node | None
    indices: tuple[Node, ...] = ()


@dataclass(slots=True)
class History:
    """What a tracked storage was: version 0, and the writes since. A leaf accumulates; others pass on.

    `began` is a number between those of the writes (of any storage) before and after it began.
    """

    dtype: DType
    base: Node | None
    began: int
    leaf: bool = False
    freed: bool = False  # whether tracked writes or a tracked base were let go by a backward sweep
    records: list[Record] = field(default_factory=list)


def history_of(storage: Storage) -> History | None:
    """The history of a storage, if gradients flow through it."""
    found = storage.history
    return found if isinstance(found, History) else None


def track(storage: Storage, dtype: DType, *, leaf: bool = False, base: Node | None = None) -> History:
    """Begin the history of a storage."""
    found = history_of(storage)
    if found is None:
        found = History(dtype, base, next_sequence(), leaf)
        storage.history = found
        storage.close()
    elif leaf:
        found.leaf = True
    return found
