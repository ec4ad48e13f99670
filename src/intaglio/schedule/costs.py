"""What a kernel runs for a value, if nothing in between gets a buffer: ops, and arrays that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ops.elementwise import Elementwise
from intaglio.ops.memory import Buffer, Window

if TYPE_CHECKING:
    from intaglio.ir.node import Node

DEEPEST: Final = 160  # ops up to which a value is computed anew where a kernel reads it at several positions


class Costs:
    """How many ops a kernel runs for a value, and how many arrays it reads, if nothing in between gets a buffer.

    At most so many: what a value needs at its own position lies between the first of it and the value itself in an
    order from inputs to users. That is less than the sum over all ways to a value, which doubles with each step of
    `x = x * x + x`; but what is read at other positions is computed anew for each way.
    """

    def __init__(self) -> None:
        self._now: int = 0  # the ops so far
        self._first: Final[dict[Node, int]] = {}  # those before the first that a value needs at its position
        self._elsewhere: Final[dict[Node, int]] = {}  # those that it needs at other positions
        self._ops: Final[dict[Node, int]] = {}
        self._arrays: int = 0  # the arrays so far
        self._first_read: Final[dict[Node, int]] = {}
        self._reads: Final[dict[Node, int]] = {}

    def read(self, node: Node, arrays: int = 1) -> None:
        """A value is read from memory; or is a constant, if it takes no arrays."""
        self._first[node] = self._now
        self._elsewhere[node] = self._ops[node] = 0
        self._first_read[node] = self._arrays
        self._reads[node] = arrays
        self._arrays += arrays

    def of(self, node: Node) -> int:
        """The ops that a value took when it was last computed or read."""
        return self._ops[node]

    def compute(self, node: Node) -> tuple[int, int]:
        """The ops that a value takes, and the arrays that it reads."""
        if not node.src or (isinstance(node.op, Window) and isinstance(node.src[0].op, Buffer)):
            self.read(node, len(node.src))
            return 0, len(node.src)
        ways = 1 + sum([self._ops[s] for s in node.src])
        elsewhere = sum([self._elsewhere[s] for s in node.src])
        first = self._now
        self._now += 1
        if isinstance(node.op, Elementwise):
            first = min([first, *[self._first[s] for s in node.src if self._ops[s]]])
            found = min(ways, self._now - first + elsewhere)
        else:
            elsewhere = ways - 1
            found = elsewhere and ways  # what lies in memory is read from there at any position
        if elsewhere and found > DEEPEST:
            found = min(found, self._apart(node))
            elsewhere = min(elsewhere, found)
        first_read = min([self._first_read[s] for s in node.src])
        reads = min(sum([self._reads[s] for s in node.src]), self._arrays - first_read)
        self._first[node], self._elsewhere[node], self._ops[node] = first, elsewhere, found
        self._first_read[node], self._reads[node] = first_read, reads
        return found, reads

    def _apart(self, root: Node) -> int:
        """How many ops a value takes if each is done once, as far as that counts."""
        seen = {root}
        stack = [root]
        while stack and len(seen) <= 4 * DEEPEST:
            for source in stack.pop().src:
                if source not in seen and self._ops[source]:
                    seen.add(source)
                    stack.append(source)
        return len(seen)
