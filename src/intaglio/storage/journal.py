"""Journal entries: the pending writes of a storage, ordered across storages by one counter."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node
    from intaglio.ir.view import View
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


@dataclass(slots=True)
class Pen:
    """The way into an open segment that handles keep: all that one number written at one position asks of them.

    Closing the segment sets `length` to 0 and lets go of the numbers, so that a kept pen writes no more.
    """

    view: View
    numbers: dict[int, int | float | bool]
    length: int  # how many positions the only axis of the view has; 0 for another rank
    lowest: int  # integers from here to `highest` fit, without asking the dtype
    highest: int
    real: type[float] | None  # float where floats may be written as they are


DIGIT: Final = (1 << 30) - 1  # CPython compares integers of one digit at once, and longer ones ten times as slowly


def plain_range(dtype: DType) -> tuple[int, int]:
    """The first and last of the integers that fit a dtype without further question (none for bool)."""
    if dtype.is_bool:
        return 0, -1
    if dtype.is_float:
        return -DIGIT, DIGIT
    return int(max(dtype.min, -DIGIT)), int(min(dtype.max, DIGIT))


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


AnyEntry: TypeAlias = Segment | Entry | ElementEntry
