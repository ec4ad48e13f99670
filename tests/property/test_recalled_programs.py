"""Random histories of larger writes, at several sizes and again: what is recalled by a key is what NumPy computes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intaglio import Tensor
from intaglio.storage import flush as flushes
from intaglio.storage.recall import Recalled
from tests.property.alias_programs import Overwriting, Programs

SIZES = (8, 9, 10, 11, 12, 13, 30, 14, 11)
ROOM = 4  # rows that a slice leaves out
COLUMNS = 3


@dataclass
class Slice:
    """Rows of one of some arrays: all but a few, or some that are counted from one end."""

    array: int
    start: int
    rows: int | None  # None: all but ROOM
    from_end: bool

    def of(self, n: int) -> slice:
        """The rows of an array of n."""
        if self.rows is None:
            return slice(self.start, n - ROOM + self.start)
        start = n - ROOM - 1 + self.start - self.rows if self.from_end else self.start
        return slice(start, start + self.rows)


@dataclass
class Statement:
    """A write, a value that is held for later, the end of one, or a value that is asked for."""

    kind: str
    target: Slice
    sources: list[Slice]
    factors: list[int] = field(default_factory=list)


def drawn(rng: random.Random) -> list[Statement]:
    """A random history; all its numbers are small, so that floats are exact."""

    def piece(rows: int | None) -> Slice:
        return Slice(rng.randrange(3), rng.randint(0, ROOM), rows, rng.random() < 0.5)

    found: list[Statement] = []
    for _ in range(rng.randint(1, 7)):
        kind = rng.choice(("write",) * 5 + ("add", "hold", "hold", "let go", "ask", "sum", "carry"))
        rows = rng.choice((None, None, 1, 2))
        sources = [piece(rows) for _ in range(rng.randint(1, 2))]
        found.append(Statement(kind, piece(rows), sources, [rng.randint(-2, 2) for _ in sources]))
    return found


def run(history: list[Statement], n: int, seed: int, order: int) -> None:
    """Run a history on tensors and on arrays."""
    draw = np.random.default_rng(seed)
    arrays = [draw.integers(-3, 4, (n, COLUMNS)).astype(np.float32) for _ in range(3)]
    tensors = [Tensor(a).realize() if k < 2 else Tensor(a) * 1 for k, a in enumerate(arrays)]
    held: list[tuple[Tensor, np.ndarray]] = []
    for step in history:
        value, want = None, None
        for source, factor in zip(step.sources, step.factors, strict=True):
            part, own = tensors[source.array][source.of(n)] * factor, arrays[source.array][source.of(n)] * factor
            value, want = (part, own) if value is None or want is None else (value + part, want + own)
        assert value is not None
        assert want is not None
        target, rows = step.target.array, step.target.of(n)
        if step.kind == "write":
            tensors[target][rows] = value
            arrays[target][rows] = want
        elif step.kind == "add":
            tensors[target][rows] += value
            arrays[target][rows] += want
        elif step.kind == "sum":
            tensors[target][rows] = value.sum(0)
            arrays[target][rows] = want.sum(0)
        elif step.kind == "carry":  # through a value that is viewed
            tensors[target][rows] = value.T.flip(1).T + 1
            arrays[target][rows] = want[::-1] + 1
        elif step.kind == "hold":
            held.append((value, want.copy()))
        elif step.kind == "let go" and held:
            held.pop()
        elif step.kind == "ask":
            assert np.array_equal(value.numpy(), want)
        del value
    results = [*zip(tensors, arrays, strict=True), *held]
    random.Random(order).shuffle(results)
    for tensor, array in results:
        assert np.array_equal(tensor.numpy(), array)


@pytest.fixture
def recalled(monkeypatch: pytest.MonkeyPatch) -> list[Recalled]:
    """The flushes that were known."""
    found: list[Recalled] = []
    recall = flushes.recall

    def noted(*arguments: object) -> object:
        again = recall(*arguments)  # pyright: ignore[reportArgumentType]
        if isinstance(again, Recalled):
            found.append(again)
        return again

    monkeypatch.setattr(flushes, "recall", noted)
    return found


def check(number: int) -> None:
    """A history at all sizes, twice each."""
    rng = random.Random(number)
    history = drawn(rng)
    order = rng.randrange(100)
    for n in SIZES:
        for _ in range(2):
            run(history, n, rng.randrange(1 << 30), order)


def test_random_histories_of_several_sizes_equal_numpy(rng: random.Random, recalled: list[Recalled]) -> None:
    count = 40
    for _ in range(count):
        number = rng.randrange(1 << 48)
        try:
            check(number)
        except BaseException as error:
            error.add_note(f"history {number}")
            raise
    assert len(recalled) > count * len(SIZES)  # one of the two times at each size, at least


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**48))
def test_random_programs_equal_numpy_when_they_run_again(number: int) -> None:
    for kind in (Programs, Overwriting):
        for _ in range(2):
            kind(random.Random(number), 10).run()
