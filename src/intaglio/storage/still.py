"""Values with nothing pending: what they are computed from, by one walk that ends at what lies in memory.

The walk makes a key on its way, of numbers alone: programs of one key have one structure (`schedule/structure.py`). So
a program that runs again finds its form by the key, and neither a program nor a structure is made of it.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final, cast

from intaglio.ir.node import Op
from intaglio.ops.loop import Assign
from intaglio.ops.memory import Buffer, BufferRef, Const, Read
from intaglio.schedule.program import Output, Program, ReadAt
from intaglio.schedule.sizes import take_apart
from intaglio.schedule.structure import cut, is_plain, part_of
from intaglio.storage import checks
from intaglio.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Iterator, Sequence

    from intaglio.ir.node import Node
    from intaglio.ir.view import View

CODES: Final = 1 << 16  # ops, views and dtypes that have numbers at a time


class Codes:
    """Numbers of what nodes are, from -1 down; no two things ever have one number."""

    def __init__(self) -> None:
        self.known: Final[dict[Hashable, int]] = {}
        self._things: Final[dict[int, Hashable]] = {}
        self._apart: Final[dict[int, tuple[int, list[int]]]] = {}
        self.places: Final[dict[View, tuple[int, int]]] = {}
        self._last: int = 0

    def of(self, thing: Hashable) -> int:
        """The number of something."""
        found = self.known.get(thing)
        if found is None:
            if len(self.known) >= CODES:
                self.known.clear()
                self.places.clear()
                self._things.clear()
                self._apart.clear()
            self._last = found = self.known[thing] = self._last - 1
            self._things[found] = thing
        return found

    def apart(self, code: int) -> tuple[int, list[int]]:
        """A number taken apart: into that of the same thing without its integers, and these.

        What stands alone, or is forgotten by now, is left as it is.
        """
        found = self._apart.get(code)
        if found is None:
            thing = self._things.get(code)
            has_parts = isinstance(thing, (tuple, Op))
            skeleton, integers = take_apart(cast("tuple[Any, ...] | Op", thing)) if has_parts else ((), [])
            found = (self.of((Codes, skeleton)), integers) if integers else (code, integers)
            self._apart[code] = found
        return found

    def place(self, view: View) -> tuple[int, int]:
        """Where a view starts that is all that is seen of its buffer, and the number of the view from there."""
        found = self.places.get(view)
        if found is None:
            start, _ = cut((view,))
            found = self.places[view] = (start, self.of(view._replace(offset=view.offset - start)))
        return found


codes: Final = Codes()


class PendingError(Exception):
    """A value is not computed as it stands: something that it needs is pending."""


class Still:
    """What some values are computed from, as long as nothing that they need turns out to be pending.

    Attributes:
        order: The values, inputs before users, with their numbers.
        refs: The buffers that are read, in order of first use, with their numbers.
        parts: Those that count as buffers of their own, the key once made (`part_of`).
        starts: For each buffer and part, the byte from which the structure sees it.
        literals: The numbers that kernels may take as arguments.
        views: The reads of storages that nobody has written, and the value that they are views of.
    """

    def __init__(self) -> None:
        self.order: Final[dict[Node, int]] = {}
        self.refs: Final[dict[BufferRef, int]] = {}
        self.parts: Final[list[BufferRef]] = []
        self.starts: Final[list[int]] = []
        self.literals: Final[list[Const]] = []
        self.views: Final[dict[Node, Node]] = {}
        self._codes: Final[dict[Node, int]] = {}  # of those reads
        self._shared: Final[set[int]] = set()  # buffers that are seen through several views
        # what is seen of buffers: the buffer's number, the view, where its number stands in the key
        self._seen: Final[list[tuple[int, View, int]]] = []
        # for each value its code (below 0), then its inputs: numbers of values, or of a buffer
        self._key: Final[list[int]] = []

    def walk(self, roots: Sequence[Node], unwritten: Container[Storage]) -> None:
        """Number some values, each after what it is computed from.

        Args:
            unwritten: Storages that are computed for themselves: what reads one of these reads its bytes.
        Raises: PendingError if something is pending that they need.
        """
        order, refs, starts, key, seen = self.order, self.refs, self.starts, self._key, self._seen
        known, places, number_of = codes.known, codes.places, order.__getitem__
        above: list[tuple[Node | None, Sequence[Node], Iterator[Node]]] = []  # values whose inputs are on their way
        node, src, rest = None, roots, iter(roots)  # as if the roots were the inputs of one value
        while True:
            for source in rest:
                if source in order:
                    continue
                place = source.place
                if place is None:
                    op = source.op
                    if not isinstance(op, Read):
                        inputs = source.src
                        if not inputs:
                            self._number(source)
                            continue
                        above.append((node, src, rest))
                        node, src, rest = source, inputs, iter(inputs)
                        break
                    storage: Storage = op.storage  # pyright: ignore[reportAssignmentType] -- as every read's
                    ref, view = storage.ref, op.view
                    if ref is None or storage.log:
                        base = self._base(source, storage, view, unwritten)
                        if base is None:
                            continue
                        above.append((node, src, rest))
                        node, src, rest = source, (base,), iter((base,))
                        break
                else:
                    ref, view = place
                start, code = places.get(view) or codes.place(view)
                number = refs.setdefault(ref, len(refs))
                if number == len(starts):
                    starts.append(start)
                else:
                    self._shared.add(number)
                seen.append((number, view, len(key)))
                key += code, number
                order[source] = len(order)
            else:  # all inputs have numbers
                if node is None:
                    break
                op = node.op
                key.append(known.get(op) or codes.of(op) if src is node.src else self._codes[node])
                key += map(number_of, src)
                order[node] = len(order)
                node, src, rest = above.pop()
        if len(checks.pending) and not order.keys().isdisjoint(checks.pending):
            raise PendingError

    def _base(self, node: Node, storage: Storage, view: View, unwritten: Container[Storage]) -> Node | None:
        """What a read of a storage that has no bytes yet is a view of.

        Raises: PendingError if it is pending.
        """
        base = storage.base
        if storage.log or base is None or storage in unwritten:
            raise PendingError
        self.views[node] = base
        self._codes[node] = codes.of((Read, view))
        return base

    def _number(self, node: Node) -> None:
        """Number a value that reads nothing."""
        op = node.op
        if isinstance(op, (Assign, Buffer)):
            raise PendingError
        if isinstance(op, Const) and not is_plain(op):
            self.literals.append(op)
            op = op.of
        self._key.append(codes.known.get(op) or codes.of(op))
        self.order[node] = len(self.order)

    def reads(self) -> dict[Node, ReadAt]:
        """The values that lie in memory, and where."""
        found: dict[Node, ReadAt] = {}
        for node in self.order:
            if node.place is not None:
                found[node] = ReadAt(*node.place, 0)
            elif isinstance(node.op, Read):
                storage = node.op.storage
                assert isinstance(storage, Storage)
                if storage.ref is not None and not storage.log:
                    found[node] = ReadAt(storage.ref, node.op.view, 0)
        return found

    def key(self, outputs: Sequence[Node], devices: Hashable) -> bytes:
        """What programs of one structure have in common.

        Args:
            outputs: The values that are wanted.
            devices: Where buffers are.
        """
        key = self._key
        if self._shared:
            self._join()
        key.append(codes.known.get(devices) or codes.of(devices))
        key += map(self.order.__getitem__, outputs)
        return array("q", key).tobytes()

    def _join(self) -> None:
        """Number the views of buffers that are seen through several: by where they lie to one another."""
        buffers = [*self.refs]
        joint: dict[int, list[tuple[View, int]]] = {number: [] for number in sorted(self._shared)}
        for number, view, place in self._seen:
            if number in joint:
                joint[number].append((view, place))
        for number, reads in joint.items():
            inner = part_of([view for view, _ in reads])
            if inner is not None:
                view, place = reads.pop(inner)
                start, self._key[place] = codes.place(view)
                self._key[place + 1] = len(self.starts)
                self.starts.append(start)
                self.parts.append(buffers[number])
            start, _ = cut([view for view, _ in reads])
            self.starts[number] = start
            for view, place in reads:
                self._key[place] = codes.of(view._replace(offset=view.offset - start))

    def program(self, outputs: list[Output]) -> Program:
        """The program that computes the values as they stand."""
        return Program([], self.reads(), self.views, outputs=outputs, order=[*self.order])

    def device_of(self, value: Node) -> str | None:
        """The device of the buffers that a value reads."""
        reads = self.reads()
        stack = [value]
        seen: set[Node] = set()
        while stack:
            node = stack.pop()
            if node in reads:
                return reads[node].ref.device
            if node not in seen:
                seen.add(node)
                stack += (self.views[node],) if node in self.views else node.src
        return None
