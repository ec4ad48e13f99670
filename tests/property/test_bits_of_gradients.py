"""Random writes to the bytes of a tracked tensor, in any dtype: only elements that have some of them lose gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from intaglio import Tensor, dtypes

if TYPE_CHECKING:
    import random

PROGRAMS = 60
KINDS = (dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)


class BytePrograms:
    """One program in the making, with the slopes of each element by each of the leaf's."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.dtype = rng.choice((dtypes.float64, dtypes.float64, dtypes.float32))
        self.count, self.start, after = rng.randint(2, 5), rng.choice((0, 0, 3, 4, 8, 12)), rng.choice((0, 0, 3, 9))
        size = self.count * self.dtype.itemsize
        self.memory = Tensor(np.zeros(self.start + size + after, np.uint8))
        self.tracked = self.memory[self.start : self.start + size].bitcast(self.dtype)
        self.leaf = Tensor(np.arange(1.0, self.count + 1), dtype=self.dtype, requires_grad=True)
        self.tracked[:] = self.leaf * 2
        self.slopes = 2 * np.eye(self.count)
        self.expected = np.zeros(self.count)
        self.log = [f"{self.count} of {self.dtype.name} from byte {self.start} on, {after} bytes after them"]

    def run(self) -> None:
        """Write, then compare the gradient of a weighted sum."""
        steps = (*(self.bits,) * 4, self.element, self.part, self.loop, self.pull)
        for _ in range(self.rng.randint(1, 8)):
            self.rng.choice(steps)()
        self.pull()
        found = self.leaf.grad
        assert found is not None
        assert found.tolist() == self.expected.tolist(), "\n".join(self.log)

    def bits(self) -> None:
        """Some elements of another view of the memory, in one of the ways to write them."""
        kind = self.rng.choice(KINDS)
        first = self.rng.randrange(self.memory.shape[0] - kind.itemsize + 1)
        count = self.rng.randint(1, (self.memory.shape[0] - first) // kind.itemsize)
        view = self.memory[first : first + count * kind.itemsize].bitcast(kind)
        places = [self.rng.randrange(count) for _ in range(self.rng.randint(1, count))]
        mask = Tensor([k in places for k in range(count)])
        way = self.rng.choice(("slice", "mask", "positions", "masked_fill_", "scatter_"))
        if way == "slice":
            places = [*range(min(places), count)]
            view[places[0] :] = 1
        elif way == "mask":
            view[mask] = 1
        elif way == "positions":
            view[places] = 1
        elif way == "masked_fill_":
            view.masked_fill_(mask, 1)
        else:
            view.scatter_(0, Tensor(places), 1)
        self.log.append(f"{way}: {places} of {count} of {kind.name} from byte {first} on")
        for place in places:
            begin = first + place * kind.itemsize - self.start
            last = begin + kind.itemsize - 1
            self.slopes[max(begin // self.dtype.itemsize, 0) : max(last // self.dtype.itemsize + 1, 0)] = 0

    def element(self) -> None:
        """One element from another."""
        i, j = self.rng.randrange(self.count), self.rng.randrange(self.count)
        self.tracked[i] = self.tracked[j] * 3
        self.slopes[i] = self.slopes[j] * 3
        self.log.append(f"element {i} from {j}")

    def part(self) -> None:
        """Some elements from themselves and the leaf."""
        first = self.rng.randrange(self.count)
        self.tracked[first:] = self.tracked[first:] * 2 + self.leaf[first:]
        self.slopes[first:] = self.slopes[first:] * 2 + np.eye(self.count)[first:]
        self.log.append(f"part from {first} on")

    def loop(self) -> None:
        """Each element from the one before."""
        for i in range(1, self.count):
            self.tracked[i] = self.tracked[i - 1] * 2 + self.leaf[i]
            self.slopes[i] = self.slopes[i - 1] * 2 + np.eye(self.count)[i]
        self.log.append("loop")

    def pull(self) -> None:
        """Pull a weighted sum back, as one value or by elements."""
        weights = np.array([self.rng.randint(1, 5) for _ in range(self.count)], float)
        total = (self.tracked * Tensor(weights, dtype=self.dtype)).sum()
        if self.rng.random() < 0.5:
            total = self.tracked[0] * weights[0]
            for i in range(1, self.count):
                total = total + self.tracked[i] * weights[i]
        total.backward(retain_graph=True)
        self.expected += weights @ self.slopes
        self.log.append(f"pull by {weights.tolist()}")


def test_elements_of_which_no_bits_were_written_have_their_gradients(rng: random.Random) -> None:
    for _ in range(PROGRAMS):
        BytePrograms(rng).run()
