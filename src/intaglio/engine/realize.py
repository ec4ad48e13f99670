"""Realizing: a plan compiled, given its bytes and run; the table from buffer names to bytes."""

from __future__ import annotations

import importlib
import signal
import threading
from array import array
from operator import add, attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Final

from intaglio.core.config import settings_now
from intaglio.core.errors import InternalError
from intaglio.core.locks import Level, across_forks
from intaglio.core.trace import GlobalCounters
from intaglio.engine import debug
from intaglio.engine.devices import device_of, threads_of, usual_name
from intaglio.engine.form import Move
from intaglio.ops.memory import BufferRef
from intaglio.runtime.allocator import Block, Order
from intaglio.runtime.buffer import Buffer
from intaglio.runtime.files import FileBuffer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.core.config import Config
    from intaglio.engine.form import Room, Stretch
    from intaglio.engine.plan import Plan
    from intaglio.ops.memory import Const

lock: Final = across_forks(threading.RLock(), Level.ENGINE)
_PLAIN: Final = frozenset((Block, Buffer))  # memory of which nothing is to be checked
_swap: Final[Callable[[int, object], object]] = importlib.import_module("_signal").signal
# what `signal.signal` calls, without its search for names of handlers, which takes longer than a small kernel
_called: Final[Callable[[int], object]] = importlib.import_module("_signal").getsignal
_OTHERS: Final = [
    int(number)
    for name in ("SIGALRM", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF", "SIGQUIT")
    if (number := getattr(signal, name, None)) is not None
]
_memory: Final[Callable[[BufferRef], object]] = attrgetter("memory")
_address: Final[Callable[[object], int]] = attrgetter("address")
_bits: Final[Callable[[Const], int]] = attrgetter("bits")


# -- buffers


def default_device() -> str:
    """The name of the device of tensors that name none."""
    return usual_name(settings_now().device)


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
    """A block during which Ctrl-C is held back, and other signals for which Python has something to call.

    They are delivered at the end: what they call may raise.
    """

    __slots__ = ("_old", "_pending")

    def __enter__(self) -> None:
        self._pending: dict[int, object] = {}
        self._old: dict[int, object] = {}
        try:
            self._old[signal.SIGINT] = _swap(signal.SIGINT, self._wait)
        except ValueError:  # other threads have no signals
            return
        if any(map(callable, map(_called, _OTHERS))):
            for number in _OTHERS:
                if callable(_called(number)):
                    self._old[number] = _swap(number, self._wait)

    def _wait(self, number: int, frame: object) -> None:
        """Note a signal."""
        self._pending.setdefault(number, frame)

    def __exit__(self, *error: object) -> None:
        for number, old in self._old.items():
            _swap(number, old)
        if self._pending:
            self._deliver()

    def _deliver(self) -> None:
        """Call what belongs to each signal, whatever the others raise."""
        number = next(iter(self._pending))
        frame, old = self._pending.pop(number), self._old[number]
        try:
            if callable(old):
                old(number, frame)
        finally:
            if self._pending:
                self._deliver()


def execute(
    made: Plan, committed: Callable[[], None] | None, settings: Config, taken: Sequence[tuple[int, int]] = ()
) -> None:
    """Compile and allocate everything, then run and commit: after the first launch nothing can fail.

    An interrupt that comes after the first launch is delivered after `committed`: else a retry would run twice.

    Args:
        taken: Of the form's heirs, those that do take the memory of an input. `committed` must see to it that nobody
            asks for those inputs again (`forsake`).
    """
    with lock:
        form = made.form
        steps = form.ready if form.ready and not settings.beam else made.steps(settings.beam)
        threads, rooms = threads_of(settings), form.clear if taken else form.rooms
        for device in form.sharing:
            device.rouse(threads)
        blocks = _provide(made, rooms, settings, taken)
        words = _words(made, rooms, blocks)
        watched = debug.watches_kernels(settings)
        if watched:
            debug.prepare(made, settings)
        with _Uninterrupted():
            _run(made, steps, words, threads, settings if watched else None)
            if committed is not None:
                committed()


def forsake(made: Plan, taken: Sequence[tuple[int, int]]) -> None:
    """Note that results have the memory of inputs: who asks for one of those from now on is told so."""
    for _, source in taken:
        made.refs[source].memory = None


def _provide(
    made: Plan, rooms: Sequence[Room], settings: Config, taken: Sequence[tuple[int, int]]
) -> list[Sequence[Buffer]]:
    """Give the fresh buffers of a plan their bytes, all or none; gives the blocks of each of its rooms."""
    found: list[Sequence[Buffer]] = []
    for room in rooms:
        found.append(_inherit(made, room, settings, taken) if taken else room.device.allocate_all(room.order, settings))
    refs = made.refs
    for room, blocks in zip(rooms, found, strict=True):
        for number, block in zip(room.own, blocks, strict=False):
            refs[number].memory = block
        for number, nbytes, place, start in room.placed:
            block = blocks[place]
            refs[number].memory = Buffer(block.address + start, nbytes, block)
    return found


def _inherit(made: Plan, room: Room, settings: Config, taken: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
    """The blocks of a room, some of them inputs', which stay theirs until all has run."""
    sources = dict(taken)
    own = [buffer_of(made.refs[sources[number]]) if number in sources else None for number in room.own]
    own += [None] * (len(room.sizes) - len(own))
    sizes = [nbytes for nbytes, block in zip(room.sizes, own, strict=True) if block is None]
    fresh = iter(room.device.allocate_all(Order(sizes), settings))
    return [next(fresh) if block is None else block for block in own]


def _run(made: Plan, steps: Sequence[Stretch | Move], words: list[int], threads: int, watched: Config | None) -> None:
    """Do all steps in order: copies, and stretches of kernels, each by one call.

    Args:
        watched: The settings, if somebody watches.
    """
    counters = GlobalCounters
    for step in steps:
        if isinstance(step, Move):
            _move(made, step)
            continue
        slots = array("Q", step.pick(words))
        for place, rest in step.rests:
            slots[place] += rest
        counters.kernel_count += step.count
        counters.global_ops += step.flops
        counters.global_mem += step.nbytes
        started = perf_counter()
        if watched is None:
            step.device.run(step.launches, slots, 0, step.count, threads)
        else:
            debug.launch(made, step, slots, threads, watched)
        counters.run_seconds += perf_counter() - started
        counters.launch_count += 1


def _words(made: Plan, rooms: Sequence[Room], blocks: Sequence[Sequence[Buffer]]) -> list[int]:
    """What the arguments of a plan's kernels are picked from. `blocks`: of each of the rooms."""
    used = made.form.pick(made.refs)
    found = [*map(_memory, used)]
    if not _PLAIN.issuperset(map(type, found)):
        found = [*map(buffer_of, used)]
    words = [*map(_address, found)]
    if any(made.starts):
        words = [*map(add, words, made.form.pick(made.starts))]
    if made.form.private:
        for room, own in zip(rooms, blocks, strict=True):
            words += [own[place].address + start for place, start in room.hidden]
    if made.numbers:
        words += map(_bits, made.numbers)
    words.append(0)
    return words


def _move(made: Plan, step: Move) -> None:
    """Copy between devices."""
    source, target = made.refs[step.source], made.refs[step.target]
    if made.starts[step.target]:
        raise InternalError("engine: a copy into part of a buffer")
    view = step.view._replace(offset=step.view.offset + made.starts[step.source])
    device_of(target.device).copy(buffer_of(source), view, buffer_of(target))
    GlobalCounters.global_mem += 2 * view.nbytes
