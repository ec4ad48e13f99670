"""Launches: a table of kernels run by one native call."""

from __future__ import annotations

from array import array
from functools import cache
from typing import TYPE_CHECKING, Final

from intaglio.runtime.pool import SIGNATURE, pool

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Sequence

    from intaglio.runtime.compiler import Compiler

DRIVER: Final = """
define void @run_table(ptr %args, i64 %begin, i64 %end) {
entry:
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [%begin, %entry], [%j, %loop]
  %row = getelementptr [3 x i64], ptr %args, i64 %i
  %kernel = load ptr, ptr %row
  %slots.at = getelementptr i64, ptr %row, i64 1
  %slots = load ptr, ptr %slots.at
  %chunks.at = getelementptr i64, ptr %row, i64 2
  %chunks = load i64, ptr %chunks.at
  call void %kernel(ptr %slots, i64 0, i64 %chunks)
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


@cache
def _driver(compiler: Compiler) -> ctypes._CFunctionType:
    """The native loop over a table."""
    address, _ = compiler.load(DRIVER, "run_table")
    return SIGNATURE(address)


class Table:
    """Kernels with their arguments, ready to run: rows of (function, arguments, chunks)."""

    def __init__(self, compiler: Compiler, launches: Sequence[tuple[int, Sequence[int], int]]) -> None:
        """Pack (address, 8-byte slots, chunks) for each launch."""
        self._compiler: Final = compiler
        slots = array("Q")
        starts: list[int] = []
        for _, own, _ in launches:
            starts.append(len(slots))
            slots.extend(own)
        base = slots.buffer_info()[0] if len(slots) else 0
        rows = array("Q")
        for (address, _, chunks), start in zip(launches, starts, strict=True):
            rows.extend((address, base + 8 * start, chunks))
        self._slots: Final = slots
        self._rows: Final = rows
        self._launches: Final = [
            (address, base + 8 * start, chunks) for (address, _, chunks), start in zip(launches, starts, strict=True)
        ]
        self.count: Final = len(launches)

    def run(self, threads: int) -> None:
        """Run all in order: kernels in one piece by one native call, those in chunks by several threads."""
        shared = [k for k, (_, _, chunks) in enumerate(self._launches) if chunks > 1] if threads > 1 else []
        start = 0
        for place in (*shared, self.count):
            if place > start:
                _driver(self._compiler)(self._rows.buffer_info()[0], start, place)
            if place < self.count:
                address, slots, chunks = self._launches[place]
                pool.run(self._compiler, address, slots, chunks, threads)
            start = place + 1
