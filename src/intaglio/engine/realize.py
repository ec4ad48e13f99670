"""Realizing: a plan compiled, given its bytes and run; the table from buffer names to bytes."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

from intaglio.core.config import config
from intaglio.core.errors import InternalError
from intaglio.core.locks import Level, across_forks
from intaglio.core.size import at
from intaglio.core.trace import GlobalCounters
from intaglio.engine import debug
from intaglio.engine.devices import Device, device_of, load
from intaglio.engine.tune import tuned
from intaglio.ops.memory import BufferRef
from intaglio.runtime.buffer import Buffer
from intaglio.runtime.files import FileBuffer
from intaglio.schedule.kernels import Copy, PlannedKernel

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from intaglio.engine.devices import Executable
    from intaglio.engine.plan import Plan

lock: Final = across_forks(threading.RLock(), Level.ENGINE)


# -- buffers


def default_device() -> str:
    """The name of the device of tensors that name none."""
    return device_of(config.device).name


def new_ref(nbytes: int, device: str) -> BufferRef:
    """A name for bytes that are yet to be allocated."""
    return BufferRef(nbytes, device)


def adopt(ref: BufferRef, memory: Buffer) -> None:
    """Say which bytes a name stands for."""
    ref.memory = memory


def from_bytes(data: bytes | memoryview, device: str, *, table: bool = False) -> BufferRef:
    """A buffer with these bytes, copied. `table` says that re-rolling made it (it is counted)."""
    with lock:
        ref = BufferRef(len(data), device)
        memory = device_of(device).allocate(len(data))
        memory.copy_in(data)
        ref.memory = memory
        if table:
            GlobalCounters.table_bytes += len(data)
        return ref


def buffer_of(ref: BufferRef) -> Buffer:
    """The bytes of a name.

    Raises: InternalError if it has none; FileFormatError if they are a file's that was cut off.
    """
    found = ref.memory
    if not isinstance(found, Buffer):
        raise InternalError(f"engine: {ref} has no bytes. Please report it.")
    if isinstance(found, FileBuffer):
        found.check()
    return found


# -- running


@contextlib.contextmanager
def _uninterrupted() -> Generator[None]:
    """Hold Ctrl-C back until the block is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[tuple[int, object]] = []
    old = signal.signal(signal.SIGINT, lambda number, frame: pending.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)
        if pending and callable(old):
            old(*pending[0])  # pyright: ignore[reportArgumentType] -- the frame it was given


def execute(made: Plan, committed: Callable[[], None]) -> None:
    """Compile and allocate everything, then run and commit: after the first launch nothing can fail.

    An interrupt that comes after the first launch is delivered after `committed`: else a retry would run twice.
    """
    with lock:
        if not made.loaded:
            made.loaded.extend([None if isinstance(k, Copy) else load(k) for k in made.kernels])  # all, or none
        loaded = made.loaded
        if config.beam:
            loaded = [None if isinstance(k, Copy) else tuned(k) for k in made.kernels]
        memory = _allocate(made)
        debug.prepare(made.kernels, loaded)
        with _uninterrupted():
            try:
                _launch(made.kernels, loaded, memory)
            finally:
                for ref in made.fresh:
                    ref.memory = memory.get(ref)
            committed()


def _allocate(made: Plan) -> dict[BufferRef, Buffer]:
    """The bytes of every buffer of a plan."""
    memory: dict[BufferRef, Buffer] = {}
    for ref in made.buffers:
        if ref not in made.fresh:
            memory[ref] = buffer_of(ref)
        elif ref in made.lent:
            memory[ref] = memory[made.lent[ref]]
        else:
            memory[ref] = device_of(ref.device).allocate(ref.nbytes)
    return memory


def _launch(
    kernels: Sequence[PlannedKernel | Copy], loaded: Sequence[Executable | None], memory: dict[BufferRef, Buffer]
) -> None:
    """Run kernels in order: those between two copies on one device by one call."""
    run: list[tuple[PlannedKernel, Executable, list[int]]] = []
    device: Device | None = None

    def flush() -> None:
        if run and device is not None:
            started = time.perf_counter()
            debug.launch(device, run)
            GlobalCounters.run_seconds += time.perf_counter() - started
            GlobalCounters.launch_count += 1
            run.clear()

    for kernel, executable in zip(kernels, loaded, strict=True):
        if isinstance(kernel, Copy):
            flush()
            device_of(kernel.target.device).copy(memory[kernel.source], kernel.view, memory[kernel.target])
            GlobalCounters.global_mem += 2 * kernel.view.nbytes
            continue
        if executable is None:
            raise InternalError("engine: a kernel was not compiled")
        here = device_of(kernel.device)
        if here is not device:
            flush()
            device = here
        slots = [memory[of].address + rest if isinstance(of, BufferRef) else rest for of, rest in kernel.slots]
        run.append((kernel, executable, slots))
        GlobalCounters.kernel_count += 1
        GlobalCounters.global_ops += at(executable.flops, kernel.size)
        GlobalCounters.global_mem += kernel.nbytes
    flush()
