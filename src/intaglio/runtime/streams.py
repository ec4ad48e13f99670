"""Whether results are better left in the third cache than written past all caches: measured, once for a machine.

What a core does not have to wait for differs more than caches' sizes say: some third caches take a result faster than
memory does, and some, to which many cores lead, do not. Those of Zen 5 learn what to keep: of copies in a row the third
takes two thirds of the time that the first ones take, which is what it takes past the caches, but after copies of the
other kind it is as slow again. So each kind is timed in a row.
"""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING, Final

from intaglio.runtime.pages import anonymous

if TYPE_CHECKING:
    from collections.abc import Callable

    Load = Callable[[str, str], int]  # the address of a function, by its text and name

MOST: Final = 1 << 22  # bytes that are copied, at most: they and their copy are more than a second cache holds
SHARE: Final = 8  # of the third cache that they are: others use it as well
ROUNDS: Final = 10
SIGNATURE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)

COPY: Final = """
define void @{name}(ptr %from, ptr %to, i64 %bytes) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %source = getelementptr i8, ptr %from, i64 %i
  %value = load <{width} x i8>, ptr %source, align {width}
  %target = getelementptr i8, ptr %to, i64 %i
  store <{width} x i8> %value, ptr %target, align {width}{mark}
  %next = add i64 %i, {width}
  %more = icmp slt i64 %next, %bytes
  br i1 %more, label %loop, label %done
done:
  fence seq_cst
  ret void
}}
!0 = !{{i32 1}}
"""


def keeps_results(load: Load, width: int, level3: int) -> bool:
    """Whether a copy within the third cache takes less time through the caches than past them.

    Args:
        load: Compiles a function.
        width: Bytes of a vector.
        level3: Bytes of the third cache.
    """
    size = max(1 << 16, min(MOST, level3 // SHARE) >> 12 << 12)
    marks = {"through": "", "past": ", !nontemporal !0"}
    copies = [SIGNATURE(load(COPY.format(name=n, width=width, mark=m), n)) for n, m in marks.items()]
    pages, address = anonymous(2 * size)
    ctypes.memset(address, 1, size)  # processors may know pages that nobody has written, and lines of zeros
    through, past = (min(_seconds(copy, address, size) for _ in range(ROUNDS)) for copy in copies)
    del pages
    return through < past


def _seconds(copy: Callable[[int, int, int], None], address: int, size: int) -> float:
    """What a copy to what comes next takes."""
    started = time.perf_counter()
    copy(address, address + size, size)
    return time.perf_counter() - started
