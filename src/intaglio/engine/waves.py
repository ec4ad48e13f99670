"""Waves: kernels in a row that fall into chains none of which needs what another does, so that threads share them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.ops.memory import BufferRef
from intaglio.schedule.kernels import Copy, written_slots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.engine.arena import Life
    from intaglio.ir.node import Node
    from intaglio.schedule.kernels import PlannedKernel

OPERATIONS: Final = 5  # arithmetic operations that take as long as a byte to or from a cache
SHARING: Final = 1 << 16  # what it costs to have threads share something
SAVED: Final = 1 << 20  # what a wave must save: some 30 us, a little more than waking a worker takes (measured: 25)
LARGE: Final = 1 << 24  # the cost of a kernel in chunks from which threads share it as well alone: some 0.5 ms
ROOM: Final = 1 << 20  # bytes that the kernels of a wave may keep from one another: what a second cache holds
PATIENCE: Final = 64  # kernels that are looked at though they save nothing

Wave: TypeAlias = "list[list[int]]"  # chains, of numbers of kernels; all of them are neighbours, the first comes first


def estimated(nbytes: int, flops: int) -> int:
    """What a kernel takes, as if it only moved bytes: 2^16 are some microseconds."""
    return nbytes + flops // OPERATIONS


def waves(
    kernels: Sequence[PlannedKernel | Copy], costs: Sequence[int], shared: Sequence[bool], lives: Sequence[Life]
) -> list[Wave]:
    """The waves among the kernels of a plan.

    What lives in a wave must live in all of it, so that no chain writes where another still reads. So a wave ends where
    much would have left its place to others by then.

    Args:
        costs: Of each kernel.
        shared: Which are in chunks, so that threads may share each alone.
        lives: Of what is needed between kernels only.
    """
    found: list[Wave] = []
    if sum(costs) - max(costs, default=0) < SAVED:
        return found
    ends = [0] * len(kernels)  # the bytes of what each kernel is the last to use
    for life in lives:
        ends[life.last] += life.nbytes
    slots: dict[Node, list[int]] = {}  # through which kernels write; many kernels are equal
    start = 0
    while start < len(kernels):
        chains = _Chains(start)
        ended, number, device = 0, start, ""
        while number < len(kernels) and number - chains.end < PATIENCE and ended <= ROOM:
            kernel, chunked = kernels[number], shared[number]
            if isinstance(kernel, Copy) or kernel.device != (device := device or kernel.device):
                break
            if chunked and costs[number] >= LARGE:
                break
            if not chains.join(number, kernel.buffers, _written(kernel, slots), costs[number], chunked=chunked):
                break
            ended += ends[number]
            number += 1
        if chains.saved >= SAVED:
            found.append(chains.wave())
            start = chains.end
        else:
            start = max(start + 1, number - 1)  # what nothing could follow may follow its last
    return found


def _written(kernel: PlannedKernel, slots: dict[Node, list[int]]) -> list[BufferRef]:
    """The buffers that a kernel writes. `slots`: through which those before did."""
    found = slots.get(kernel.ast)
    if found is None:
        found = slots[kernel.ast] = written_slots(kernel.ast)
    return [of for of, _ in map(kernel.slots.__getitem__, found) if isinstance(of, BufferRef)]


class _Chains:
    """Chains that are followed kernel by kernel, and how many of the kernels make the best wave.

    Attributes:
        saved: What that saves.
        end: The number past its last kernel.
    """

    def __init__(self, start: int) -> None:
        self.saved: int = 0
        self.end: int = start
        self._chains: Final[Wave] = []
        self._costs: Final[list[int]] = []  # of each chain
        self._home: Final[dict[int, int]] = {}  # the chain of each kernel
        self._writer: Final[dict[BufferRef, int]] = {}  # the last kernel that writes a buffer
        self._users: Final[dict[BufferRef, list[int]]] = {}
        self._alone: int = 0  # what all kernels take one after the other, some of them shared
        self._total: int = 0
        self._longest: int = 0  # the chain that takes most, but for kernels alone that may be cut in chunks

    def join(
        self, number: int, uses: Sequence[BufferRef], writes: Sequence[BufferRef], cost: int, *, chunked: bool
    ) -> bool:
        """Add the next kernel: as a new chain, or to that whose last kernel it needs; False if it needs others."""
        needed = {self._writer[ref] for ref in uses if ref in self._writer}
        needed.update(*[self._users[ref] for ref in writes if ref in self._users])
        homes = {self._home[k] for k in needed}
        if len(homes) > 1:
            return False
        home = homes.pop() if homes else len(self._chains)
        if home == len(self._chains):
            self._chains.append([])
            self._costs.append(0)
        elif self._chains[home][-1] not in needed:
            return False
        self._chains[home].append(number)
        self._home[number] = home
        self._writer.update(dict.fromkeys(writes, number))
        for ref in uses:
            self._users.setdefault(ref, []).append(number)
        self._count(home, cost, chunked=chunked)
        if self._saving() > self.saved:
            self.saved, self.end = self._saving(), number + 1
        return True

    def _count(self, home: int, cost: int, *, chunked: bool) -> None:
        """Add what a kernel of a chain takes."""
        self._costs[home] += cost
        self._total += cost
        self._alone += cost // 2 + SHARING if chunked else cost
        if not chunked or len(self._chains[home]) > 1:
            self._longest = max(self._longest, self._costs[home])

    def _saving(self) -> int:
        """What a wave of all kernels saves with two threads, of which one is left with the last of an odd number."""
        left = self._longest if len(self._chains) % 2 else 0
        return self._alone - max((self._total + left) // 2, self._longest) - SHARING

    def wave(self) -> Wave:
        """The best one."""
        chains = [[number for number in chain if number < self.end] for chain in self._chains]
        return [chain for chain in chains if chain]
