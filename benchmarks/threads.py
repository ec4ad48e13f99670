"""Processes in which each package computes on as many threads as are asked for, and on no more processors."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOK: Final = 0.01  # seconds in which a process is looked at: some ticks of the system's accounts of time
IDLE: Final = 0.1  # of one processor: the process does nothing but look
PATIENCE: Final = 1.0  # seconds


def settings(threads: int) -> dict[str, str]:
    """The environment of a process in which each package computes on some threads."""
    names = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "INTAGLIO")
    return {**os.environ, **{f"{name}_THREADS": str(threads) for name in names}, "JAX_PLATFORMS": "cpu"}


@contextlib.contextmanager
def bound(threads: int) -> Iterator[None]:
    """Processes that are started within have as many processors as threads, from before their first import on.

    Not every package has a setting for its threads (JAX has none); each counts the processors that it may use.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[-threads:])  # the first processors serve most interrupts
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def settle() -> None:
    """Wait until no thread of this process runs: threads of a pool look for more work a while after a call.

    OpenBLAS's do so for a tenth of a second, and would take a processor from whoever comes next.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        before = time.process_time()
        time.sleep(LOOK)
        if time.process_time() - before < IDLE * LOOK:
            return
