"""Checks of computed positions: made when the positions are about to be used, and reported at the user's line."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from intaglio.core.errors import IndexRangeError

if TYPE_CHECKING:
    from intaglio.ir.node import Node


@dataclass(frozen=True, slots=True)
class Check:
    """What must hold of positions: none of `bad` is true."""

    bad: Node
    index: Node
    extent: int
    axis: int
    site: tuple[str, int] | None
    name: str = "index"  # the op that takes the positions

    def error(self, found: int) -> IndexRangeError:
        """The error for a position out of range."""
        where = f"; indexed at {self.site[0]}:{self.site[1]}" if self.site is not None else ""
        return IndexRangeError(
            f"{self.name}: {found} is out of range for axis {self.axis} of size {self.extent}{where}."
        )


pending: Final[weakref.WeakKeyDictionary[Node, Check]] = weakref.WeakKeyDictionary()


def remember_check(
    wrapped: Node, bad: Node, index: Node, extent: int, axis: int, site: tuple[str, int] | None, name: str = "index"
) -> None:
    """Have positions checked when something that uses them is computed."""
    pending[wrapped] = Check(bad, index, extent, axis, site, name)
