"""The nominal size: the number that stands in a program for a size that is known only when its kernels run.

What is planned and lowered at the nominal size serves all sizes n: its integers are `fixed + times * NOMINAL`, strides
also hold its square, and the parts can be read off again, as the integers of real kernels are far smaller.
"""

from __future__ import annotations

from typing import Final

NOMINAL: Final = (1 << 40) + 15  # a prime: no size that does not depend on it divides it
REACH: Final = 1 << 38  # what the fixed part of an integer stays below
TIMES: Final = 1 << 22  # what the multiples of the size and of its square stay below


class UnsizedError(Exception):
    """What cannot be planned or lowered for all sizes at once: it is done for each."""


def split(value: int) -> tuple[int, int, int] | None:
    """(fixed, times, squares) with value = fixed + times * NOMINAL + squares * NOMINAL**2.

    None where there are none in their limits.
    """
    above = (value + NOMINAL // 2) // NOMINAL
    squares = (above + NOMINAL // 2) // NOMINAL
    fixed, times = value - above * NOMINAL, above - squares * NOMINAL
    return (fixed, times, squares) if abs(fixed) < REACH and max(abs(times), abs(squares)) < TIMES else None


def varies(value: int) -> bool:
    """Whether an integer depends on the size: by its parts, or past 64 bits as a higher power of it."""
    parts = split(value)
    return abs(value) > 1 << 63 if parts is None else parts[1:] != (0, 0)


def at(value: int, n: int) -> int:
    """What an integer at the nominal size (a polynomial in it) is at size n. With n = 0 it is none, and stays.

    Examples:
        >>> at(3 + 2 * NOMINAL, 10), at(-4, 10), at(NOMINAL * NOMINAL + 1, 10)
        (23, -4, 101)
    """
    if not n:
        return value
    total, power = 0, 1
    while value:
        above = (value + NOMINAL // 2) // NOMINAL
        total += (value - above * NOMINAL) * power
        value, power = above, power * n
    return total
