"""Where the scratch of a kernel lies: on the stack if it is little, else in memory that each thread has for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ops.memory import Local

if TYPE_CHECKING:
    from intaglio.ir.node import Node

LINE: Final = 64  # bytes of a line of memory, and of a vector at most
STACK: Final = 1 << 12  # bytes on the stack at most
SHEET: Final = 1 << 17  # bytes of one value of a sheet (`Rows`) at most, and where it varies in size: as many


def scratch_of(linear: Node) -> tuple[dict[Node, int], int]:
    """(where each Local of a LINEAR-level kernel starts in a thread's scratch, the bytes of that).

    Nothing if the stack has room for them.
    """
    sizes = {s: s.op.size * s.op.of.itemsize for n in linear.src for s in n.src if isinstance(s.op, Local)}
    if sum(sizes.values()) <= STACK:
        return {}, 0
    places: dict[Node, int] = {}
    total = 0
    for local, size in sizes.items():
        places[local] = total
        total += -(-size // LINE) * LINE
    return places, total
