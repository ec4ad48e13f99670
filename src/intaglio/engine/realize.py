"""Realizing: a program scheduled, compiled and run; the table from buffer names to bytes."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from intaglio.core.config import config
from intaglio.core.errors import InternalError
from intaglio.core.trace import GlobalCounters
from intaglio.engine import debug
from intaglio.engine.devices import Device, device_of
from intaglio.ops.memory import Buffer as BufferOp
from intaglio.ops.memory import BufferRef, Window
from intaglio.schedule.alias import order
from intaglio.schedule.fuse import split, together, used
from intaglio.schedule.kernels import Copy, PlannedKernel, build
from intaglio.schedule.program import CopyTo, Program, Repeat, Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from intaglio.engine.devices import Executable
    from intaglio.runtime.buffer import Buffer

lock: Final = threading.RLock()
_buffers: Final[weakref.WeakKeyDictionary[BufferRef, Buffer]] = weakref.WeakKeyDictionary()


@dataclass(slots=True)
class Plan:
    """A program ready to run: kernels and copies in order, and where moved buffers end up."""

    kernels: list[PlannedKernel | Copy]
    renamed: dict[BufferRef, BufferRef]
    fresh: set[BufferRef]


# -- buffers


def default_device() -> str:
    """The name of the device of tensors that name none."""
    return device_of(config.device).name


def new_ref(nbytes: int, device: str) -> BufferRef:
    """A name for bytes that are yet to be allocated."""
    return BufferRef(nbytes, device)


def adopt(ref: BufferRef, memory: Buffer) -> None:
    """Say which bytes a name stands for."""
    _buffers[ref] = memory


def is_allocated(ref: BufferRef) -> bool:
    """Whether a name stands for bytes."""
    return ref in _buffers


def from_bytes(data: bytes | memoryview, device: str, *, table: bool = False) -> BufferRef:
    """A buffer with these bytes, copied. `table` says that re-rolling made it (it is counted)."""
    with lock:
        ref = BufferRef(len(data), device)
        memory = device_of(device).allocate(len(data))
        memory.copy_in(data)
        _buffers[ref] = memory
        if table:
            GlobalCounters.table_bytes += len(data)
        return ref


def buffer_of(ref: BufferRef) -> Buffer:
    """The bytes of a name.

    Raises: InternalError if it has none.
    """
    found = _buffers.get(ref)
    if found is None:
        raise InternalError(f"engine: {ref} has no bytes. Please report it.")
    return found


# -- plans


def plan(program: Program) -> Plan:
    """The kernels of a program, in the order in which they run."""
    ordered = order(program)
    keep = {ordered.renamed.get(ref, ref) for ref in program.keep}
    for ref in list(keep):
        while ref in ordered.renamed:
            ref = ordered.renamed[ref]
        keep.add(ref)
    statements = split(used(ordered.statements, keep), ordered.fresh)
    kernels: list[PlannedKernel | Copy] = []
    for group in together(statements):
        copy = _copy(group[0])
        kernels.append(copy if copy is not None else build(group))
    renamed: dict[BufferRef, BufferRef] = {}
    for ref in program.keep:
        home = ref
        while home in ordered.renamed:
            home = ordered.renamed[home]
        renamed[ref] = home
    made = Plan(kernels, renamed, ordered.fresh)
    debug.schedule(made.kernels)
    return made


def _copy(statement: Statement) -> Copy | None:
    """The move between devices that a statement is, if it is one."""
    if isinstance(statement, Repeat):
        return None
    value = statement.value
    if isinstance(value.op, CopyTo):
        value = value.src[0]
    elif (
        not (isinstance(value.op, Window) and isinstance(value.src[0].op, BufferOp))
        or value.src[0].op.ref.device == statement.ref.device
    ):
        return None
    if not (isinstance(value.op, Window) and isinstance(value.src[0].op, BufferOp)):
        raise InternalError("engine: a copy of a value that is not in memory")
    if not statement.view.is_contiguous or statement.view.offset or statement.indices:
        raise InternalError("engine: a copy into part of a buffer")
    return Copy(value.src[0].op.ref, value.op.view, statement.ref)


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
        loaded: list[Executable | None] = []
        for kernel in made.kernels:
            loaded.append(None if isinstance(kernel, Copy) else device_of(kernel.device).load(kernel.ast))
        memory = _allocate(made)
        debug.prepare(made.kernels, loaded)
        with _uninterrupted():
            try:
                _launch(made.kernels, loaded, memory)
            finally:
                for ref in made.fresh:
                    if ref in memory:
                        _buffers[ref] = memory[ref]
            committed()


def _allocate(made: Plan) -> dict[BufferRef, Buffer]:
    """The bytes of every buffer of a plan; buffers that are dead by then lend theirs to later ones."""
    last: dict[BufferRef, int] = {}
    for number, kernel in enumerate(made.kernels):
        for ref in refs_of(kernel):
            last[ref] = number
    kept = set(made.renamed.values())
    memory: dict[BufferRef, Buffer] = {}
    idle: dict[tuple[str, int], list[Buffer]] = {}
    ending: dict[int, list[BufferRef]] = {}
    for ref, number in last.items():
        ending.setdefault(number, []).append(ref)
    for number, kernel in enumerate(made.kernels):
        for ref in refs_of(kernel):
            if ref in memory:
                continue
            known = _buffers.get(ref)
            if known is None:
                if ref not in made.fresh:
                    raise InternalError(f"engine: {ref} is used and has no bytes. Please report it.")
                spare = idle.get((ref.device, ref.nbytes))
                known = spare.pop() if spare else device_of(ref.device).allocate(ref.nbytes)
            memory[ref] = known
        for ref in ending.get(number, ()):
            if ref in made.fresh and ref not in kept and ref not in _buffers:
                idle.setdefault((ref.device, ref.nbytes), []).append(memory[ref])
    return memory


def refs_of(kernel: PlannedKernel | Copy) -> Sequence[BufferRef]:
    """The buffers that a kernel or copy touches."""
    return (kernel.source, kernel.target) if isinstance(kernel, Copy) else kernel.buffers


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
        slots = [
            memory[slot[0]].address + slot[1] if isinstance(slot[0], BufferRef) else slot[1] for slot in kernel.slots
        ]
        run.append((kernel, executable, slots))
        GlobalCounters.kernel_count += 1
        GlobalCounters.global_ops += executable.flops
        GlobalCounters.global_mem += kernel.nbytes
    flush()
