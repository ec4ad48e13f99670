"""The nominal size: the number that stands in a program for a size that is known only when its kernels run.

What is planned and lowered at the nominal size serves all sizes n: its integers are `fixed + times * NOMINAL`, and both
parts can be read off again, as the integers of real kernels are far smaller.
"""

from __future__ import annotations

from typing import Final

NOMINAL: Final = (1 << 40) + 15  # a prime: no size that does not depend on it divides it
REACH: Final = 1 << 38  # what the fixed part of an integer stays below
TIMES: Final = 1 << 22  # what the multiple of the size stays below


class UnsizedError(Exception):
    """What cannot be planned or lowered for all sizes at once: it is done for each."""


def split(value: int) -> tuple[int, int] | None:
    """(fixed, times) with value = fixed + times * NOMINAL, or None where there are none in their limits."""
    times = (value + NOMINAL // 2) // NOMINAL
    fixed = value - times * NOMINAL
    return (fixed, times) if abs(fixed) < REACH and abs(times) < TIMES else None


def varies(value: int) -> bool:
    """Whether an integer depends on the size: it is linear in it, or of a higher degree, and so past 64 bits."""
    found = split(value)
    return abs(value) > 1 << 63 if found is None else found[1] != 0


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
