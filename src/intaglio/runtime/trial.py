"""Trials of kernels on random bytes: is the result the expected one, to the bit, and how long does it take.

They run in a process of their own (`runtime/apart.py`), which `serve` is the program of.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from intaglio.core.dtypes import DType, dtypes
from intaglio.runtime.apart import receive, send
from intaglio.runtime.compiler import Compiler
from intaglio.runtime.pool import pool
from intaglio.runtime.taking import SIGNATURE

if TYPE_CHECKING:
    import numpy as np

    Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"

GUARD: Final = 4096  # bytes before and after a buffer that no kernel may touch
ALIGNED: Final = 64
FILL: Final = 0xA5  # what they hold
DRAWN: Final = (1 << 18) + 37  # elements that are drawn at random; large buffers repeat them
SAMPLE: Final = 5e-4  # seconds of one measurement at least
BUDGET: Final = 0.2  # seconds of all measurements of one kernel, if they are more than a few
FEW: Final = 3  # measurements after which a kernel that is much slower is given up
ENOUGH: Final = 25
SLOWER: Final = 1.25  # that much


@dataclass(frozen=True, slots=True)
class Memory:
    """One buffer of a kernel: its size, the dtype of what it holds, whether the kernel writes it."""

    nbytes: int
    dtype: str
    written: bool


@dataclass(frozen=True, slots=True)
class Job:
    """What a kernel is run on.

    Attributes:
        memory: Its buffers.
        slots: Its arguments: (number of a buffer, byte) or (-1, the bits of a number).
        threads: How many threads share its chunks.
        renewed: Whether it reads what it writes, so that buffers are as they were before each run.
    """

    memory: tuple[Memory, ...]
    slots: tuple[tuple[int, int], ...]
    threads: int
    renewed: bool


@dataclass(frozen=True, slots=True)
class Code:
    """A kernel as source text, with the name of its function, in how many chunks it runs, and its bytes of scratch."""

    source: str
    symbol: str
    chunks: int
    scratch: int = 0


class Bench:
    """One job with the kernel that all others are compared with."""

    def __init__(self, job: Job, model: Code) -> None:
        """Compile the model and keep what it writes."""
        self.job: Final = job
        self._compiler: Final = Compiler(lambda: None)
        self._first: Final = [_contents(m, seed) for seed, m in enumerate(job.memory)]
        self._work: Final = [_aligned(len(c)) for c in self._first]
        starts = [w.ctypes.data + GUARD for w in self._work]
        numbers = [bits if number < 0 else starts[number] + bits for number, bits in job.slots]
        self._slots: Final = array("Q", [n & (1 << 64) - 1 for n in numbers])
        self._model: Final = self._load(model)
        self._restore(all_of_them=True)
        self._run(self._model)
        self._expected: Final = [
            w.copy() if m.written else c for w, c, m in zip(self._work, self._first, job.memory, strict=True)
        ]
        started = time.perf_counter()
        self._sample(self._model, 1)
        self.seconds: Final = max(time.perf_counter() - started, 1e-7)
        self._repeats: Final = 1 if job.renewed else max(1, min(1000, int(SAMPLE / self.seconds)))

    def ratio(self, code: Code) -> float | None:
        """How long a kernel takes, in parts of what the model takes meanwhile; None if its result is another."""
        kernel = self._load(code)
        self._restore()
        self._run(kernel)
        for memory, got, expected in zip(self.job.memory, self._work, self._expected, strict=True):
            if not _same(got, expected, dtypes.of(memory.dtype)):
                self._restore(all_of_them=True)
                return None
        began = time.perf_counter()
        own = models = float("inf")
        for turn in range(ENOUGH):
            models = min(models, self._sample(self._model, self._repeats))
            own = min(own, self._sample(kernel, self._repeats))
            if turn + 1 >= FEW and (own > SLOWER * models or time.perf_counter() - began > BUDGET):
                break
        return own / models

    def _load(self, code: Code) -> tuple[int, int]:
        """The address of a kernel, and its chunks."""
        pool.provide(code.scratch)
        address, _ = self._compiler.load(code.source, code.symbol)
        return address, code.chunks

    def _restore(self, *, all_of_them: bool = False) -> None:
        """Have the bytes that kernels write as they were at first."""
        for memory, work, first in zip(self.job.memory, self._work, self._first, strict=True):
            if memory.written or all_of_them:
                work[:] = first

    def _run(self, kernel: tuple[int, int]) -> None:
        """Run a kernel once."""
        address, chunks = kernel
        at = self._slots.buffer_info()[0]
        if chunks > 1 and self.job.threads > 1:
            pool.run(self._compiler, address, at, chunks, self.job.threads)
        else:
            SIGNATURE(address)(at, 0, chunks, pool.scratch)

    def _sample(self, kernel: tuple[int, int], repeats: int) -> float:
        """The seconds of one run."""
        if self.job.renewed:
            self._restore()
        started = time.perf_counter()
        for _ in range(repeats):
            self._run(kernel)
        return (time.perf_counter() - started) / repeats


def _aligned(size: int) -> Bytes:
    """Bytes whose part after the guard is aligned."""
    import numpy as np

    raw = np.empty(size + ALIGNED, np.uint8)
    start = -(raw.ctypes.data + GUARD) % ALIGNED
    return raw[start : start + size]


def _contents(memory: Memory, seed: int) -> Bytes:
    """Random numbers of a dtype between guards: positive ones, no large integers, so that few functions give NaN."""
    import numpy as np

    dtype = dtypes.of(memory.dtype)
    draw = np.random.default_rng(seed)
    if dtype.is_float:
        numbers = draw.uniform(0.25, 1.75, DRAWN).astype(np.float32).astype(dtype.numpy)
    else:
        numbers = draw.integers(0, 2 if dtype is dtypes.bool else 100, DRAWN).astype(dtype.numpy)
    found = np.full(memory.nbytes + 2 * GUARD, FILL, np.uint8)
    found[GUARD : GUARD + memory.nbytes] = np.resize(numbers.view(np.uint8), memory.nbytes)
    return found


def _same(got: Bytes, expected: Bytes, dtype: DType) -> bool:
    """Whether bytes are equal, any NaN being as good as another."""
    import numpy as np

    if np.array_equal(got, expected):
        return True
    if not dtype.is_float:
        return False
    differ = np.flatnonzero(got != expected)
    if differ[0] < GUARD or differ[-1] >= len(got) - GUARD:
        return False
    item = dtype.itemsize
    places = np.unique((differ - GUARD) // item)
    if (places[-1] + 1) * item > len(got) - 2 * GUARD:
        return False
    pairs = [x[GUARD : GUARD + (int(places[-1]) + 1) * item].view(dtype.numpy)[places] for x in (got, expected)]
    return all(bool(np.isnan(x).all()) for x in pairs)


def serve() -> None:
    """Answer requests: (job, model) gives the model's seconds, a kernel its ratio, None ends a job.

    A request comes with the seconds that it may take: past them, a signal ends the process, wherever it is.
    """
    answers = os.dup(1)
    os.dup2(2, 1)  # what is printed is no answer
    _leave_no_core()
    bench: Bench | None = None
    while True:
        try:
            request, limit = receive(0)
        except EOFError:
            return
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, limit)
        answer: float | None = None
        try:
            match request:
                case Job() as job, Code() as model:
                    bench = None
                    bench = Bench(job, model)
                    answer = bench.seconds
                case Code() as code if bench is not None:
                    answer = bench.ratio(code)
                case _:
                    bench = None
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        send(answers, answer)


def _leave_no_core() -> None:
    """Write no file when this process ends itself."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):  # not everywhere
        pass
