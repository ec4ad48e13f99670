"""Realizing: a plan compiled, given its bytes and run; the table from buffer names to bytes."""

from __future__ import annotations

import importlib
import signal
import threading
import time
from array import array
from typing import TYPE_CHECKING, Final

from intaglio.core.config import config
from intaglio.core.errors import InternalError
from intaglio.core.locks import Level, across_forks
from intaglio.core.trace import GlobalCounters
from intaglio.engine import debug
from intaglio.engine.devices import device_of
from intaglio.engine.form import Move
from intaglio.ops.memory import BufferRef
from intaglio.runtime.allocator import Block
from intaglio.runtime.buffer import Buffer
from intaglio.runtime.files import FileBuffer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.engine.form import Stretch
    from intaglio.engine.plan import Plan

lock: Final = across_forks(threading.RLock(), Level.ENGINE)
_swap: Final[Callable[[int, object], object]] = importlib.import_module("_signal").signal
# what `signal.signal` calls, without its search for names of handlers, which takes longer than a small kernel


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
    if isinstance(found, Block):
        return found
    if not isinstance(found, Buffer):
        raise InternalError(f"engine: {ref} has no bytes. Please report it.")
    if isinstance(found, FileBuffer):
        found.check()
    return found


# -- running


class _Uninterrupted:
    """A block during which Ctrl-C is held back: it is delivered at the end."""

    __slots__ = ("_is_main", "_old", "_pending")

    def __enter__(self) -> None:
        self._is_main = threading.get_ident() == threading.main_thread().ident
        self._pending: list[tuple[int, object]] = []
        self._old = _swap(signal.SIGINT, self._wait) if self._is_main else None

    def _wait(self, number: int, frame: object) -> None:
        """Note a signal."""
        self._pending.append((number, frame))

    def __exit__(self, *error: object) -> None:
        if self._is_main:
            _swap(signal.SIGINT, self._old)
            if self._pending and callable(self._old):
                self._old(*self._pending[0])


def execute(made: Plan, committed: Callable[[], None]) -> None:
    """Compile and allocate everything, then run and commit: after the first launch nothing can fail.

    An interrupt that comes after the first launch is delivered after `committed`: else a retry would run twice.
    """
    with lock:
        steps = made.steps
        memory = _allocate(made)
        debug.prepare(made)
        with _Uninterrupted():
            try:
                _launch(made, steps, memory)
            finally:
                for number in made.form.fresh:
                    made.refs[number].memory = memory[number]
            committed()


def _allocate(made: Plan) -> list[Buffer | None]:
    """The bytes of every buffer of a plan, by number; none for those that no kernel uses."""
    form, refs = made.form, made.refs
    memory: list[Buffer | None] = [None] * len(refs)
    for number in form.there:
        memory[number] = buffer_of(refs[number])
    for device, numbers in form.allocated.items():
        blocks = device_of(device).allocate_all([refs[number].nbytes for number in numbers])
        for number, block in zip(numbers, blocks, strict=True):
            memory[number] = block
    for number, source in form.lent:
        memory[number] = memory[source]
    return memory


def _launch(made: Plan, steps: Sequence[Stretch | Move], memory: Sequence[Buffer | None]) -> None:
    """Run kernels and copies in order: the kernels of a stretch by one call."""
    addresses = [
        0 if buffer is None else buffer.address + start for buffer, start in zip(memory, made.starts, strict=True)
    ]
    words = [*addresses, *[number.bits for number in made.numbers], 0]
    for step in steps:
        if isinstance(step, Move):
            source, target = memory[step.source], memory[step.target]
            if source is None or target is None or made.starts[step.target]:
                raise InternalError("engine: a copy into part of a buffer")
            view = step.view._replace(offset=step.view.offset + made.starts[step.source])
            device_of(made.refs[step.target].device).copy(source, view, target)
            GlobalCounters.global_mem += 2 * view.nbytes
            continue
        slots = array("Q", [words[place] + rest for place, rest in step.slots])
        GlobalCounters.kernel_count += len(step.launches)
        GlobalCounters.global_ops += step.flops
        GlobalCounters.global_mem += step.nbytes
        started = time.perf_counter()
        debug.launch(made, step, slots)
        GlobalCounters.run_seconds += time.perf_counter() - started
        GlobalCounters.launch_count += 1
