"""What Intaglio costs beside the kernels' work: `python -m benchmarks.overheads [WORD]`.

Each figure is the median of many tries, after one that warms up. Graphs are built beside PyTorch's eager calls on the
same small tensors, in turns; ours are not computed but let go, and PyTorch's calls compute.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import statistics
import sys
import time
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.peers import OWN, PEERS
from benchmarks.report import shown
from intaglio import Tensor
from intaglio.engine import realize
from intaglio.engine.devices import _compiler, threads_now
from intaglio.runtime.launch import Row, Table
from intaglio.runtime.pool import pool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    Times = dict[str, list[float]]  # seconds of each try, by peer
    Measure = Callable[[int, Collection[str]], Times]  # of a number of tries, and the peers that are there

PEER: Final = "torch"
CALLS: Final = 100  # in a try, of what takes a microsecond
KERNELS: Final = 1000  # of a table
MANY: Final = 16  # pieces of a kernel that threads share
CLOCK: Final = time.get_clock_info("perf_counter").resolution

EMPTY: Final = """
define void @empty(ptr %slots, i64 %begin, i64 %end, ptr %scratch) {
  ret void
}
"""
# Each chunk waits until those of all threads have begun, but not for ever: fewer threads than that may be to be had.
MEETING: Final = """
define void @meeting(ptr %slots, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %threads.at = getelementptr i64, ptr %slots, i64 1
  %threads = load i64, ptr %threads.at
  %before = atomicrmw add ptr %slots, i64 1 seq_cst
  %mine = urem i64 %before, %threads
  %first = sub i64 %before, %mine
  %all = add i64 %first, %threads
  br label %look
look:
  %turn = phi i64 [0, %entry], [%next, %look]
  %begun = load atomic i64, ptr %slots seq_cst, align 8
  %alone = icmp slt i64 %begun, %all
  %next = add i64 %turn, 1
  %early = icmp slt i64 %next, 100000000
  %waits = and i1 %alone, %early
  br i1 %waits, label %look, label %done
done:
  ret void
}
"""
# Each chunk takes about a microsecond: products, each of which waits for the one before.
PIECES: Final = """
define void @pieces(ptr %slots, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %chunks = sub i64 %end, %begin
  %turns = mul i64 %chunks, 1000
  br label %work
work:
  %turn = phi i64 [0, %entry], [%next, %work]
  %x = phi i64 [%begin, %entry], [%y, %work]
  %product = mul i64 %x, 6364136223846793005
  %y = add i64 %product, 1442695040888963407
  %next = add i64 %turn, 1
  %more = icmp slt i64 %next, %turns
  br i1 %more, label %work, label %done
done:
  store volatile i64 %y, ptr %scratch
  ret void
}
"""


@dataclass(frozen=True)
class Overhead:
    """One line: the seconds that it may take, or None where PyTorch's are aimed at."""

    name: str
    bound: float | None
    measure: Measure

    @property
    def aim(self) -> str:
        """What is aimed at."""
        return f"1.0 x {PEER}" if self.bound is None else f"below {shown(self.bound)}"


def fork_join(source: str, pause: float, tries: int, peers: Collection[str]) -> Times:
    """Seconds of a kernel with a chunk for each thread, posted from Python: again at once, or after a pause."""
    threads, compiler = threads_now(), _compiler()
    if threads < 2:
        return {}
    name = source.split("@")[1].split("(")[0]
    kernel, slots = compiler.load(source, name)[0], (ctypes.c_int64 * 2)(0, threads)
    post = functools.partial(pool.run, compiler, kernel, ctypes.addressof(slots), threads, threads)
    return {OWN: timed(post, tries, 1 if pause else CALLS, pause)}


def shared(pause: float, tries: int, peers: Collection[str]) -> Times:
    """Seconds that a kernel of many pieces takes beyond those of one thread: whoever comes takes some, nobody waits."""
    threads, compiler = threads_now(), _compiler()
    if threads < 2:
        return {}
    pool.provide(8)
    kernel, calls = compiler.load(PIECES, "pieces")[0], 1 if pause else CALLS
    own, both = (
        timed(functools.partial(pool.run, compiler, kernel, 0, MANY, count), tries, calls, pause)
        for count in (1, threads)
    )
    alone = statistics.median(own)
    return {OWN: [max(t - alone, CLOCK) for t in both]}


def launch(tries: int, peers: Collection[str]) -> Times:
    """Seconds of x + y of 16 numbers, launched as a flush does it: arguments are picked, and counts kept."""
    run, given, _kept = recorded()
    return {OWN: timed(functools.partial(run, *given), tries, CALLS)}


def replayed(tries: int, peers: Collection[str], *, empty: bool) -> Times:
    """Seconds of each of many kernels in one native call."""
    call, _kept = replay(empty=empty)
    return {OWN: [t / KERNELS for t in timed(call, tries, 1)]}


def building(program: Callable[[Any], Callable[..., object]], tries: int, peers: Collection[str]) -> Times:
    """Seconds of an operation's graph, or of PyTorch's call.

    Args:
        program: From a package's functions to one of three tensors.
    """
    draw = np.random.default_rng()
    makers: dict[str, tuple[Any, Callable[[np.ndarray], Any]]] = {OWN: (Tensor, lambda a: Tensor(a).realize())}
    without_gradients: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if PEER in peers:
        import torch

        makers[PEER] = torch.nn.functional, torch.from_numpy
        without_gradients = torch.inference_mode()
    found: Times = {name: [] for name in makers}
    with without_gradients:
        for _ in range(tries):
            arrays = [draw.standard_normal(shape, dtype=np.float32) for shape in ((8, 8), (8, 8), (2, 8))]
            for name, (functions, make) in makers.items():
                found[name] += timed(functools.partial(program(functions), *map(make, arrays)), 1, CALLS)
    return found


def write(x: Any, y: Any, rows: Any) -> None:
    """Some rows, replaced."""
    x[1:3] = rows


def replay(*, empty: bool) -> tuple[Callable[[], None], list[Tensor]]:
    """(a native call of many kernels, which do nothing, or each x + y of 16 numbers; the tensors that must live)."""
    _, (_, steps, words, *_), kept = recorded()
    address = _compiler().load(EMPTY, "empty")[0] if empty else steps[0].launches.executables[0].address
    table, slots = Table(_compiler(), [Row(address, 0, 1, 0)] * KERNELS), array("Q", steps[0].pick(words))
    return functools.partial(table.run, slots, 1, 0, KERNELS), kept


def recorded() -> tuple[Callable[..., None], tuple[Any, ...], list[Tensor]]:
    """(what a flush runs its steps by, what it was given for x + y of 16 numbers, the tensors that must live)."""
    x, y = (Tensor(np.arange(16, dtype=np.float32)).realize() for _ in range(2))
    given: list[tuple[Any, ...]] = []
    run = realize._run

    def watched(*arguments: Any) -> None:
        given.append(arguments)
        run(*arguments)

    realize._run = watched
    try:
        result = (x + y).realize()
    finally:
        realize._run = run
    return run, given[0], [x, y, result]


def timed(call: Callable[[], object], tries: int, calls: int, pause: float = 0) -> list[float]:
    """Seconds of a call in each try, which is of some calls in a row, after a pause."""
    call()
    times: list[float] = []
    for _ in range(tries):
        if pause:
            time.sleep(pause)
        started = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - started) / calls)
    return times


def of(function: Callable[..., Times], *given: object, **named: object) -> Measure:
    """A measure by a function."""
    return functools.partial(function, *given, **named)


PAUSES: Final = [("again", 0.0, 2e-6), *((f"after {n} ms", n * 1e-3, 60e-6) for n in (1, 10, 100))]
FORKS: Final = [
    Overhead(f"fork and join, {kernel}, {when}", bound, of(fork_join, source, pause))
    for kernel, source in (("of nothing", EMPTY), ("all threads meet", MEETING))
    for when, pause, bound in PAUSES
]
SHARED: Final = [
    Overhead(f"{MANY} pieces, beyond the time of one thread, {when}", bound, of(shared, pause))
    for when, pause, bound in PAUSES
]
LAUNCHES: Final = [
    Overhead("a launch from Python", 5e-6, launch),
    Overhead("a kernel replayed in a native call, of nothing", 1e-7, of(replayed, empty=True)),
    Overhead("a kernel replayed in a native call, 16 additions included", 1e-7, of(replayed, empty=False)),
]
BUILT: Final[dict[str, Callable[[Any], Callable[..., object]]]] = {
    "x + y": lambda _: lambda x, y, rows: x + y,
    "x * 2": lambda _: lambda x, y, rows: x * 2,
    "x @ y": lambda _: lambda x, y, rows: x @ y,
    "x.reshape(4, 16)": lambda _: lambda x, y, rows: x.reshape(4, 16),
    "x[1:3]": lambda _: lambda x, y, rows: x[1:3],
    "x.softmax(-1)": lambda _: lambda x, y, rows: x.softmax(-1),
    "layer_norm(x, (8,))": lambda functions: lambda x, y, rows: functions.layer_norm(x, (8,)),
    "attention": lambda functions: lambda x, y, rows: functions.scaled_dot_product_attention(x, y, y),
    "x[1:3] = rows": lambda _: write,
}
OVERHEADS: Final = [
    *FORKS,
    *SHARED,
    *LAUNCHES,
    *(Overhead(f"building {name}", None, of(building, program)) for name, program in BUILT.items()),
]


def main() -> None:
    """Print a table of the medians."""
    missing = PEERS[PEER].missing()
    if missing:
        print(f"{PEER}: {missing}.")
    print(f"{'overhead':<60}{'aim':>12}{OWN:>12}{PEER:>12}")
    for line in OVERHEADS:
        if len(sys.argv) > 1 and sys.argv[1] not in line.name:
            continue
        times = line.measure(30, [] if missing else [PEER])
        cells = [shown(statistics.median(times[name]) if name in times else None) for name in (OWN, PEER)]
        print(f"{line.name:<60}{line.aim:>12}" + "".join(f"{cell:>12}" for cell in cells))


if __name__ == "__main__":
    main()
