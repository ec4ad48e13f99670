"""What was found for values, and is to be forgotten once a buffer that they are computed from is another or changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ops.memory import Buffer
from intaglio.schedule.program import ReadAt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from intaglio.ir.node import Node
    from intaglio.ops.memory import BufferRef


class Followers:
    """The values that are computed from each buffer, through others that were noted: each is forgotten once."""

    def __init__(self) -> None:
        self._users: Final[dict[Node | BufferRef, dict[Node, None]]] = {}

    def note(self, node: Node) -> None:
        """A value follows from its inputs, or from the buffer that it reads."""
        for source in node.src:
            self._users.setdefault(source, {})[node] = None
        match node.op:
            case ReadAt(ref=ref) | Buffer(ref=ref):
                self._users.setdefault(ref, {})[node] = None
            case _:
                pass

    def forget(self, ref: BufferRef) -> Iterator[Node]:
        """The values that are computed from a buffer, which are noted no more."""
        stack: list[Node | BufferRef] = [ref]
        while stack:
            for node in self._users.pop(stack.pop(), ()):
                yield node
                stack.append(node)
