"""Devices by name: where bytes live, and how kernels are compiled and run there."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from intaglio.core import locks
from intaglio.core.config import config, settings_now
from intaglio.core.errors import DeviceError
from intaglio.core.target import Target, canonical
from intaglio.core.trace import GlobalCounters
from intaglio.ir.interpret import run_linear
from intaglio.ir.levels import Level
from intaglio.ir.verify import verify
from intaglio.lower.choice import MODEL, Choice
from intaglio.lower.kernel import Lowered, lower
from intaglio.ops.scratch import scratch_of
from intaglio.render import llvm
from intaglio.runtime.allocator import Allocator, Order
from intaglio.runtime.compiler import Compiler, host_target, recall_host
from intaglio.runtime.disk_cache import DiskCache, default_folder
from intaglio.runtime.launch import Row, Table
from intaglio.runtime.pool import pool
from intaglio.runtime.processors import process_threads

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from intaglio.core.config import Config
    from intaglio.engine.waves import Wave
    from intaglio.ir.node import Node
    from intaglio.ir.view import View
    from intaglio.runtime.buffer import Buffer
    from intaglio.schedule.kernels import PlannedKernel

KERNELS: Final = 8192  # compiled kernels remembered by a device


@dataclass(frozen=True, slots=True)
class Executable:
    """A kernel that can be launched."""

    name: str
    lowered: Lowered
    address: int
    source: str

    @property
    def flops(self) -> int:
        """Floating-point operations of one launch."""
        return self.lowered.flops


class Launches:
    """Kernels that run in a row on one device.

    Attributes:
        executables: They, compiled.
        starts: Where the arguments of each begin among those of all, and at last how many there are.
        costs: What each is estimated to take (`engine/waves.py`).
        waves: Chains of neighbours that threads may run side by side, by their numbers.
    """

    def __init__(
        self,
        executables: Sequence[Executable],
        starts: Sequence[int],
        costs: Sequence[int],
        waves: Sequence[Wave],
    ) -> None:
        self.executables: Final = executables
        self.starts: Final = starts
        self.costs: Final = costs
        self.waves: Final = waves
        self.table: Table | None = None  # for a native call, if the device makes one (`Device.prepare`)


def _lower(ast: Node, target: Target, size_slot: int | None, choice: Choice) -> Lowered:
    """A kernel as verified instructions: LLVM ends the process on code that is wrong, so none may reach it."""
    if config.verify:
        verify(ast, Level.KERNEL)
    lowered = lower(ast, target, size_slot, choice)
    verify(lowered.linear, Level.LINEAR)
    return lowered


class Device:
    """A place for bytes. The base keeps them on the host and runs nothing."""

    kind: str = "NULL"

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.allocator: Final = Allocator()
        self.ran: Final[set[Executable]] = set()  # kernels that DEBUG has shown
        self.told: bool = False  # whether DEBUG has named it
        self.notes: Final[dict[Executable, str]] = {}  # what DEBUG has to say of kernels that are yet to run
        self._kernels: Final[OrderedDict[tuple[Node, Choice], Executable]] = OrderedDict()
        self._lock: Final = locks.across_forks(threading.RLock(), locks.Level.DEVICE)

    @property
    def about(self) -> str:
        """What DEBUG says of it."""
        return "which keeps bytes and runs nothing"

    @property
    def target(self) -> Target:
        """What code is made for."""
        return Target("null", 16)

    def allocate(self, nbytes: int) -> Buffer:
        """Bytes with undefined contents."""
        return self.allocate_all(Order((nbytes,)), settings_now())[0]

    def allocate_all(self, order: Order, settings: Config) -> Sequence[Buffer]:
        """As allocate, several at once."""
        return self.allocator.allocate_all(order, settings)

    def load(self, ast: Node, size_slot: int | None = None, choice: Choice = MODEL) -> Executable:
        """A kernel compiled, once for each AST and choice.

        Args:
            ast: A kernel.
            size_slot: The argument that is the size, of a kernel at the nominal size.
            choice: Where its code is to differ from the cost model's.
        """
        with self._lock:
            key = ast, choice
            found = self._kernels.get(key)
            if found is None:
                found = self._kernels[key] = self._compile(self.lower(ast, size_slot, choice))
                if len(self._kernels) > KERNELS:
                    self._kernels.popitem(last=False)
            else:
                self._kernels.move_to_end(key)
            return found

    def lower(self, ast: Node, size_slot: int | None = None, choice: Choice = MODEL) -> Lowered:
        """A kernel as instructions."""
        return _lower(ast, self.target, size_slot, choice)

    def _compile(self, lowered: Lowered) -> Executable:
        """A kernel that runs nothing."""
        return Executable(lowered.name, lowered, 0, "")

    def prepare(self, launches: Launches) -> None:
        """Make what it takes to run kernels, while none runs: once the first does, nothing may fail."""

    def rouse(self, threads: int) -> None:
        """Get ready for kernels that so many threads share, which come soon."""

    def run(self, launches: Launches, slots: array[int], first: int, last: int, threads: int) -> None:
        """Run kernels from number `first` to before `last` in order, with the arguments of all, once prepared."""

    def copy(self, source: Buffer, view: View, target: Buffer) -> None:
        """The elements of a view of some bytes, in row-major order, to the start of others."""
        import numpy as np

        if not view.size:  # memory of no bytes cannot be written
            return
        raw = np.frombuffer(source.view(), np.uint8)
        item = view.dtype.itemsize
        low, high = view.byte_bounds()
        if view.is_contiguous:
            target.view()[: view.nbytes] = source.view()[low:high]
            return
        elements = np.lib.stride_tricks.as_strided(
            raw[view.offset : view.offset + item].view(f"V{item}"), view.shape, view.strides, writeable=False
        )
        target.copy_in(np.ascontiguousarray(elements).view(np.uint8).reshape(-1).data)


def disk_cache() -> DiskCache | None:
    """The disk cache that the settings in force ask for."""
    settings = settings_now()
    if not settings.cache:
        return None
    folder = Path(settings.cache_dir).absolute() if settings.cache_dir else default_folder()
    found = _cache_in(folder)
    found.keep_within(settings.cache_size_mb << 20)
    return found


def threads_now() -> int:
    """How many threads share a large kernel, as the settings in force say."""
    return threads_of(settings_now())


def threads_of(settings: Config) -> int:
    """How many threads share a large kernel, as some settings say."""
    return settings.threads or process_threads()


@cache
def _cache_in(folder: Path) -> DiskCache:
    """The disk cache of a folder, open from its first use on."""
    return DiskCache(folder, config.cache_size_mb << 20)


@cache
def _compiler() -> Compiler:
    """The LLVM compiler with the disk cache."""
    return Compiler(disk_cache)


class Cpu(Device):
    """This machine's processor, by LLVM."""

    kind = "CPU"

    @property
    def about(self) -> str:
        """What DEBUG says of it."""
        threads = threads_now()
        return f"vectors of {self.target.vector_bytes} bytes, {threads} thread{'s' if threads > 1 else ''}"

    @property
    def target(self) -> Target:
        """The host's features."""
        recall_host(disk_cache)
        return host_target(2)

    def _compile(self, lowered: Lowered) -> Executable:
        """A kernel in machine code."""
        source = self.source(lowered)
        started = time.perf_counter()
        address, compiled = _compiler().load(source, lowered.name)
        GlobalCounters.compile_seconds += time.perf_counter() - started
        if compiled:
            GlobalCounters.compile_count += 1
        return Executable(lowered.name, lowered, address, source)

    def source(self, lowered: Lowered) -> str:
        """The text that is compiled."""
        return llvm.render(lowered.linear, self.target)

    def prepare(self, launches: Launches) -> None:
        """Have their table, and scratch for each thread."""
        noted = zip(launches.executables, launches.starts[:-1], launches.costs, strict=True)
        rows = [Row(e.address, k, e.lowered.chunks, c, e.lowered.series, e.lowered.worth) for e, k, c in noted]
        nbytes = max(scratch_of(e.lowered.linear)[1] for e in launches.executables)
        try:
            pool.provide(nbytes)
        except (OSError, MemoryError) as error:
            message = f"scratch: the system has no {nbytes} bytes for each thread; {error}. Free some tensors?"
            raise DeviceError(message) from error
        launches.table = Table(_compiler(), rows, launches.waves)

    def rouse(self, threads: int) -> None:
        """Wake the threads that sleep."""
        if threads > 1:
            pool.rouse(_compiler(), threads)

    def run(self, launches: Launches, slots: array[int], first: int, last: int, threads: int) -> None:
        """Run kernels in order; waves and large kernels by so many threads."""
        assert launches.table is not None
        launches.table.run(slots, threads, first, last)


class Interpreter(Device):
    """The interpreter of the IR: slow, and the oracle of the others."""

    kind = "PYTHON"

    @property
    def about(self) -> str:
        """What DEBUG says of it."""
        return "the interpreter"

    def run(self, launches: Launches, slots: array[int], first: int, last: int, threads: int) -> None:
        """Interpret kernels in order."""
        for number in range(first, last):
            lowered = launches.executables[number].lowered
            own = slots[launches.starts[number] : launches.starts[number + 1]]
            run_linear(lowered.linear, own, lowered.chunks)


class Disk(Device):
    """Files as devices: bytes that are mapped. Kernels of the CPU write them; no others are made there."""

    kind = "DISK"

    def allocate_all(self, order: Order, settings: Config) -> Sequence[Buffer]:
        """Nothing can be computed on a file."""
        raise DeviceError('disk: values cannot be computed on a file; move the tensor first, with .to("CPU").')


class HostArrays(Device):
    """NumPy's memory, read in place."""

    kind = "NPY"

    def load(self, ast: Node, size_slot: int | None = None, choice: Choice = MODEL) -> Executable:
        """Nothing is computed on host arrays."""
        raise DeviceError('npy: values cannot be computed on host arrays; move the tensor first, with .to("CPU").')


_KINDS: Final[dict[str, type[Device]]] = {
    "CPU": Cpu, "NULL": Device, "PYTHON": Interpreter, "DISK": Disk, "NPY": HostArrays,
}  # fmt: skip


_used: Final[dict[str, Device]] = {}  # by their usual names


@cache
def _device(name: str) -> Device:
    """The device of a usual name."""
    return _used.setdefault(name, _KINDS[name.partition(":")[0]](name))


@cache
def device_of(name: str) -> Device:
    """The device of a name.

    Raises: DeviceError if there is no such device.
    """
    return _device(canonical(name))


@cache
def usual_name(name: str) -> str:
    """The name by which a device is known.

    Raises: DeviceError if there is no such device.
    """
    return device_of(name).name


def empty_cache(device: str | None = None) -> int:
    """The bytes that go back to the system: memory of freed tensors, which is else kept for those that come.

    What `kept_bytes` allows is kept; `GlobalCounters.mem_kept` says how much that is at the moment. Living tensors,
    compiled kernels and results do not change; memory that is asked for next takes longer.

    Args:
        device: The device whose memory is meant; all that were used when None.
    Raises: DeviceError if there is no such device.
    Examples:
        >>> from intaglio import empty_cache
        >>> t = Tensor([1.0] * 100_000).realize()
        >>> del t
        >>> empty_cache() >= 400_000, empty_cache()
        (True, 0)
    """
    devices = list(_used.values()) if device is None else [device_of(device)]
    return sum(each.allocator.trim() for each in devices)


def load(kernel: PlannedKernel) -> Executable:
    """A planned kernel compiled for its device."""
    return device_of(kernel.device).load(kernel.ast, kernel.size_slot)
