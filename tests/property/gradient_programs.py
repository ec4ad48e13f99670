"""Random programs of views and writes under gradients: in them, what was random is also differentiated."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from intaglio import Tensor, dtypes, no_grad
from tests.property.alias_programs import STATEMENTS, Programs
from tests.property.traced import Trace, Traced

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

GRADIENT_STATEMENTS = (
    *STATEMENTS, *("product",) * 2, *("weighted",) * 2, "accumulate", "scatter", "choose", "chain", "detach", "pull",
)  # fmt: skip
KINDS = (np.float64, np.float64, np.float64, np.float32, np.int64, np.int32)
ROOM = 40  # elements of all leaves
LARGEST = 2.0**22  # magnitudes from which a program goes no further: sums are exact in what it has done


class GradientPrograms(Programs):
    """One program in the making, some of whose tensors are leaves that want gradients."""

    statements: ClassVar[tuple[str, ...]] = GRADIENT_STATEMENTS

    def __init__(self, rng: random.Random, steps: int = 14) -> None:
        super().__init__(rng, steps)
        self.trace = Trace(ROOM)
        self.leaves: list[Tensor] = []
        self.given: list[np.ndarray[Any, Any]] = []  # the gradient that each leaf should have, so far
        self.compared = False  # whether PyTorch took the program as well

    def run(self) -> None:
        """Make, step, compare, and pull a weighted sum of everything back."""
        for _ in range(self.rng.randint(1, 2)):
            self.make_leaf()
        self.make()
        with np.errstate(all="ignore"):
            for _ in range(self.rng.randint(1, self.steps)):
                self.step()
                if not self.is_small():
                    break
        if not all(np.isfinite(array.values).all() for _, array in self.pairs if array.dtype.kind == "f"):
            return  # a number that is none: bits that an integer write made
        self.rng.shuffle(self.pairs)
        early = self.rng.random() < 0.5
        for tensor, array in self.pairs if early else []:
            self.compare(tensor, array)
        self.pull(last=True)
        for tensor, array in self.pairs if not early else []:
            self.compare(tensor, array)
        self.check_gradients()

    def is_small(self) -> bool:
        """Whether all numbers and slopes are still small enough to be exact in every dtype."""
        floats = [array for _, array in self.pairs if array.dtype.kind == "f"]
        return all((np.abs(x) < LARGEST).all() for array in floats for x in (array.values, array.slopes))

    def compare(self, tensor: Tensor, array: Traced) -> None:
        """The tensor must equal the array (up to the order of sums, in the step that made it large)."""
        got, expected = tensor.numpy(), array.values
        assert got.shape == expected.shape, self.told(f"shape {got.shape}, expected {expected.shape}")
        assert got.dtype == expected.dtype, self.told(f"dtype {got.dtype}, expected {expected.dtype}")
        near = np.array_equal(got, expected) or (array.dtype.kind == "f" and _is_near(got, expected))
        assert near, self.told(f"got\n{got}\nexpected\n{expected}")

    def check_gradients(self) -> None:
        """Each leaf's gradient must be what the slopes say, and what PyTorch says if it came this far."""
        self.compared = not self.trace.refused
        for k, (leaf, expected, traced) in enumerate(zip(self.leaves, self.given, self.trace.leaves, strict=True)):
            got = np.zeros(expected.shape) if leaf.grad is None else leaf.grad.numpy()
            assert _is_near(got, expected), self.told(f"leaf {k}: gradient\n{got}\nexpected\n{expected}")
            if self.compared and traced.theirs.grad is not None:
                theirs = traced.theirs.grad.numpy()
                assert _is_near(got, theirs), self.told(f"leaf {k}: gradient\n{got}\nPyTorch's\n{theirs}")

    # -- what there is to choose from

    def make(self) -> None:
        """A new tensor without gradients."""
        rank = self.rng.choice((1, 1, 2, 2, 3))
        shape = tuple(self.rng.choice((1, 2, 3, 4, 5, 6)) for _ in range(rank))
        if self.rng.random() < 0.04:
            shape = (*shape[:-1], 0)
        dtype = np.dtype(self.rng.choice(KINDS))
        kind = self.rng.randrange(3)
        size = int(np.prod(shape))
        if kind == 0:
            values = np.zeros(shape, dtype)
            tensor = Tensor(values)
        elif kind == 1:
            values = np.arange(size).astype(dtype).reshape(shape)
            tensor = Tensor.arange(size, dtype=dtypes.from_numpy(dtype)).reshape(shape)
        else:
            values = np.full(shape, 3, dtype)
            tensor = Tensor.full(shape, 3, dtype=dtypes.from_numpy(dtype))
        self.keep(tensor, self.trace.constant(values), f"kind {kind} {dtype.name}{shape}")

    def make_leaf(self) -> None:
        """A new leaf, and something that was computed from it."""
        shape = self.rng.choice(((6,), (1,), (4,), (2, 3), (3, 3), (4, 2), (8,), (2, 1, 3)))
        dtype = np.dtype(self.rng.choice((np.float64, np.float64, np.float64, np.float32)))
        values = np.array([self.rng.randint(-3, 3) for _ in range(int(np.prod(shape)))], dtype).reshape(shape)
        tensor = Tensor(values, requires_grad=True)
        self.leaves.append(tensor)
        self.given.append(np.zeros(shape))
        traced = self.trace.leaf(values.copy())
        self.keep(tensor, traced, f"leaf {values.tolist()} {dtype.name}")
        self.keep(tensor * 1, traced * dtype.type(1), f"p{len(self.pairs) - 1} * 1")

    def target(self) -> tuple[int, Tensor, Any]:
        """A pair at random that may be written: no leaf, unless gradients do not see it."""
        k, tensor, array = self.pick()
        while array.leaf and self.trace.recording:
            k, tensor, array = self.pick()
        return k, tensor, array

    def step(self) -> None:
        """One random statement, sometimes where gradients do not see it."""
        name = self.rng.choice(self.statements)
        if not any(not array.leaf for _, array in self.pairs):
            self.make()
        if name != "pull" and self.rng.random() < 0.06:
            self.log.append("with no_grad():")
            with no_grad(), self.paused():
                getattr(self, name)()
        else:
            getattr(self, name)()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No slopes are recorded."""
        self.trace.recording = False
        yield
        self.trace.recording = True

    def bits(self) -> None:
        """The same bytes as another dtype, seldom: PyTorch does not go along."""
        if self.rng.random() < 0.2:
            super().bits()

    def floats(self) -> list[tuple[Tensor, Traced]]:
        """All pairs of floats."""
        return [(tensor, array) for tensor, array in self.pairs if array.dtype.kind == "f"]

    def pick_like(self, array: Traced) -> tuple[int, Tensor, Any] | None:
        """A pair of one axis of the same dtype that is as long as another."""
        found = [
            k
            for k, (_, other) in enumerate(self.pairs)
            if other.ndim == 1 and other.dtype == array.dtype and other.shape[0] >= array.shape[0]
        ]
        if not found:
            return None
        k = self.rng.choice(found)
        return k, *self.pairs[k]

    # -- statements that only matter to gradients

    def product(self) -> None:
        """A value that is not linear in what it is made from."""
        k, tensor, array = self.pick()
        j, other, factor = self.pick()
        shapes = [array.shape, factor.shape]
        if array.dtype != factor.dtype or array.dtype.kind != "f":
            return
        try:
            np.broadcast_shapes(*shapes)
        except ValueError:
            return
        self.keep(tensor * other, array * factor, f"p{k} * p{j}")

    def weighted(self) -> None:
        """Each element from the one before, by weights."""
        k, tensor, array = self.target()
        if array.ndim != 1 or array.dtype.kind != "f" or array.shape[0] < 2:
            return
        found = self.pick_like(array)
        more = self.pick_like(array)
        if found is None or more is None:
            return
        j, weights, w = found
        m, terms, x = more
        one = self.rng.random() < 0.4
        self.log.append(f"p{k}[i] = p{k}[i - 1] * p{j}[{0 if one else 'i'}] + p{m}[i]")
        for i in range(1, array.shape[0]):
            tensor[i] = tensor[i - 1] * weights[0 if one else i] + terms[i]
            array[i] = array[i - 1] * w[0 if one else i] + x[i]

    def nest(self) -> None:
        """Each element of rows from neighbours of its own row and of others, in either order of loops."""
        k, tensor, array = self.target()
        if array.ndim != 2 or array.dtype.kind != "f" or min(array.shape) < 2:
            return
        like = [p for p, (_, a) in enumerate(self.pairs) if a.dtype == array.dtype and a.shape == array.shape]
        j = self.rng.choice(like)
        other, x = self.pairs[j]
        (n, m), (down, right) = array.shape, self.rng.choice(((1, 0), (0, 1), (1, 1), (0, 0)))
        turns = [(i, c) for i in range(down, n) for c in range(right, m)]
        if self.rng.random() < 0.5:
            turns.sort(key=lambda turn: turn[::-1])
        times = self.rng.random() < 0.5
        self.log.append(f"p{k}[i, j] = p{k}[i - {down}, j - {right}] {'*' if times else '* 2 +'} p{j}[i, j], {turns}")
        for i, c in turns:
            if times:
                tensor[i, c] = tensor[i - down, c - right] * other[i, c]
                array[i, c] = array[i - down, c - right] * x[i, c]
            else:
                tensor[i, c] = tensor[i - down, c - right] * 2 + other[i, c]
                array[i, c] = array[i - down, c - right] * array.dtype.type(2) + x[i, c]

    def accumulate(self) -> None:
        """Elements at positions with duplicates, each added to or multiplied."""
        k, tensor, array = self.target()
        if array.ndim != 1 or array.dtype.kind != "f" or not array.shape[0]:
            return
        found = self.pick_like(array)
        if found is None:
            return
        j, terms, x = found
        places = [self.rng.randrange(array.shape[0]) for _ in range(array.shape[0])]
        times = self.rng.random() < 0.3
        self.log.append(f"p{k}[c] {'*=' if times else '+='} p{j}[i] for i, c in enumerate({places})")
        for i, c in enumerate(places):
            if times:
                tensor[c] = tensor[c] * terms[i]
                array[c] = array[c] * x[i]
            else:
                tensor[c] += terms[i]
                array[c] += x[i]

    def scatter(self) -> None:
        """Values of another tensor at positions with duplicates."""
        k, tensor, array = self.target()
        if array.ndim != 1 or array.dtype.kind != "f" or not array.shape[0]:
            return
        found = self.pick_like(array)
        if found is None:
            return
        j, source, values = found
        count = self.rng.randint(1, array.shape[0])
        if self.rng.random() < 0.5:
            places = self.rng.sample(range(array.shape[0]), count)
        else:
            places = [self.rng.randrange(array.shape[0]) for _ in range(count)]
        self.log.append(f"p{k}[{places}] = p{j}[:{count}]")
        tensor[places] = source[:count] + 0
        array[places] = values[:count] + array.dtype.type(0)

    def choose(self) -> None:
        """One element of a tensor where a condition on another holds."""
        k, tensor, array = self.target()
        if array.ndim != 1 or array.dtype.kind != "f":
            return
        found = self.pick_like(array)
        if found is None or not array.shape[0]:
            return
        j, source, values = found
        limit, at = self.rng.randint(-2, 2), self.rng.randrange(values.shape[0])
        self.log.append(f"p{k}[p{k} > {limit}] = p{j}[{at}]")
        mask = array > limit
        tensor[tensor > limit] = source[at] * 2
        array[mask] = values[at] * array.dtype.type(2)

    def chain(self) -> None:
        """A number that grows in a loop."""
        k, tensor, array = self.pick()
        if array.ndim != 1 or array.dtype.kind != "f" or not array.shape[0]:
            return
        square = self.rng.random() < 0.5
        self.log.append(f"total = total + p{k}[i]{' * 2' if square else ''}")
        total, sums = tensor[0] * 2, array[0] * array.dtype.type(2)
        for i in range(1, array.shape[0]):
            if square:
                total = total + tensor[i] * tensor[i]
                sums = sums + array[i] * array[i]
            else:
                total = total + tensor[i]
                sums = sums + array[i]
        self.keep(total, sums, "total")

    def detach(self) -> None:
        """A handle that takes no part in gradients."""
        k, tensor, array = self.pick()
        self.keep(tensor.detach(), array.detach(), f"p{k}.detach()")

    def pull(self, *, last: bool = False) -> None:
        """Pull a weighted sum of everything back."""
        floats = [pair for pair in self.floats() if last or self.rng.random() < 0.5]
        loss: Tensor = Tensor(0.0, dtype=dtypes.float64)
        theirs = self.trace.follow(lambda: _torch(np.zeros(())))
        slopes = np.zeros(self.trace.room)
        for tensor, array in floats:
            weights = np.array([self.rng.randint(-2, 3) for _ in range(array.size)], np.float64).reshape(array.shape)
            loss = loss + (tensor * Tensor(weights)).sum()
            slopes += np.tensordot(weights, array._seen(), array.ndim)
            theirs = self.trace.follow(lambda t=theirs, a=array, w=weights: t + (a.theirs * _torch(w)).sum())
        if not loss.requires_grad:
            assert not slopes.any(), self.told("nothing that is pulled back requires gradients")
            return
        self.log.append("pull")
        loss.backward(retain_graph=not last)
        if not self.trace.refused and theirs.requires_grad:
            self.trace.follow(lambda: theirs.backward(retain_graph=not last))
        start = 0
        for k, leaf in enumerate(self.trace.leaves):
            self.given[k] += slopes[start : start + leaf.size].reshape(leaf.shape)
            start += leaf.size


class NestedGradients(GradientPrograms):
    """Programs many of whose statements are nests of loops."""

    statements = (*GRADIENT_STATEMENTS, *("nest",) * 16)


def _torch(array: np.ndarray[Any, Any]) -> Any:
    """An array as PyTorch's."""
    import torch

    return torch.from_numpy(array)


def _is_near(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays differ by no more than sums of large numbers do."""
    scale = float(np.abs(expected).max(initial=0.0))
    return got.shape == expected.shape and np.allclose(got, expected, rtol=1e-5, atol=1e-7 * scale + 1e-9)
