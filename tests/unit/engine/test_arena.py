"""Places of values that are needed for a while: none overlap that live at once, and little room is lost."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from intaglio.engine.arena import ALIGNMENT, Life, arranged


def lives_of(rng: random.Random, count: int) -> list[Life]:
    """Values of all sizes, that live for one step to many."""
    return [
        Life(first, first + rng.choice([0, 1, 1, 2, 30]), rng.randrange(1, 10_000))
        for first in sorted(rng.randrange(50) for _ in range(count))
    ]


def test_values_that_live_at_once_share_no_byte(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        lives, results = lives_of(rng, rng.randrange(40)), lives_of(rng, rng.randrange(4))
        places, nbytes = arranged(lives, results)
        for k, (life, (host, start)) in enumerate(zip(lives, places, strict=True)):
            assert start % ALIGNMENT == 0
            if host is None:
                assert start + life.nbytes <= nbytes
            else:
                assert start + life.nbytes <= results[host].nbytes
                assert life.last < results[host].first
            for other, (where, place) in zip(lives[:k], places[:k], strict=True):
                apart = life.first > other.last or other.first > life.last
                assert apart or host != where or start + life.nbytes <= place or place + other.nbytes <= start


@pytest.mark.parametrize("sizes", [range(20, 0, -1), range(1, 21), [7] * 20], ids=["falling", "rising", "equal"])
def test_a_chain_takes_little_more_than_what_lives_at_once(sizes: range | list[int]) -> None:
    lives = [Life(k, k + 1, size * ALIGNMENT) for k, size in enumerate(sizes)]
    _, nbytes = arranged(lives, [])
    assert nbytes <= 1.5 * max(a.nbytes + b.nbytes for a, b in pairwise(lives))


def test_a_chain_alternates_with_its_result() -> None:
    places, nbytes = arranged([Life(k, k + 1, 100) for k in range(9)], [Life(9, 9, 128)])
    assert {host for host, _ in places} == {None, 0}
    assert nbytes == 128
