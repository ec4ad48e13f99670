"""The first write that touches a view is the one that looking at all of them finds."""

from __future__ import annotations

import random

from intaglio.core.dtypes import dtypes
from intaglio.ir.view import View
from intaglio.schedule.writers import NEVER, TRIES, Writers


def some_view(rng: random.Random, nbytes: int) -> View:
    """A view of words within a buffer."""
    step = rng.choice((4, 4, 8, -4, 12))
    most = (nbytes - 4) // abs(step)
    count = rng.randint(0, min(most, 6))
    reach = abs(step) * max(count - 1, 0)
    start = rng.randrange(0, nbytes - reach - 3, 4)
    return View(dtypes.int32, (count,), (step,), start + (reach if step < 0 else 0))


def test_the_first_write_is_found() -> None:
    rng = random.Random(5)
    for _ in range(200):
        nbytes = rng.choice((32, 256, 4096))
        known = [
            (number, None if rng.random() < 0.02 else some_view(rng, nbytes))
            for number in sorted(rng.randrange(60) for _ in range(rng.randint(1, 40)))
        ]
        writers = Writers()
        for number, view in known:
            writers.add(number, view)
        for _ in range(20):
            position, view = rng.randrange(62), some_view(rng, nbytes)
            later = [(number, target) for number, target in known if number >= position and view.size]
            exact = next((number for number, target in later if target is None or target.overlaps(view)), NEVER)
            found = writers.first(position, view)
            if found != exact:  # it gave up among writes that lie between the bytes of the view
                low, high = view.byte_bounds()
                between = [t for number, t in later if t is not None and number < min(exact, found + 1)]
                met = [a < high and low < b for a, b in (t.byte_bounds() for t in between)]
                assert found < exact
                assert sum(met) >= TRIES


def test_a_write_between_the_bytes_of_a_view_does_not_touch_it() -> None:
    even, odd = (View(dtypes.int32, (8,), (8,), start) for start in (0, 4))
    writers = Writers()
    for number in range(TRIES):
        writers.add(number, odd)
    writers.add(TRIES, even)
    assert writers.first(1, even) == TRIES
    assert writers.first(1, odd) == 1
