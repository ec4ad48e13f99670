"""Fresh pages of memory that belong to one process: a child after fork gets copies, not the same bytes."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys


def anonymous(size: int) -> tuple[mmap.mmap, int]:
    """Zeroed pages: (what keeps them alive, their address). By default Python's are shared with children."""
    if sys.platform == "win32":
        pages = mmap.mmap(-1, size)
    else:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return pages, ctypes.addressof(ctypes.c_char.from_buffer(pages))


def lasting(size: int) -> tuple[mmap.mmap, int]:
    """As anonymous, there until the process ends: the interpreter goes before threads that run in native code do."""
    pages, address = anonymous(size)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pages))
    return pages, address


def enlarge(pages: mmap.mmap) -> None:
    """Ask for huge pages, where the system has them."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is not None:
        with contextlib.suppress(OSError):  # a kernel that was built without them
            pages.madvise(advice)
