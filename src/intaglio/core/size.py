"""The nominal size: the number that stands in a kernel for a size known only when the kernel runs.

A kernel whose shapes depend on a varying size n is planned with `NOMINAL` in place of n. Its integers are then
`fixed + times * NOMINAL`, strides also hold its square, and the parts can be read off again, as those of real kernels
are far smaller.
"""

from __future__ import annotations

from typing import Final

NOMINAL: Final = 2**40 + 15  # a prime: no size that does not depend on it divides it
REACH: Final = 1 << 38  # what the fixed part of an integer stays below
TIMES: Final = 1 << 22  # what the multiples of the size and of its square stay below


def split(value: int) -> tuple[int, int, int] | None:
    """(fixed, times, squares) with value = fixed + times * NOMINAL + squares * NOMINAL**2.

    None where there are none in their limits.
    """
    above = (value + NOMINAL // 2) // NOMINAL
    squares = (above + NOMINAL // 2) // NOMINAL
    fixed, times = value - above * NOMINAL, above - squares * NOMINAL
    return (fixed, times, squares) if abs(fixed) < REACH and max(abs(times), abs(squares)) < TIMES else None


def varies(value: int) -> bool:
    """Whether an integer at the nominal size depends on the size."""
    parts = split(value)
    return parts is not None and parts[1:] != (0, 0)


def at(value: int, n: int) -> int:
    """An integer at the nominal size (a polynomial in it, such as a count of operations) at the size n."""
    total, power = 0, 1
    while value:
        above = (value + NOMINAL // 2) // NOMINAL
        total += (value - above * NOMINAL) * power
        value, power = above, power * n
    return total
