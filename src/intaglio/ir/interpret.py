"""The interpreter of linear code: Python numbers, one instruction at a time; the oracle of the other backends.

Python has one NaN: the payload of any other is not kept.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from intaglio.core.errors import InternalError
from intaglio.ir.node import toposort

if TYPE_CHECKING:
    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node, Op

Number: TypeAlias = int | float | bool
Value: TypeAlias = "Number | list[Number]"
Evaluate: TypeAlias = Callable[..., Number]


class Memory:
    """Typed access to bytes at addresses of this process."""

    def read(self, address: int, dtype: DType) -> Number:
        """The element at an address."""
        return dtype.from_bits(int.from_bytes(ctypes.string_at(address, dtype.itemsize), "little"))

    def write(self, address: int, dtype: DType, value: Number) -> None:
        """Replace the element at an address."""
        ctypes.memmove(address, dtype.to_bits(value).to_bytes(dtype.itemsize, "little"), dtype.itemsize)


def run_linear(linear: Node, slots: Sequence[int], chunks: int) -> None:
    """Run a kernel on argument slots (addresses, or the bits of numbers)."""
    series: int = _field(linear.op, "series")
    for launch in range(chunks if series else 1):
        _Machine(slots[launch * series :], chunks).run(linear.src)


def evaluate(root: Node, values: dict[Node, Number]) -> Number:
    """The value of a scalar expression, given those of its variables."""
    machine = _Machine((), 0)
    machine.values.update(values)
    for node in toposort((root,), enter=lambda n: n not in values):
        if node not in machine.values:
            machine.values[node] = machine.compute(node)
    found = machine.values[root]
    if isinstance(found, list):
        raise InternalError("interpret: a vector where a number is needed")
    return found


class _Machine:
    """The values and position of one run."""

    def __init__(self, slots: Sequence[int], chunks: int) -> None:
        self.slots: Final = slots
        self.chunks: Final = chunks
        self.values: Final[dict[Node, Value]] = {}
        self.memory: Final = Memory()
        self.locals: Final[dict[Node, ctypes.Array[ctypes.c_char]]] = {}
        self.carried: Final[dict[Node, list[Value]]] = {}

    def run(self, code: Sequence[Node]) -> None:
        """Every instruction, following loops."""
        ends = _matching(code)
        place = 0
        while place < len(code):
            node = code[place]
            match node.op.name:
                case "loop":
                    start, stop = self.whole(node.src[0]), self.whole(node.src[1])
                    self.carried[node] = [self.value(s) for s in node.src[3:]]
                    self.values[node] = start
                    if start >= stop:
                        place = ends[place]
                        self.finish(code[place], self.carried[node])
                case "end_loop":
                    loop = node.src[0]
                    self.carried[loop] = [
                        _spread(self.value(s), loop.src[3 + c].shape) for c, s in enumerate(node.src[1:])
                    ]
                    following = self.whole(loop) + self.whole(loop.src[2])
                    if following < self.whole(loop.src[1]):
                        self.values[loop] = following
                        place = ends[place]
                    else:
                        self.finish(node, self.carried[loop])
                case "if":
                    if not self.value(node.src[0]):
                        place = ends[place]
                        self.finish(code[place], [self.value(s) for s in node.src[1:]])
                case "end_if":
                    self.finish(node, [self.value(s) for s in node.src[1:]])
                case "store":
                    self.store(node)
                case "prefetch":
                    pass
                case _:
                    self.values[node] = self.compute(node)
            place += 1

    def finish(self, end: Node, values: list[Value]) -> None:
        """Keep the values of a loop or condition that is over."""
        self.carried[end] = values

    def whole(self, node: Node) -> int:
        """An integer scalar."""
        value = self.value(node)
        if isinstance(value, list):
            raise InternalError("interpret: a vector where a number is needed")
        return int(value)

    def value(self, node: Node) -> Value:
        """The value of a leaf, or of what has run."""
        match node.op.name:
            case "carried" | "final":
                return self.compute(node)
            case "const" | "arg" | "chunk" | "iota" if node not in self.values:
                return self.compute(node)
            case _:
                return self.values[node]

    def compute(self, node: Node) -> Value:
        """The value of an instruction."""
        op = node.op
        match op.name:
            case "const":
                return _field(op, "value")
            case "arg":
                dtype: DType = _field(op, "of")
                return dtype.from_bits(self.slots[int(_field(op, "slot"))] & ((1 << dtype.bits) - 1))
            case "chunk":
                return 0 if _field(op, "which") == "begin" else self.chunks
            case "iota":
                return list(range(_field(op, "n")))
            case "carried" | "final":
                return self.carried[node.src[0]][int(_field(op, "k"))]
            case "load":
                return self.load(node)
            case "expand":
                return _spread(self.value(node.src[0]), node.shape)
            case "across":
                return self.across(node)
            case "interleave":
                return self.interleave(node, second=_field(op, "second"))
            case "shuffle":
                return self.shuffle(node, _field(op, "places"))
            case _:
                return self.elementwise(node)

    def elementwise(self, node: Node) -> Value:
        """An elementwise op, lane by lane."""
        sources = [self.value(s) for s in node.src]
        types = [s.dtype for s in node.src]
        if not node.shape:
            return self.one(node, sources, types)
        lanes = [_spread(v, node.shape) for v in sources]
        return [
            self.one(node, [lane[k] for lane in lanes if isinstance(lane, list)], types) for k in range(node.shape[0])
        ]

    def one(self, node: Node, values: Sequence[Value], types: Sequence[DType]) -> Number:
        """One lane of an elementwise op."""
        name = node.op.name
        if name == "cast":
            return node.dtype.convert(values[0], types[0])  # pyright: ignore[reportArgumentType] -- one lane is a number
        if name == "bitcast":
            return node.dtype.from_bits(types[0].to_bits(values[0]))  # pyright: ignore[reportArgumentType]
        evaluate: Evaluate = _field(node.op, "evaluate")
        return node.dtype.wrap(evaluate(*values))

    def across(self, node: Node) -> Number:
        """Lanes combined by halves."""
        lanes = self.value(node.src[0])
        evaluate: Evaluate = _field(node.op, "evaluate")
        if not isinstance(lanes, list):
            raise InternalError("interpret: across a scalar")
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [node.dtype.wrap(evaluate(a, b)) for a, b in zip(lanes[:half], lanes[half:], strict=True)]
        return lanes[0]

    def interleave(self, node: Node, *, second: bool) -> Value:
        """Lanes of halves of two vectors in turn."""
        first = node.shape[0] // 2 * second
        x, y = (_spread(self.value(s), node.shape) for s in node.src)
        if not isinstance(x, list) or not isinstance(y, list):
            raise InternalError("interpret: scalars interleaved")
        return [lanes[first + k] for k in range(node.shape[0] // 2) for lanes in (x, y)]

    def shuffle(self, node: Node, places: tuple[int, ...]) -> Value:
        """Lanes of two vectors by number."""
        x, y = (_spread(self.value(s), s.shape) for s in node.src)
        if not isinstance(x, list) or not isinstance(y, list):
            raise InternalError("interpret: scalars shuffled")
        both = [*x, *y]
        return [both[k] for k in places]

    def address(self, pointer: Node) -> int:
        """Where a parameter or scratch memory begins."""
        slot: int | None = getattr(pointer.op, "slot", None)
        if slot is not None:
            return self.slots[slot]
        scratch = self.locals.get(pointer)
        if scratch is None:
            scratch = self.locals[pointer] = ctypes.create_string_buffer(
                _field(pointer.op, "size") * pointer.dtype.itemsize
            )
        return ctypes.addressof(scratch)

    def places(self, index: Value, lanes: int) -> list[int]:
        """The element numbers of a vector access."""
        if isinstance(index, list):
            return [int(i) for i in index]
        return [int(index) + k for k in range(lanes)]

    def load(self, node: Node) -> Value:
        """A load."""
        base, dtype = self.address(node.src[0]), node.dtype
        index = self.value(node.src[1])
        if not node.shape:
            return self.memory.read(base + self.places(index, 1)[0] * dtype.itemsize, dtype)
        mask = _spread(self.value(node.src[2]), node.shape) if len(node.src) > 2 else [True] * node.shape[0]
        places = self.places(index, node.shape[0])
        return [
            self.memory.read(base + p * dtype.itemsize, dtype) if m else dtype.wrap(0)
            for p, m in zip(places, mask if isinstance(mask, list) else [mask], strict=True)
        ]

    def store(self, node: Node) -> None:
        """A store."""
        pointer, index, value = node.src[:3]
        base, dtype = self.address(pointer), pointer.dtype
        stored = self.value(value)
        if not isinstance(stored, list):
            self.memory.write(base + self.places(self.value(index), 1)[0] * dtype.itemsize, dtype, stored)
            return
        mask = _spread(self.value(node.src[3]), value.shape) if len(node.src) > 3 else [True] * len(stored)
        for p, m, v in zip(
            self.places(self.value(index), len(stored)), mask if isinstance(mask, list) else [mask], stored, strict=True
        ):
            if m:
                self.memory.write(base + p * dtype.itemsize, dtype, v)


def _spread(value: Value, shape: tuple[int, ...]) -> Value:
    """A number in every lane."""
    return [value] * shape[0] if shape and not isinstance(value, list) else value


def _matching(code: Sequence[Node]) -> dict[int, int]:
    """For each start of a loop or condition the place of its end, and back."""
    found: dict[int, int] = {}
    stack: list[int] = []
    for place, node in enumerate(code):
        if node.op.name in ("loop", "if"):
            stack.append(place)
        elif node.op.name in ("end_loop", "end_if"):
            start = stack.pop()
            found[start], found[place] = place, start
    return found


def _field(op: Op, name: str) -> Any:
    """An attribute of an op; the ops are declared in a layer above this one."""
    return getattr(op, name)
