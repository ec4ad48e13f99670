"""Bounded integer sums: whether a sum of multiples, each counted from 0 to a bound, falls into an interval."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

Term = tuple[int, int]  # (step, count): the values step * x for 0 <= x < count, step > 0
BUDGET: Final = 20_000  # nodes of the search, after which the answer is the safe one


def sum_hits(terms: Iterable[Term], low: int, high: int) -> bool:
    """Whether a sum of one value of each term lies in [low, high]; exact up to the budget, then a safe True.

    Terms that together step evenly are joined and the last two are decided by Euclid's algorithm, so that only
    what is left of three or more interlocking terms is searched.
    """
    joined = join_terms(terms)
    reach, divisor = [0], [0]
    for step, count in reversed(joined):
        reach.append(reach[-1] + step * (count - 1))
        divisor.append(gcd(divisor[-1], step))
    reach.reverse()
    divisor.reverse()
    pending = [(0, low, high)]
    budget = BUDGET
    while pending:
        budget -= 1
        if budget < 0:
            return True
        k, low, high = pending.pop()
        if high < 0 or low > reach[k]:
            continue
        if low <= 0 or high >= reach[k]:
            return True
        if high // divisor[k] * divisor[k] < low:
            continue
        if k + 2 >= len(joined):
            if _pair_hits(joined[k], joined[k + 1] if k + 2 == len(joined) else (1, 1), low, high):
                return True
            continue
        step, count = joined[k]
        least = max(0, -((reach[k + 1] - low) // step))
        most = min(count - 1, high // step)
        # A range cut short fills the budget by itself, so that the answer is True.
        pending.extend((k + 1, low - x * step, high - x * step) for x in range(least, min(most, least + BUDGET) + 1))
    return False


def join_terms(terms: Iterable[Term]) -> list[Term]:
    """Terms with the same sums, fewest first found, steps falling: 4*(0..2) + 12*(0..4) -> 4*(0..14)."""
    joined: list[Term] = []
    for step, count in sorted(terms):
        if count <= 1:
            continue
        for k, (small, many) in enumerate(joined):
            if step % small == 0 and step // small <= many:
                joined[k] = (small, many + step // small * (count - 1))
                break
        else:
            joined.append((step, count))
    joined.reverse()
    return joined


def _pair_hits(large: Term, small: Term, low: int, high: int) -> bool:
    """Whether a value of one term plus one of another lies in [low, high], where 0 < low and the largest sum > high."""
    (step, count), (inner, many) = large, small
    least = max(0, -((inner * (many - 1) - low) // step))
    most = min(count - 1, high // step)
    if least > most:
        return False
    width = high - low
    if width >= inner - 1:
        return True  # each x in range leaves an interval that holds a multiple of the inner step, and one in bounds
    # Now a multiple of the inner step in the interval is the only one there, and within bounds by the choice of x.
    past = (high - least * step) % inner
    if past <= width:
        return True
    first = _first_residue(-step % inner, inner, inner - past, inner - past + width)
    return first is not None and first <= most - least


def _first_residue(factor: int, modulus: int, low: int, high: int) -> int | None:
    """The least t >= 0 with low <= factor * t mod modulus <= high, or None; 0 < low <= high < modulus."""
    outer: list[tuple[int, int, int]] = []
    while True:
        if 2 * factor > modulus:
            factor, low, high = modulus - factor, modulus - high, modulus - low
        if factor == 0:
            return None
        t = -(-low // factor)
        if factor * t <= high:
            break
        outer.append((factor, modulus, low))
        factor, modulus, low, high = -modulus % factor, factor, low % factor, high % factor
    for factor, modulus, low in reversed(outer):
        t = -(-(low + modulus * t) // factor)
    return t
