"""Random loops that write scalar expressions element by element, over several storages, equal NumPy."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intaglio import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

EXTENT = 9


class Loops:
    """One program in the making: tensors, the arrays that they must equal, and scalars kept from earlier turns."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.pairs: list[tuple[Tensor, np.ndarray[Any, Any]]] = []
        for k in range(rng.randint(1, 3)):
            array = np.arange(EXTENT, dtype=rng.choice((np.int64, np.float64))) * (k + 1)
            tensor = Tensor(array) if rng.random() < 0.5 else Tensor(array) * 1
            self.pairs.append((tensor, array))
            if rng.random() < 0.4:
                self.pairs.append((tensor[::-1], array[::-1]))
            if rng.random() < 0.4:
                self.pairs.append((tensor[2:], array[2:]))
        self.kept: list[tuple[Tensor, Any]] = []

    def run(self) -> None:
        """Loops, each with a body drawn once; then everything is compared in another order."""
        for _ in range(self.rng.randint(1, 3)):
            body = [self.statement() for _ in range(self.rng.choice((1, 1, 2, 3)))]
            for i in range(1, EXTENT - 1):
                for statement in body:
                    statement(i)
        everything = self.pairs + self.kept
        self.rng.shuffle(everything)
        for tensor, value in everything:
            assert np.array_equal(tensor.numpy(), value)

    def position(self) -> Callable[[int, int], int]:
        """A way to choose a position in turn i, for an axis of some extent."""
        rng, shift = self.rng, self.rng.randint(-1, 1)
        if rng.random() < 0.1:
            return lambda i, n: rng.randrange(-n, n)
        if rng.random() < 0.1:
            return lambda i, n: shift
        return lambda i, n: (i + shift) % n

    def value(self) -> Callable[[int], tuple[Tensor, Any]]:
        """A scalar expression of turn i: of one element or two, with numbers that change or do not."""
        (x, a), (y, b) = self.rng.choice(self.pairs), self.rng.choice(self.pairs)
        first, second = self.position(), self.position()
        factor = self.rng.choice((1, 2, 3, -1))
        turn, two = self.rng.random() < 0.5, self.rng.random() < 0.4

        def make(i: int) -> tuple[Tensor, Any]:
            p, q = first(i, len(a)), second(i, len(b))
            left, known = x[p] * factor, a[p] * factor
            if two:
                left, known = left - y[q], known - b[q]
            return (left + i, known + i) if turn else (5 - left, 5 - known)

        return make

    def statement(self) -> Callable[[int], None]:
        """One statement of a body."""
        tensor, array = self.rng.choice(self.pairs)
        place, value = self.position(), self.value()
        what = self.rng.choices(
            ("element", "number", "in place", "slice", "scatter", "keep", "look", "maybe"), (9, 1, 1, 1, 1, 1, 1, 1)
        )[0]
        index = Tensor([0, 1]) * 1

        def run(i: int) -> None:
            p = place(i, len(array))
            if what == "number":
                tensor[p] = i
                array[p] = i
            elif what == "in place":
                tensor[p] += i
                array[p] += i
            elif what == "slice":
                tensor[1:3] = tensor[0:2]
                array[1:3] = array[0:2].copy()
            elif what == "scatter":
                tensor[index] = i
                array[[0, 1]] = i
            elif what == "keep":
                scalar, known = value(i)
                self.kept.append((scalar, np.array(known)))
            elif what == "look":
                if self.rng.random() < 0.3:
                    assert tensor[p].item() == array[p]
            elif what == "element" or self.rng.random() < 0.5:
                made, known = value(i)
                if made.dtype.is_float and not tensor.dtype.is_float:
                    known = int(known)
                tensor[p] = made
                array[p] = known

        return run


@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**48))
def test_loops_of_scalar_expressions_equal_numpy(number: int) -> None:
    Loops(random.Random(number)).run()
