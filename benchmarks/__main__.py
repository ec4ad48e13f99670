"""The same work by Intaglio, NumPy and, where it is installed, PyTorch: `make bench`."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from intaglio import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

WRITES = 10_000
TORCH = importlib.util.find_spec("torch") is not None


@dataclass(frozen=True)
class Line:
    """One kind of work: how often a call does it, and a call for each package."""

    name: str
    count: int
    intaglio: Callable[[], object]
    numpy: Callable[[], object]
    torch: Callable[[], object]


def main() -> None:
    """Print a table of the best of several times, in microseconds."""
    print(f"{'microseconds':<28}{'intaglio':>12}{'numpy':>12}{'torch':>12}")
    for line in lines():
        cells = [best(line.intaglio), best(line.numpy), best(line.torch) if TORCH else None]
        shown = ["-" if cell is None else f"{cell / line.count * 1e6:.2f}" for cell in cells]
        print(f"{line.name:<28}" + "".join(f"{cell:>12}" for cell in shown))


def lines() -> list[Line]:
    """The work, on the same numbers for each package."""
    return [
        Line("t[i] = i, each", WRITES, writes(Tensor.empty), writes(np.empty), writes(torch_empty)),
        elementwise(1 << 20),
        reduction(1 << 20),
        product(512),
        product(1024),
    ]


def writes(empty: Callable[[int], object]) -> Callable[[], object]:
    """Fill a fresh array one number at a time, then read it."""

    def run() -> object:
        array = empty(WRITES)
        for i in range(WRITES):
            array[i] = i  # type: ignore[index]
        return array.tolist()[-1]  # type: ignore[attr-defined]

    return run


def elementwise(size: int) -> Line:
    """x * 2 + y."""
    x, y, tx, ty, px, py = operands((size,))
    return Line(f"x * 2 + y, {size}", 1, lambda: (tx * 2 + ty).realize(), lambda: x * 2 + y, lambda: px * 2 + py)  # type: ignore[operator]


def reduction(size: int) -> Line:
    """The sum of a vector."""
    x, _, tx, _, px, _ = operands((size,))
    return Line(f"x.sum(), {size}", 1, lambda: tx.sum().realize(), x.sum, lambda: px.sum())  # type: ignore[attr-defined]


def product(size: int) -> Line:
    """The product of two square matrices."""
    x, y, tx, ty, px, py = operands((size, size))
    return Line(f"x @ y, {size} x {size}", 1, lambda: (tx @ ty).realize(), lambda: x @ y, lambda: px @ py)  # type: ignore[operator]


def operands(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, Tensor, Tensor, object, object]:
    """Two random arrays, as each package has them."""
    draw = np.random.default_rng(0)
    x, y = (draw.standard_normal(shape, dtype=np.float32) for _ in range(2))
    return x, y, Tensor(x).realize(), Tensor(y).realize(), torch_array(x), torch_array(y)


def torch_empty(size: int) -> object:
    """A fresh PyTorch tensor."""
    import torch

    return torch.empty(size)


def torch_array(array: np.ndarray) -> object:
    """An array as PyTorch has it, or None."""
    if not TORCH:
        return None
    import torch

    return torch.from_numpy(array)


def best(run: Callable[[], object], tries: int = 7) -> float:
    """Seconds of the fastest try, after one that warms up."""
    run()
    times: list[float] = []
    for _ in range(tries):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)


if __name__ == "__main__":
    main()
