"""Elements written one by one in Python loops, beside NumPy and PyTorch: `python -m benchmarks.writes`.

The tries of all alternate, so that a change of clock speed meets both. Everything counts: the loop, planning, the run,
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


def affine(t: Any, x: Any, n: int) -> None:
    """Plain numbers at two indices, which follow from those."""
    t = t.reshape((n // 100, 100))
    for i in range(n // 100):
        for j in range(100):
            t[i, j] = j


def product(t: Any, x: Any, n: int) -> None:
    """Plain numbers at two indices, which become a table."""
    t = t.reshape((n // 100, 100))
    for i in range(n // 100):
        for j in range(100):
            t[i, j] = i * j


def columns(t: Any, x: Any, n: int) -> None:
    """Plain numbers at two indices, column by column."""
    t = t.reshape((n // 100, 100))
    for j in range(100):
        for i in range(n // 100):
            t[i, j] = j


def boxes(t: Any, x: Any, n: int) -> None:
    """Plain numbers at three indices."""
    t = t.reshape((n // 100, 10, 10))
    for i in range(n // 100):
        for j in range(10):
            for k in range(10):
                t[i, j, k] = k


def rows(t: Any, x: Any, n: int) -> None:
    """Plain numbers through a view of each row."""
    t = t.reshape((n // 100, 100))
    for i in range(n // 100):
        row = t[i]
        for j in range(100):
            row[j] = j


def chains(t: Any, x: Any, n: int) -> None:
    """Plain numbers through a view for each."""
    t = t.reshape((n // 100, 100))
    for i in range(n // 100):
        for j in range(100):
            t[i][j] = j


def halves(t: Any, x: Any, n: int) -> None:
    """Plain numbers through two views of one storage in turn."""
    low, high = t[: n // 2], t[n // 2 :]
    for i in range(n // 2):
        low[i] = i
        high[i] = 1.5


def sums(t: Any, x: Any, n: int) -> None:
    """Numbers added in place at two indices."""
    t = t.reshape((n // 100, 100))
    for i in range(n // 100):
        for j in range(100):
            t[i, j] += 1.5


LINES = [
    Line("t[i] = i", 100_000, numbers),
    Line("low[i] = i; high[i] = 1.5", 100_000, halves),
    Line("t[i, j] = j", 100_000, affine),
    Line("t[i, j] = j, by columns", 100_000, columns),
    Line("t[i, j] = i * j", 100_000, product),
    Line("t[i, j, k] = k", 100_000, boxes),
    Line("row = t[i]; row[j] = j", 100_000, rows),
    Line("t[i][j] = j", 10_000, chains),
    Line("t[i, j] += 1.5", 10_000, sums),
    Line("t[i] = x[i] * 2 + i", 10_000, expressions),
    Line("t[i] = t[i-1] * 0.5 + x[i]", 10_000, recurrence),
]


def main() -> None:
    """Print a table of microseconds a write: least, and median."""
    titles = ("first", "least", "median", "loop", "flush", "read", "numpy", "torch", "median", "ratio")
    print(f"{'microseconds a write':<28}" + "".join(f"{title:>8}" for title in titles))
    for line in LINES:
        source = np.random.default_rng(0).standard_normal(line.count, dtype=np.float32)
        x, peer = Tensor(source).realize(), torch_array(source) if TORCH else None
        first = own_phases(line, x)
        own: list[tuple[float, float, float]] = []
        eager: list[float] = []
        others: list[float] = []
        for _ in range(TRIES):
            own.append(own_phases(line, x))
            eager.append(seconds(line, np.zeros(line.count, np.float32), source))
            if TORCH:
                others.append(seconds(line, torch_array(np.zeros(line.count, np.float32)), peer))
        totals = [sum(phases) for phases in own]
        cells = [sum(first), min(totals), statistics.median(totals), *(min(phase) for phase in zip(*own, strict=True))]
        cells.append(min(eager))
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


def seconds(line: Line, t: Any, x: object) -> float:
    """Seconds of another library's, in all."""
    started = time.perf_counter()
    line.loop(t, x, line.count)
    t.tolist()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
