"""Checks of computed positions: made when the positions are about to be used, and reported at the user's line."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from intaglio.core.errors import IndexRangeError
from intaglio.core.words import counted, counting

if TYPE_CHECKING:
    from intaglio.ir.node import Node

LOSSES: Final = "cross_entropy", "nll_loss", "sparse_categorical_crossentropy"
# what to try, of ops whose positions are classes
ADVICE: Final = {
    "one_hot": "Give more classes, or numbers from 0 on?",
    **dict.fromkeys(LOSSES, "Give scores for more classes, or the number to leave out as ignore_index?"),
}


def out_of_range(
    name: str, found: int, extent: int, axis: int | None, site: tuple[str, int] | None = None, *, wraps: bool = True
) -> IndexRangeError:
    """The error of a named op for a position along an axis that is not there.

    Args:
        axis: None of all elements in a row.
        site: Where the positions were given, if the error comes later.
        wraps: Whether negative ones count from the end.
    """
    where = counted(extent, "element") if axis is None else f"axis {axis} of size {extent}"
    given = f"{where}; indexed at {site[0]}:{site[1]}" if site is not None else where
    if not extent:
        advice = "There is no element to index. Look at the shape first?"
    else:
        advice = f"The range is [{-extent if wraps else 0}, {extent}). {ADVICE.get(name) or counting(extent)}"
    return IndexRangeError(f"{name}: {found} is out of range for {given}. {advice}")


@dataclass(frozen=True, slots=True)
class Check:
    """What must hold of positions: none of `bad` is true."""

    bad: Node
    index: Node
    extent: int
    axis: int | None
    site: tuple[str, int] | None
    name: str  # the op that takes the positions
    wraps: bool  # whether negative ones count from the end

    def error(self, found: int) -> IndexRangeError:
        """The error for a position out of range."""
        return out_of_range(self.name, found, self.extent, self.axis, self.site, wraps=self.wraps)


pending: Final[weakref.WeakKeyDictionary[Node, Check]] = weakref.WeakKeyDictionary()


def remember_check(
    wrapped: Node,
    bad: Node,
    index: Node,
    extent: int,
    axis: int | None,
    site: tuple[str, int] | None,
    name: str,
    *,
    wraps: bool,
) -> None:
    """Have positions checked when something that uses them is computed."""
    pending[wrapped] = Check(bad, index, extent, axis, site, name, wraps)
