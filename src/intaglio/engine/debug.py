"""What a person sees of a run: kernels, sources, times, by the level of DEBUG."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from intaglio.core.config import config
from intaglio.core.trace import GlobalCounters
from intaglio.engine import explain
from intaglio.schedule.kernels import Copy, PlannedKernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.engine.devices import Device, Executable


def _say(text: str) -> None:
    """One line for the person who watches."""
    print(text, file=sys.stderr)


def schedule(kernels: Sequence[PlannedKernel | Copy]) -> None:
    """The size of a schedule (1), its kernels (3)."""
    level = config.debug
    if level < 1 or not kernels:
        return
    _say(f"schedule: {len(kernels)} kernels")
    if level >= 3:
        for kernel in kernels:
            if isinstance(kernel, Copy):
                _say(f"  copy {kernel.view.nbytes} bytes, {kernel.source.device} to {kernel.target.device}")
            else:
                _say(f"  {len(kernel.buffers)} buffers, {len(kernel.ast.src)} statements: {', '.join(kernel.metadata)}")


def launch(device: Device, run: Sequence[tuple[PlannedKernel, Executable, list[int]]]) -> None:
    """Run kernels; one by one, with a line each, where DEBUG asks for it."""
    level = config.debug
    for kernel, _, _ in run:
        explain.note(kernel.ast)
    if level < 2:
        device.run([(executable, slots) for _, executable, slots in run])
        return
    for number, (kernel, executable, slots) in enumerate(run, GlobalCounters.kernel_count - len(run) + 1):
        if level >= 4:
            _say(explain.c_source(kernel.ast))
        started = time.perf_counter()
        device.run([(executable, slots)])
        seconds = time.perf_counter() - started
        _say(
            f"*** {device.name:<6} {number:4d} {executable.name:<24} arg {len(slots):2d} mem {GlobalCounters.mem_used / 1e9:5.2f} GB "
            f"tm {seconds * 1e6:9.2f}us {executable.flops / seconds / 1e9:8.1f} GFLOPS {kernel.nbytes / seconds / 1e9:6.1f} GB/s "
            f"{list(kernel.metadata)}"
        )
