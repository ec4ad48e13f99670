"""Better code than the cost model's, found by trying (BEAM): once for each kernel, kept on disk.

Candidates are compiled and run in a process of their own. One that crashes, hangs or gives other bits than the model's
code is dropped; nothing of a search is seen in results.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from intaglio.core.config import config
from intaglio.core.trace import GlobalCounters
from intaglio.engine import debug
from intaglio.engine.devices import Cpu, device_of, disk_cache, threads_now
from intaglio.lower.choice import MODEL, Choice, choice_of
from intaglio.lower.search import search
from intaglio.ops.loop import Store
from intaglio.ops.memory import BufferRef, Load, Param
from intaglio.ops.scratch import scratch_of
from intaglio.runtime.apart import Apart, LostError
from intaglio.runtime.compiler import cache_key
from intaglio.runtime.trial import Code, Job, Memory
from intaglio.schedule.program import Hole

if TYPE_CHECKING:
    from intaglio.engine.devices import Executable
    from intaglio.ir.node import Node
    from intaglio.lower.kernel import Lowered
    from intaglio.runtime.disk_cache import DiskCache
    from intaglio.schedule.kernels import PlannedKernel

KIND: Final = "tuned"  # of keys in the disk cache
CHOSEN: Final = 8192  # kernels whose choices are remembered
LARGEST: Final = 1 << 29  # bytes of a kernel's buffers up to which it is tried: the trials hold them three times
SHORT: Final = 2e-6  # seconds of a kernel in which there is nothing to win
LIMIT: Final = 10.0  # seconds that one candidate may take to compile and run
Key: TypeAlias = "tuple[Node, int, int]"  # a kernel, the width of its search, the threads


@dataclass(frozen=True, slots=True)
class Winner:
    """What a search found.

    Attributes:
        kernel: The name of the kernel.
        choice: How its code differs from the model's.
        digest: Of its source: a choice means what it meant when it was checked only if it gives that.
        ratio: Its time, in parts of the model's.
        beam: The width of the search.
        threads: How many shared the kernel.
    """

    kernel: str
    choice: Choice
    digest: str
    ratio: float
    beam: int
    threads: int

    def to_bytes(self) -> bytes:
        """As it is kept."""
        return json.dumps(asdict(self)).encode()


def winner_from(data: bytes) -> Winner | None:
    """A winner that was kept, if it is one."""
    try:
        fields: dict[str, Any] = json.loads(data)
        answers: list[tuple[int, str, Any]] = fields.pop("choice")["answers"]
        choice = Choice(
            tuple((n, name, value if isinstance(value, int) else tuple(value)) for n, name, value in answers)
        )
        return Winner(choice=choice, **fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


class Trials:
    """Candidates for one kernel, tried beside the model's code in another process."""

    def __init__(self, process: Apart, job: Job, model: Code) -> None:
        self._process: Final = process
        self._model: Final = job, model
        self._ready: bool = False

    def begin(self, limit: float) -> float | None:
        """The seconds of the model's code; None if it cannot be tried."""
        seconds = self._asked(self._model, limit)
        self._ready = seconds is not None
        return seconds

    def ratio(self, code: Code, limit: float) -> float | None:
        """The time of a candidate, in parts of the model's; None if it failed, or gave another result."""
        if not self._ready and self.begin(limit) is None:
            return None
        GlobalCounters.trial_count += 1
        return self._asked(code, limit)

    def end(self) -> None:
        """Let go of the bytes."""
        if self._ready:
            self._asked(None, LIMIT)

    def _asked(self, request: object, limit: float) -> float | None:
        """The number that answers a request, if there is one."""
        ready, self._ready = self._ready, False  # a process that is lost, by Ctrl-C as well, knows no job any more
        try:
            found = self._process.ask(request, limit)
        except LostError:
            return None
        self._ready = ready
        return found if isinstance(found, float) else None


_process: Final = Apart()
_chosen: Final[OrderedDict[Key, Choice]] = OrderedDict()  # used under the engine's lock


def tuned(kernel: PlannedKernel) -> Executable:
    """A planned kernel compiled: the best code that is known, or else is found now.

    Kernels for any size, and those of other devices, are the model's.
    """
    device = device_of(kernel.device)
    if not isinstance(device, Cpu) or kernel.size_slot is not None:
        return device.load(kernel.ast, kernel.size_slot)
    key = kernel.ast, config.beam, threads_now()
    choice = _chosen.get(key)
    if choice is None:
        choice = _chosen[key] = _kept_or_found(kernel, device)
        if len(_chosen) > CHOSEN:
            _chosen.popitem(last=False)
    return device.load(kernel.ast, choice=choice)


def _kept_or_found(kernel: PlannedKernel, device: Cpu) -> Choice:
    """The best choice for a kernel: of the disk cache, or searched for and kept there."""
    model = device.lower(kernel.ast)
    if all(len(d.options) < 2 for d in model.decisions):
        return MODEL
    source = device.source(model)
    disk = disk_cache()
    asked = f"{config.beam} {threads_now()}\n{source}"
    key = f"{KIND}:{cache_key(asked)}"
    kept = None if disk is None else _kept(disk, key, kernel, device)
    if kept is not None:
        return kept
    winner = _found(kernel, device, model, source)
    if winner is None:
        return MODEL
    if disk is not None:
        disk.put(key, winner.to_bytes())
    return winner.choice


def _kept(disk: DiskCache, key: str, kernel: PlannedKernel, device: Cpu) -> Choice | None:
    """The choice that is kept for a kernel, if it still gives the code that was checked."""
    data = disk.get(key)
    winner = None if data is None else winner_from(data)
    if winner is None:
        return None
    try:
        code = device.lower(kernel.ast, choice=winner.choice)
    except Exception:  # of another version of this package, say
        return None
    return winner.choice if _digest(device.source(code)) == winner.digest else None


def _found(kernel: PlannedKernel, device: Cpu, model: Lowered, source: str) -> Winner | None:
    """Search; None if the model's code itself cannot be tried."""
    job = job_of(kernel, model)
    if sum(m.nbytes for m in job.memory) > LARGEST:
        return None
    until = time.monotonic() + config.beam_seconds
    trials = Trials(_process, job, Code(source, model.name, model.chunks, scratch_of(model.linear)[1]))
    seconds = trials.begin(LIMIT)
    if seconds is None:
        return None
    tried = GlobalCounters.trial_count
    GlobalCounters.search_count += 1

    def lowered(choice: Choice) -> Lowered | None:
        try:
            return device.lower(kernel.ast, choice=choice)
        except Exception:  # a choice that cannot be lowered harms nothing
            return None

    def measure(code: Lowered) -> float | None:
        left = max(1.0, min(LIMIT, until - time.monotonic()))
        return trials.ratio(Code(device.source(code), code.name, code.chunks, scratch_of(code.linear)[1]), left)

    try:
        best, ratio = (
            (model, 1.0)
            if seconds < SHORT
            else search(model, lowered, measure, width=config.beam, over=lambda: time.monotonic() > until)
        )
    finally:
        trials.end()
    choice = choice_of(best.decisions)
    debug.searched(model.name, seconds, ratio, str(choice), GlobalCounters.trial_count - tried)
    return Winner(model.name, choice, _digest(device.source(best)), ratio, config.beam, threads_now())


def job_of(kernel: PlannedKernel, lowered: Lowered) -> Job:
    """What a kernel is tried on: buffers of its own sizes, and its own numbers."""
    refs = kernel.buffers
    held: dict[int, set[str]] = {}
    read: set[int] = set()
    written: set[int] = set()
    for node in lowered.linear.src:
        for pointer in (s.op for s in node.src if isinstance(s.op, Param)):
            of = kernel.slots[pointer.slot][0]
            assert isinstance(of, BufferRef)
            number = refs.index(of)
            held.setdefault(number, set()).add(pointer.of.name)
            if isinstance(node.op, Store):
                written.add(number)
            elif isinstance(node.op, Load):
                read.add(number)
    memory = [
        Memory(ref.nbytes, min(held.get(n, {"uint8"}), key=lambda name: (name != "bool", name)), n in written)
        for n, ref in enumerate(refs)
    ]
    slots: list[tuple[int, int]] = []
    for of, rest in kernel.slots:
        assert not isinstance(of, Hole)
        slots.append((refs.index(of), rest) if isinstance(of, BufferRef) else (-1, rest))
    return Job(tuple(memory), tuple(slots), threads_now(), bool(read & written))


def winners() -> list[Winner]:
    """What the disk cache has of searches, that used last first."""
    disk = disk_cache()
    found = [] if disk is None else [winner_from(data) for _, data in disk.records(KIND)]
    return [winner for winner in found if winner is not None]


def forget() -> None:
    """Forget what searches found, here and on disk."""
    _chosen.clear()
    disk = disk_cache()
    if disk is not None:
        disk.clear(KIND)


def _digest(source: str) -> str:
    """What tells one source from another."""
    return hashlib.blake2b(source.encode(), digest_size=16).hexdigest()
