"""Fresh pages of memory that belong to one process: a child after fork gets copies, not the same bytes."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from typing import Final

HUGE: Final = 1 << 22  # bytes from which large pages are asked for: each fault, and each entry of the TLB, is for 2 MB


def anonymous(size: int) -> tuple[mmap.mmap, int]:
    """Zeroed pages: (what keeps them alive, their address). By default Python's are shared with children."""
    if sys.platform == "win32":
        pages = mmap.mmap(-1, size)
    else:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # where the system has none
                pages.madvise(mmap.MADV_HUGEPAGE)
    return pages, ctypes.addressof(ctypes.c_char.from_buffer(pages))
