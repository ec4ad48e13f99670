"""Random nests of loops whose writes depend on one another, run on tensors and on NumPy arrays side by side."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from intaglio import Tensor

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    Place = Callable[[tuple[int, ...]], tuple[Any, ...]]
    Value = Callable[[list[Any], tuple[int, ...]], Any]

EXTENTS = (4, 5, 6, 8, 9, 10, 19, 20, 35)
MOST = 700  # turns of a nest
KINDS = (np.float32, np.float32, np.float64, np.int32, np.int64)


class Nests:
    """One program in the making: tensors of one shape, and the arrays that they must equal."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log: list[str] = []
        self.rank = rng.choice((1, 2, 2, 2, 3))
        self.shape = tuple(rng.choice(EXTENTS) for _ in range(self.rank))
        if self.rank == 2 and rng.random() < 0.15:
            self.shape = rng.choice(((4, 300), (300, 4), (5, 142)))
        while np.prod(self.shape) > max(MOST, 300 * 4):
            self.shape = tuple(min(n, rng.choice(EXTENTS)) for n in self.shape)
        self.dtype = np.dtype(rng.choice(KINDS))
        size = int(np.prod(self.shape))
        self.arrays: list[Any] = []
        self.tensors: list[Tensor] = []
        for _ in range(rng.randint(2, 4)):
            array = np.array([rng.randint(-4, 4) for _ in range(size)], self.dtype).reshape(self.shape)
            self.arrays.append(array)
            self.tensors.append(Tensor(array.copy()))
            if rng.random() < 0.2:
                self.tensors[-1] = self.tensors[-1] * 1
        for k in range(len(self.arrays)):
            if self.rank > 1 and rng.random() < 0.15 and len(set(self.shape)) == 1:
                self.arrays[k] = self.arrays[k].T
                self.tensors[k] = self.tensors[k].permute(tuple(reversed(range(self.rank))))
            elif rng.random() < 0.1:
                self.arrays[k] = self.arrays[k][::-1]
                self.tensors[k] = self.tensors[k].flip(0)

    def run(self) -> None:
        """Nests one after the other; then everything is compared."""
        with np.errstate(all="ignore"):
            for _ in range(self.rng.randint(1, 2)):
                self.nest()
        order = list(range(len(self.arrays)))
        self.rng.shuffle(order)
        for k in order:
            got, expected = self.tensors[k].numpy(), self.arrays[k]
            assert np.array_equal(got, expected, equal_nan=True), "\n".join(
                [*self.log, f"t{k}: got\n{got}\nexpected\n{expected}"]
            )

    def nest(self) -> None:
        """Loops over some axes in some order, in each turn a few statements; the axes that are left are whole rows."""
        rng = self.rng
        rows = rng.randint(1, self.rank - 1) if self.rank > 1 and rng.random() < 0.25 else 0
        axes = list(range(self.rank))
        if rows and rng.random() < 0.3:
            rng.shuffle(axes)
        looped, whole = axes[: self.rank - rows], axes[self.rank - rows :]
        if rng.random() < 0.5:
            rng.shuffle(looped)
        loops = [self.range(axis) for axis in looped]
        self.log.append(f"for {looped} in {loops}, {whole} whole, {self.dtype.name}{self.shape}:")
        statements = [self.statement(looped) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        for turn in itertools.product(*loops):
            for statement in statements:
                statement(turn)

    def range(self, axis: int) -> range:
        """The turns along one axis: all but those at the ends, or (seldom, as neighbours wrap around there) all."""
        n = self.shape[axis]
        first, last = (2, n - 1) if self.rng.random() < 0.9 else self.rng.choice(((1, n), (0, n - 1), (0, n)))
        if self.rng.random() < 0.25:
            return range(last - 1, first - 1, -1)
        return range(first, last, 2) if self.rng.random() < 0.1 else range(first, last)

    def place(self, looped: list[int], *, near: bool) -> tuple[Place, str]:
        """Where a statement reads or writes in each turn."""
        rng = self.rng
        shifts = [rng.choice((0, 0, 0, 0, -1, -1, 1, -2) if near else (*(0,) * 12, -1, 1)) for _ in looped]
        fixed = {k: rng.randrange(self.shape[axis]) for k, axis in enumerate(looped) if rng.random() < 0.04}

        def at(turn: tuple[int, ...]) -> tuple[Any, ...]:
            found: list[Any] = [slice(None)] * self.rank
            for k, axis in enumerate(looped):
                n = self.shape[axis]
                found[axis] = fixed.get(k, (turn[k] + shifts[k]) % n)
            return tuple(found)

        return at, f"[{looped} + {shifts}{f', {fixed}' if fixed else ''}]"

    def statement(self, looped: list[int]) -> Callable[[tuple[int, ...]], None]:
        """One statement of the innermost body."""
        rng, kind = self.rng, self.dtype.type
        target = rng.randrange(len(self.arrays) - 1)
        at, text = self.place(looped, near=False)
        terms: list[tuple[int, Place, Any]] = []
        told: list[str] = []
        for _ in range(rng.choice((1, 1, 2, 2, 3))):
            source = target if rng.random() < 0.6 else rng.randrange(len(self.arrays))
            place, where = self.place(looped, near=True)
            factor = rng.choice((1, 1, 2, -1, None)) if self.dtype.kind == "i" else rng.choice((1, 0.5, -0.25, None))
            terms.append((source, place, factor))
            told.append(f"t{source}{where} * {factor}")
        digit = rng.choice((None, None, None, *range(len(looped))))
        random_numbers = rng.random() < 0.15
        self.log.append(f"  t{target}{text} = {' + '.join(told)} + {digit} {'+ random' if random_numbers else ''}")

        def run(turn: tuple[int, ...]) -> None:
            made: Any = None
            known: Any = None
            for source, place, factor in terms:
                where = place(turn)
                left, value = self.tensors[source][where], self.arrays[source][where]
                if factor is not None:
                    left, value = left * factor, value * kind(factor)
                made, known = (left, value) if made is None else (made + left, known + value)
            if digit is not None:
                made, known = made + turn[digit], known + kind(turn[digit])
            if random_numbers:
                number = rng.randint(-3, 3)
                made, known = made + number, known + kind(number)
            self.tensors[target][at(turn)] = made
            self.arrays[target][at(turn)] = known

        return run
