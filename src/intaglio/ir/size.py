"""The nominal size: a number that stands in integers for a size that is only known when a kernel runs.

What is planned and lowered at the nominal size serves all sizes: each of its integers is `a + b * NOMINAL` with small
`a` and `b` (or a polynomial of higher degree, of what is only counted), and means `a + b * n`.
"""

from __future__ import annotations

from typing import Final

NOMINAL: Final = (1 << 40) + 15  # a prime, far above all that is counted or addressed


class UnsizedError(Exception):
    """What cannot be planned or lowered for all sizes at once."""


def parts(value: int) -> tuple[int, int]:
    """(a, b) of a + b * NOMINAL."""
    b = (value + NOMINAL // 2) // NOMINAL
    return value - b * NOMINAL, b


def varies(value: int) -> bool:
    """Whether an integer depends on the size."""
    return not -NOMINAL < 2 * value < NOMINAL


def at(value: int, n: int) -> int:
    """What an integer at the nominal size is at size n. With n = 0 it is no such integer, and stays.

    Examples:
        >>> at(3 + 2 * NOMINAL, 10), at(-4, 10), at(NOMINAL * NOMINAL + 1, 10)
        (23, -4, 101)
    """
    if not n:
        return value
    total, power = 0, 1
    while value:
        a, value = parts(value)
        total += a * power
        power *= n
    return total
