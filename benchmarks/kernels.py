"""Kernels alone, without scheduling and launch, beside NumPy: `python -m benchmarks.kernels [word]`.

The tries of both alternate, so that a change of clock speed meets both. For one thread
each, set INTAGLIO_THREADS=1 and OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from intaglio import Tensor
from intaglio.engine import devices
from intaglio.runtime.launch import Table

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence

TRIES = 15


@dataclass(frozen=True)
class Line:
    """One kernel's work: the shapes of its inputs, and the expression in each package."""

    name: str
    shapes: Sequence[tuple[int, ...]]
    intaglio: Callable[..., Tensor]
    numpy: Callable[..., object]


class Stopwatch(Table):
    """A table of launches that adds up the time of its native calls."""

    seconds: float = 0.0

    def run(self, slots: array[int], threads: int, first: int, last: int) -> None:
        """Run kernels, timed."""
        started = time.perf_counter()
        super().run(slots, threads, first, last)
        Stopwatch.seconds += time.perf_counter() - started


def softmax(x: Tensor) -> Tensor:
    """The softmax of each row."""
    powers = (x - x.max(axis=-1, keepdims=True)).exp()
    return powers / powers.sum(axis=-1, keepdims=True)


def numpy_softmax(x: np.ndarray) -> np.ndarray:
    """The softmax of each row."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


SQUARE = (1024, 1024)
LINES = [
    Line("sum of all", [SQUARE], lambda x: x.sum(), lambda x: x.sum()),
    Line("sum of rows", [SQUARE], lambda x: x.sum(axis=1), lambda x: x.sum(axis=1)),
    Line("sum of columns", [SQUARE], lambda x: x.sum(axis=0), lambda x: x.sum(axis=0)),
    Line("x.T + y", [SQUARE, SQUARE], lambda x, y: x.T + y, lambda x, y: x.T + y),
    Line("exp", [SQUARE], lambda x: x.exp(), np.exp),
    Line("softmax", [SQUARE], softmax, numpy_softmax),
    Line("running sum of rows", [SQUARE], lambda x: x.cumsum(axis=1), lambda x: x.cumsum(axis=1)),
    *(
        Line(f"x @ y, {n}", [(n, n), (n, n)], lambda x, y: x @ y, lambda x, y: x @ y)
        for n in (64, 128, 256, 512, 1000, 1024)
    ),
    Line("x @ y, 64 of 128", [(64, 128, 128), (64, 128, 128)], lambda x, y: x @ y, lambda x, y: x @ y),
    Line(
        "x @ y + z, 128x768x3072",
        [(128, 768), (768, 3072), (3072,)],
        lambda x, y, z: x @ y + z,
        lambda x, y, z: x @ y + z,
    ),
    Line("x @ y, 8x1024x4096", [(8, 1024), (1024, 4096)], lambda x, y: x @ y, lambda x, y: x @ y),
    Line("x @ y, 1x4096x4096", [(1, 4096), (4096, 4096)], lambda x, y: x @ y, lambda x, y: x @ y),
    Line("x @ y.T, 128x768x768", [(128, 768), (768, 768)], lambda x, y: x @ y.T, lambda x, y: x @ y.T),
    Line("x @ y, 1024x1024x1", [SQUARE, (1024,)], lambda x, y: x @ y, lambda x, y: x @ y),
]


def main() -> None:
    """Print a table of the best times in microseconds."""
    devices.Table = Stopwatch
    draw = np.random.default_rng(0)
    print(f"{'microseconds':<24}{'intaglio':>12}{'numpy':>12}{'ratio':>8}")
    for line in LINES:
        if len(sys.argv) > 1 and sys.argv[1] not in line.name:
            continue
        arrays = [draw.standard_normal(shape, dtype=np.float32) for shape in line.shapes]
        own, peer = measure(line, arrays, [Tensor(a).realize() for a in arrays])
        print(f"{line.name:<24}{own * 1e6:>12.1f}{peer * 1e6:>12.1f}{own / peer:>8.2f}")


def measure(line: Line, arrays: list[np.ndarray], tensors: list[Tensor]) -> tuple[float, float]:
    """Seconds of the fastest try: (of our kernels, of NumPy's call)."""
    own = peer = float("inf")
    for _ in range(TRIES):
        Stopwatch.seconds = 0.0
        line.intaglio(*tensors).realize()
        own = min(own, Stopwatch.seconds)
        started = time.perf_counter()
        line.numpy(*arrays)
        peer = min(peer, time.perf_counter() - started)
    return own, peer


if __name__ == "__main__":
    main()
