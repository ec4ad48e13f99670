"""Journal entries: the pending writes of a storage, ordered across storages by one counter."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node
    from intaglio.ir.view import View
    from intaglio.storage.reroll import Sequential
    from intaglio.storage.skeleton import Hole, Skeleton

next_sequence: Final = itertools.count(1).__next__


@dataclass(slots=True)
class Segment:
    """A run of numbers written at integer positions of one view, with nothing read between: position -> number.

    Positions are row-major over the view's shape. Later numbers for one position replace earlier ones.
    """

    sequence: int
    view: View
    numbers: dict[int, int | float | bool]
    lowest: int | float  # what integers may be written without a check of their range
    highest: int | float
    floating: bool


@dataclass(slots=True)
class Entry:
    """One write of a node to a view, or, with indices, to computed positions of the view's leading axes."""

    sequence: int
    view: View
    value: Node
    indices: tuple[Node, ...] = ()
    combine: str = "set"
    site: tuple[str, int] | None = None


@dataclass(slots=True)
class ElementEntry:
    """One write of a scalar expression to one element, kept as a skeleton and its holes."""

    sequence: int
    dtype: DType
    offset: int  # bytes
    skeleton: Skeleton
    holes: tuple[Hole, ...]


@dataclass(slots=True)
class LoopEntry:
    """A sequential loop of writes to one storage that is rolled already, and reads that storage alone."""

    sequence: int
    view: View  # all of the storage
    loop: Sequential


@dataclass(slots=True)
class GatherEntry:
    """A write of what many reads of one shape see, one after the other."""

    sequence: int
    view: View  # their number, then their shape
    reads: list[Node]


AnyEntry: TypeAlias = Segment | Entry | ElementEntry | LoopEntry | GatherEntry
