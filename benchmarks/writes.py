"""Elements written one by one in Python loops, beside PyTorch: `python -m benchmarks.writes`.

The tries of both alternate, so that a change of clock speed meets both. Everything counts: the loop, planning, the run,
and reading all values back; the phases of Intaglio's own time stand beside it. The first try, which also compiles (and
loads the compiler), is shown by itself.
"""

from __future__ import annotations

import itertools
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.peers import PEERS
from intaglio import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

TRIES = 11
TORCH = not PEERS["torch"].missing()


@dataclass(frozen=True)
class Line:
    """One loop, over a fresh target and a source of so many elements."""

    name: str
    count: int
    loop: Callable[[Any, Any, int], None]


def numbers(t: Any, x: Any, n: int) -> None:
    """Plain numbers."""
    for i in range(n):
        t[i] = i


def expressions(t: Any, x: Any, n: int) -> None:
    """Scalar expressions of another tensor's elements."""
    for i in range(n):
        t[i] = x[i] * 2 + i


def recurrence(t: Any, x: Any, n: int) -> None:
    """Each element from the one before."""
    for i in range(1, n):
        t[i] = t[i - 1] * 0.5 + x[i]


def table(t: Any, x: Any, n: int) -> None:
    """Plain numbers at two indices."""
    t = t.reshape((n // 100, 100))
    for i in range(n // 100):
        for j in range(100):
            t[i, j] = j


LINES = [
    Line("t[i] = i", 100_000, numbers),
    Line("t[i, j] = j", 10_000, table),
    Line("t[i] = x[i] * 2 + i", 10_000, expressions),
    Line("t[i] = t[i-1] * 0.5 + x[i]", 10_000, recurrence),
]


def main() -> None:
    """Print a table of microseconds a write: least, and median."""
    titles = ("first", "least", "median", "loop", "flush", "read", "torch", "median", "ratio")
    print(f"{'microseconds a write':<28}" + "".join(f"{title:>8}" for title in titles))
    for line in LINES:
        source = np.random.default_rng(0).standard_normal(line.count, dtype=np.float32)
        x, peer = Tensor(source).realize(), torch_array(source) if TORCH else None
        first = own_phases(line, x)
        own: list[tuple[float, float, float]] = []
        others: list[float] = []
        for _ in range(TRIES):
            own.append(own_phases(line, x))
            if TORCH:
                others.append(torch_seconds(line, peer))
        totals = [sum(phases) for phases in own]
        cells = [sum(first), min(totals), statistics.median(totals), *(min(phase) for phase in zip(*own, strict=True))]
        if others:
            cells += [min(others), statistics.median(others)]
        shown = "".join(f"{cell / line.count * 1e6:>8.3f}" for cell in cells)
        print(f"{line.name:<28}{shown}" + (f"{min(others) / min(totals):>8.2f}" if others else ""))


def torch_array(array: np.ndarray) -> object:
    """An array as PyTorch has it."""
    import torch

    return torch.from_numpy(array)


def own_phases(line: Line, x: Tensor) -> tuple[float, float, float]:
    """Seconds of Intaglio's: of the loop, of the flush, of reading all values."""
    t = Tensor.zeros(line.count)
    moments = [time.perf_counter()]
    line.loop(t, x, line.count)
    moments.append(time.perf_counter())
    t.realize()
    moments.append(time.perf_counter())
    t.tolist()
    moments.append(time.perf_counter())
    loop, flush, read = (b - a for a, b in itertools.pairwise(moments))
    return loop, flush, read


def torch_seconds(line: Line, x: object) -> float:
    """Seconds of PyTorch's, in all."""
    import torch

    t = torch.zeros(line.count)
    started = time.perf_counter()
    line.loop(t, x, line.count)
    t.tolist()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
