"""What an integer value can be at all: the least and the greatest number that its expression gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, toposort
from intaglio.ops.composite import Broadcast
from intaglio.ops.elementwise import Add, Cast, FloorDiv, Maximum, Minimum, Mod, Mul, Sub, Where
from intaglio.ops.memory import Const, Iota, Take
from intaglio.ops.movement import Expand, Flip, Pad, Permute, Reshape, Shrink
from intaglio.ops.reduce import Reduce

if TYPE_CHECKING:
    from intaglio.core.dtypes import DType

Bounds = tuple[int, int]
LARGEST: Final = 64  # nodes of an expression that are looked at


def bounds(root: Node) -> Bounds:
    """(the least, the greatest) number of an integer value, as far as its expression tells; both are included."""
    found: dict[Node, Bounds] = {}
    room = iter(range(LARGEST))
    for node in toposort((root,), enter=lambda n: n.dtype.is_int and next(room, None) is not None):
        low, high = _whole(node.dtype)
        if node.dtype.is_int and all(s in found for s in node.src):
            exact = _of(node, [found[s] for s in node.src])
            if exact is not None and low <= exact[0] and exact[1] <= high:  # else it wraps
                low, high = exact
        found[node] = low, high
    return found[root]


def _whole(dtype: DType) -> Bounds:
    """All that an integer dtype holds."""
    return (int(dtype.min), int(dtype.max)) if dtype.is_int else (0, 1)


def _of(node: Node, src: list[Bounds]) -> Bounds | None:
    """The bounds of a node before it wraps, from those of its inputs; None where nothing is known."""
    match node.op.op if isinstance(node.op, Broadcast) else node.op:
        case Const() as op:
            return int(op.value), int(op.value)
        case Iota(n=n):
            return 0, max(n - 1, 0)
        case Cast():
            return src[0] if node.src[0].dtype.is_int or node.src[0].dtype.is_bool else None
        case Add():
            return src[0][0] + src[1][0], src[0][1] + src[1][1]
        case Sub():
            return src[0][0] - src[1][1], src[0][1] - src[1][0]
        case Mul():
            ends = [a * b for a in src[0] for b in src[1]]
            return min(ends), max(ends)
        case Maximum():
            return max(src[0][0], src[1][0]), max(src[0][1], src[1][1])
        case Minimum():
            return min(src[0][0], src[1][0]), min(src[0][1], src[1][1])
        case FloorDiv() if src[1][0] > 0:
            ends = [a // b for a in src[0] for b in src[1]]
            return min(ends), max(ends)
        case Mod() if src[1][0] > 0:
            return (0, min(src[1][1] - 1, src[0][1])) if src[0][0] >= 0 else (0, src[1][1] - 1)
        case Where():
            return min(src[1][0], src[2][0]), max(src[1][1], src[2][1])
        case Reshape() | Permute() | Expand() | Shrink() | Flip() | Take():
            return src[0]
        case Pad():
            return min(src[0][0], 0), max(src[0][1], 0)
        case Reduce(kind=kind) if kind in ("max", "min") and node.src[0].size:
            return src[0]
        case _:
            return None
