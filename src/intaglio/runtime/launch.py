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
  %rows = load ptr, ptr %args
  %base.at = getelementptr i64, ptr %args, i64 1
  %base = load ptr, ptr %base.at
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [%begin, %entry], [%j, %loop]
  %row = getelementptr [3 x i64], ptr %rows, i64 %i
  %kernel = load ptr, ptr %row
  %start.at = getelementptr i64, ptr %row, i64 1
  %start = load i64, ptr %start.at
  %slots = getelementptr i64, ptr %base, i64 %start
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
    """Kernels in order: rows of (function, place of its first argument, chunks)."""

    def __init__(self, compiler: Compiler, rows: Sequence[tuple[int, int, int]]) -> None:
        """Pack (address, place of the first argument among those of all, chunks) for each kernel."""
        self._compiler: Final = compiler
        self._drive: Final = _driver(compiler)
        self._launches: Final = rows
        self._rows: Final = array("Q", [word for row in rows for word in row])
        self._shared: Final = [number for number, (_, _, chunks) in enumerate(rows) if chunks > 1]

    def run(self, slots: array[int], threads: int, first: int, last: int) -> None:
        """Run kernels `first` to before `last`: those in one piece by one native call, those in chunks by threads.

        Args:
            slots: The 8-byte arguments of all kernels.
        """
        base, _ = slots.buffer_info()
        head = array("Q", (self._rows.buffer_info()[0], base))
        table, _ = head.buffer_info()
        if threads == 1 or not self._shared:
            self._drive(table, first, last)
            return
        shared = [k for k in self._shared if first <= k < last]
        start = first
        for place in (*shared, last):
            if place > start:
                self._drive(table, start, place)
            if place < last:
                address, own, chunks = self._launches[place]
                pool.run(self._compiler, address, base + 8 * own, chunks, threads)
            start = place + 1
