"""Heirs: results that may take the memory of an input, if nobody reads that any more; found once for a template."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from intaglio.ir.node import Node, walk
from intaglio.ops.elementwise import Elementwise
from intaglio.ops.loop import Store
from intaglio.ops.memory import Arg, BufferRef, Const, Iota, Param, Take, Window
from intaglio.ops.movement import Movement, Reshape
from intaglio.schedule.kernels import Copy, PlannedKernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.schedule.kernels import Slot

LEAST: Final = 1 << 22  # bytes of a result from which an input that dies saves more time than others cost that do not
PLAIN: Final = (Elementwise, Movement, Take, Window, Param, Arg, Const, Iota)  # ops computed where they are used


class Heir(NamedTuple):
    """A result and an input whose memory it may take.

    Attributes:
        result: What one kernel is the first to use: it writes all of it.
        source: What that kernel is the last to use: it reads each element only for the one at its own place.
        kernel: The number of the kernel.
        before: That of the last kernel before it that reads the input, or -1.
    """

    result: BufferRef
    source: BufferRef
    kernel: int
    before: int


def heirs(kernels: Sequence[PlannedKernel | Copy], results: set[BufferRef], inputs: set[BufferRef]) -> list[Heir]:
    """The pairs of a result and an input that may share their memory, kernels in order.

    There are none in a program that copies between devices: what runs before a copy that fails has run.

    Args:
        kernels: All of a program.
        results: The fresh buffers that are kept.
        inputs: Those that have bytes.
    """
    launched = [kernel for kernel in kernels if isinstance(kernel, PlannedKernel)]
    if len(launched) < len(kernels) or len({kernel.device for kernel in launched}) != 1:
        return []
    users: dict[BufferRef, list[int]] = {}
    for number, kernel in enumerate(launched):
        for ref in kernel.buffers:
            users.setdefault(ref, []).append(number)
    changed = {ref for kernel in launched for ref in kernel.written}
    found: list[Heir] = []
    for number, kernel in enumerate(launched):
        for result, source in _pairs(kernel):
            own, others = users[result], users[source]
            if result in results and source in inputs - changed and own[0] == number == others[-1]:
                found.append(Heir(result, source, number, others[-2] if len(others) > 1 else -1))
    return found


def _pairs(kernel: PlannedKernel) -> list[tuple[BufferRef, BufferRef]]:
    """What a kernel stores as a whole, each with what it reads for that alone, each element at its own place.

    Such a kernel computes each element once, from what is read before that is stored, whichever loops it has. One that
    reduces may read again what is stored already, or put sums aside where the result will be.
    """
    stores = kernel.ast.src
    if not all(isinstance(n.op, Store) and all(isinstance(v.op, PLAIN) for v in walk((n.src[1],))) for n in stores):
        return []
    written = Counter(_buffer(store.src[0].src[0], kernel.slots) for store in stores)
    read = Counter(ref for store in stores for ref in _read(store.src[1], kernel.slots))
    found: list[tuple[BufferRef, BufferRef]] = []
    for store in stores:
        target, value = store.src
        result = _buffer(target.src[0], kernel.slots)
        if result is None or written[result] > 1 or result in read or not _is_whole(target, result, kernel.slots):
            continue
        elsewhere = _read_elsewhere(value, target, kernel.slots)
        own = [ref for ref in _read(value, kernel.slots) if ref not in elsewhere and read[ref] == 1]
        found += [(result, source) for source in own if source not in written]
    return found


def _buffer(pointer: Node, slots: Sequence[Slot]) -> BufferRef | None:
    """The buffer of a pointer, if it is an argument."""
    of = slots[pointer.op.slot][0] if isinstance(pointer.op, Param) else None
    return of if isinstance(of, BufferRef) else None


def _is_whole(window: Node, ref: BufferRef, slots: Sequence[Slot]) -> bool:
    """Whether a window shows all bytes of a buffer, in order."""
    op, pointer = window.op, window.src[0].op
    if not isinstance(op, Window) or not isinstance(pointer, Param) or len(window.src) > 1 or slots[pointer.slot][1]:
        return False
    return op.view.is_contiguous and op.view.offset == 0 and op.view.nbytes == ref.nbytes


def _read(value: Node, slots: Sequence[Slot]) -> list[BufferRef]:
    """The buffers that a value reads, each once."""
    found = [_buffer(node, slots) for node in walk((value,)) if isinstance(node.op, Param)]
    return [ref for ref in dict.fromkeys(found) if ref is not None]


def _read_elsewhere(value: Node, target: Node, slots: Sequence[Slot]) -> set[BufferRef]:
    """The buffers of which an element of a value reads others than the one at the place where it is stored."""
    found: set[BufferRef] = set()
    seen: set[tuple[Node, bool]] = set()
    stack = [(value, True)]
    while stack:
        node, aligned = stack.pop()
        if (node, aligned) in seen:
            continue
        seen.add((node, aligned))
        ref = _buffer(node.src[0], slots) if isinstance(node.op, Window) else None
        if ref is not None:
            same = node.size == target.size and node.dtype.itemsize == target.dtype.itemsize
            if not (aligned and same and _is_whole(node, ref, slots)):
                found.add(ref)
            stack += [(source, False) for source in node.src[1:]]
            continue
        keeps = aligned and isinstance(node.op, (Elementwise, Reshape))  # both have their elements in one order
        stack += [(source, keeps and source.size == node.size) for source in node.src]
    return found
