"""How ranges run in the loops that are being written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from intaglio.ir.node import Node

Instance: TypeAlias = "dict[Node, int]"  # which of the instances of each range


@dataclass(slots=True)
class Binding:
    """How a range runs: from `base` by instances, each one element or (lanes > 0) a vector; `bound` ends the last.

    They are neighbours, or two elements that lie `apart`. With a `unit`, the base is a multiple of that, and the first
    lane of each vector is in bounds.
    """

    frame: int
    base: Node
    instances: int = 1
    lanes: int = 0
    bound: Node | None = None  # lanes at or past it are masked
    apart: Node | None = None
    unit: int = 0
