"""Memory for buffers: aligned, kept and reused, counted, bounded, trimmed on request."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections import defaultdict
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.core.config import settings_now
from intaglio.core.errors import DeviceError
from intaglio.core.locks import Level, across_forks
from intaglio.core.trace import GlobalCounters
from intaglio.runtime.buffer import Buffer
from intaglio.runtime.pages import anonymous, enlarge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.core.config import Config

ALIGNMENT: Final = 64
LARGE: Final = 1 << 16  # bytes from which memory is taken by whole pages
HUGE: Final = 1 << 22  # bytes from which huge pages are asked for: fewer to be touched first, and to be found again


Lease: TypeAlias = tuple[object, int, int]  # memory that is taken: what keeps it alive, its address, its bytes
_new: Final = object.__new__


class Order:
    """Blocks that are asked for together, once or again and again: their sizes, and what is really taken for each.

    Attributes:
        count: How many they are.
        runs: What is taken for each of some blocks in a row, and their sizes.
        total: The bytes that are asked for.
        capacity: Those that are taken.
    """

    __slots__ = ("capacity", "count", "runs", "total")

    def __init__(self, sizes: Sequence[int]) -> None:
        self.count: Final = len(sizes)
        self.runs: Final = [(capacity, [*run]) for capacity, run in groupby(sizes, _size_class)]
        self.total: Final = sum(sizes)
        self.capacity: Final = sum(capacity * len(run) for capacity, run in self.runs)


class Block(Buffer):
    """A buffer whose bytes are returned to their allocator when nothing refers to it: made by that alone."""

    __slots__ = ("give_back",)

    give_back: Callable[[tuple[Lease, int]], None]
    read_only = False

    def __del__(self) -> None:
        """Queue the memory for reuse (a finalizer does nothing else: it may run anywhere)."""
        self.give_back((self.owner, self.nbytes))  # pyright: ignore[reportArgumentType] -- the lease


class Allocator:
    """Memory of the host by size class. Freed blocks are kept for blocks of the same class, within a bound."""

    def __init__(self) -> None:
        self._returned: Final[list[tuple[Lease, int]]] = []
        self._give_back: Final = self._returned.append
        self.used: int = 0
        self._free: Final[defaultdict[int, list[Lease]]] = defaultdict(list)
        self._kept: int = 0
        self._lock: Final = across_forks(threading.Lock(), Level.LEAF)

    def allocate(self, nbytes: int) -> Block:
        """Bytes with undefined contents, aligned to a cache line.

        Raises: DeviceError if there are not so many, or the settings in force allow no more.
        """
        return self.allocate_all(Order((nbytes,)), settings_now())[0]

    def allocate_all(self, order: Order, settings: Config) -> list[Block]:
        """As allocate, several at once.

        Raises: DeviceError if there are not so many bytes, or the settings allow no more.
        """
        with self._lock:
            before = self.used, self._kept
            if self._returned:
                self._collect(settings.kept_bytes)
            blocks: list[Block] = []
            try:
                if settings.memory_bytes:
                    self._check(order.total, settings.memory_bytes)
                give_back = self._give_back
                for capacity, sizes in order.runs:
                    free = self._free[capacity]
                    for nbytes in sizes:
                        lease = free.pop() if free else self._take(capacity)
                        block = _new(Block)  # without a call of its class, which would take twice as long
                        block.address, block.nbytes = lease[1], nbytes
                        block.owner, block.give_back = lease, give_back
                        blocks.append(block)
            finally:
                done = order if len(blocks) == order.count else Order([block.nbytes for block in blocks])
                self.used += done.total
                self._kept -= done.capacity
                _count(self.used - before[0], self._kept - before[1])
            return blocks

    def _check(self, nbytes: int, limit: int) -> None:
        """Raise where more bytes would be in use than there may be."""
        if self.used + nbytes > limit:
            raise DeviceError(
                f"allocate: {nbytes} bytes do not fit; {self.used} of {limit} are in use. Free some tensors?"
            )

    def collect(self) -> None:
        """Count what finalizers returned."""
        most = settings_now().kept_bytes
        with self._lock:
            before = self.used, self._kept
            self._collect(most)
            _count(self.used - before[0], self._kept - before[1])

    def trim(self) -> int:
        """Give all that is kept for reuse back to the system; gives how many bytes those were."""
        with self._lock:
            before = self.used, self._kept
            self._collect(sys.maxsize)  # what nobody has collected yet counts as well
            freed = self._trim()
            _count(self.used - before[0], self._kept - before[1])
            return freed

    def _collect(self, most: int) -> None:
        """Move returned blocks to the free lists, or give them back where as many bytes are kept as may be."""
        returned, free = self._returned, self._free  # to the first, finalizers may add more meanwhile
        used, kept = 0, self._kept
        try:
            while returned:
                lease, nbytes = returned.pop()
                used += nbytes
                capacity = lease[2]
                if kept + capacity <= most:
                    kept += capacity
                    free[capacity].append(lease)
        finally:
            self.used -= used
            self._kept = kept

    def _trim(self) -> int:
        """Let go of all free blocks."""
        freed = sum(capacity * len(free) for capacity, free in self._free.items())
        self._free.clear()
        self._kept -= freed
        return freed

    def _take(self, capacity: int) -> Lease:
        """Fresh memory, counted as kept. Where the system has no more, all that is kept goes back to it first."""
        try:
            memory, address = _take(capacity)
        except DeviceError:
            if not self._trim():
                raise
            memory, address = _take(capacity)
        self._kept += capacity
        return memory, address, capacity


def _count(used: int, kept: int) -> None:
    """Count bytes that are in use, or kept, more than before."""
    GlobalCounters.mem_kept += kept
    used = GlobalCounters.mem_used = GlobalCounters.mem_used + used
    if used > GlobalCounters.peak:
        GlobalCounters.peak = used


@lru_cache(maxsize=1024)
def _size_class(nbytes: int) -> int:
    """The bytes that are really taken: a power of two, or one of four steps between."""
    size = max(nbytes, ALIGNMENT)
    step = max(ALIGNMENT, 1 << max(size.bit_length() - 3, 0))
    return -(-size // step) * step


def _take(capacity: int) -> tuple[object, int]:
    """Fresh memory: (what keeps it alive, its address)."""
    try:
        if capacity >= LARGE:
            pages, address = anonymous(capacity)
            if capacity >= HUGE:
                enlarge(pages)
            return pages, address
        raw = ctypes.create_string_buffer(capacity + ALIGNMENT)
    except (OSError, MemoryError, ValueError, OverflowError) as error:
        reason = "no address reaches so far" if isinstance(error, OverflowError) else error
        raise DeviceError(f"allocate: the system has no {capacity} bytes; {reason}. Free some tensors?") from error
    address = ctypes.addressof(raw)
    return raw, -(-address // ALIGNMENT) * ALIGNMENT
