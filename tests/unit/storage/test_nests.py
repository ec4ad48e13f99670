"""Nests of loops: along which axes they run in order, and what they give where they are large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Context
from intaglio.core.dtypes import dtypes
from intaglio.engine import realize as engine
from intaglio.ir.view import View
from intaglio.ops.elementwise import Add, Mul
from intaglio.storage.flush import flush
from intaglio.storage.nests import order_of
from intaglio.storage.reroll import Sequential
from intaglio.storage.skeleton import NumberStep, OpStep, Pattern, ReadStep, Step
from intaglio.storage.storage import Storage
from intaglio.storage.writes import Gathering, Kind, Run

if TYPE_CHECKING:
    from intaglio.storage.columns import Integers
    from intaglio.storage.writes import Column

Pair = tuple[int, int]


def memory(array: np.ndarray[Any, Any]) -> Storage:
    """A storage that holds an array."""
    return Storage(array.nbytes, "CPU", ref=engine.from_bytes(array.tobytes(), "CPU"))


def nest(t: Storage, x: Storage, width: int, places: Integers, distances: list[Pair]) -> Sequential:
    """The loop `t[p] = t[p + d0] * 0.25 + ... + x[p]` over places of rows of some width."""
    steps: list[Step] = []
    columns: list[Column] = []
    f32 = dtypes.float32

    def read(storage: Storage, offsets: Integers) -> int:
        steps.append(ReadStep(f32, (), (), storage))
        columns.extend((offsets, np.zeros(len(offsets), np.int64)))
        return len(steps) - 1

    total = read(x, 4 * places)
    for down, right in distances:
        term = read(t, 4 * (places + down * width + right))
        steps.append(NumberStep(f32))
        columns.append([0.25] * len(places))
        steps.append(OpStep(f32, (), Mul(), (term, len(steps) - 1)))
        steps.append(OpStep(f32, (), Add(), (total, len(steps) - 1)))
        total = len(steps) - 1
    pattern = Pattern(tuple(steps))
    kind = Kind(t, f32, (), (), pattern, tuple(pattern.reads))
    numbers = np.arange(len(places))
    run = Run(kind, numbers, numbers, 4 * places, columns)
    return Sequential(len(places), [[run]], None, Gathering().take())


def turns(shape: Pair, start: Pair, *, by_columns: bool) -> Integers:
    """The places of a nest from a start to the ends of rows and columns."""
    n, m = shape
    found = np.arange(n * m).reshape(n, m)[start[0] :, start[1] :]
    return (found.T if by_columns else found).ravel()


def expected(t: np.ndarray[Any, Any], x: np.ndarray[Any, Any], start: Pair, distances: list[Pair]) -> None:
    """The nest in NumPy, along the axis that carries its dependences."""
    n, m = t.shape
    along = all(right == 0 for _, right in distances) or any(down for down, _ in distances)
    for k in range(start[0] if along else start[1], n if along else m):
        place = (k, slice(start[1], m)) if along else (slice(start[0], n), k)
        total = x[place].copy()
        for down, right in distances:
            if along:
                total += t[k + down, start[1] + right : m + right] * np.float32(0.25)
            else:
                total += t[start[0] : n, k + right] * np.float32(0.25)
        t[place] = total


CASES = [
    ((1, 0), [(-1, 0)]),
    ((1, 1), [(-1, 0)]),
    ((0, 1), [(0, -1)]),
    ((0, 2), [(0, -2), (0, -1)]),
    ((1, 1), [(-1, -1), (-1, 0)]),
    ((2, 0), [(-2, 0), (-1, 0)]),
]


@pytest.mark.parametrize(("start", "distances"), CASES)
@pytest.mark.parametrize(("shape", "by_columns"), [((70, 9001), False), ((1030, 601), True), ((613, 1024), False)])
def test_large_nests_equal_numpy_with_any_number_of_threads(
    shape: Pair, by_columns: bool, start: Pair, distances: list[Pair]
) -> None:
    rng = np.random.default_rng(sum(shape))
    x = rng.standard_normal(shape, np.float32)
    t = rng.standard_normal(shape, np.float32)
    found: list[bytes] = []
    for threads in (1, 2):
        storage, source = memory(t), memory(x)
        group = nest(storage, source, shape[1], turns(shape, start, by_columns=by_columns), distances)
        storage.write_loop(group)
        with Context(threads=threads):
            (ref,) = flush((), [storage.read(View.contiguous(dtypes.float32, shape))])
        found.append(bytes(engine.buffer_of(ref).view()))
    expected(t, x, start, distances)
    assert found[0] == found[1] == t.tobytes()


def order(shape: Pair, start: Pair, distances: list[Pair], *, by_columns: bool = False) -> str:
    """Along which axes a nest runs in order, and along which at once (with *: by themselves)."""
    n, m = shape
    t, x = Storage(4 * n * m, "CPU"), Storage(4 * n * m, "CPU")
    found = order_of(nest(t, x, m, turns(shape, start, by_columns=by_columns), distances))
    if found is None:
        return "none"
    return f"{found.turns} {found.lanes}{'*' if found.free else ''} of {found.nest.extents}"


@pytest.mark.parametrize(
    ("start", "distances", "by_columns", "told"),
    [
        ((1, 1), [(-1, 0)], False, "(0,) (1,)* of (19, 29)"),
        ((1, 0), [(-1, 0)], False, "(0,) (1,)* of (19, 30)"),
        ((1, 1), [(0, -1)], False, "(1,) (0,)* of (19, 29)"),
        ((1, 1), [(0, -1)], True, "(0,) (1,)* of (29, 19)"),
        ((1, 1), [(-1, -1)], False, "(0,) (1,) of (19, 29)"),
        ((1, 1), [(-1, -1)], True, "(1,) (0,) of (29, 19)"),
        ((1, 1), [(-1, 0), (0, -1)], False, "none"),
        ((2, 2), [(-2, 0)], False, "(0,) (1,)* of (18, 28)"),
        ((1, 1), [(0, -1), (-1, -1)], False, "(1,) (0,) of (19, 29)"),
        ((5, 0), [(-5, 0)], False, "(0,) (1,)* of (3, 150)"),
        ((0, 0), [(0, 0)], False, "() (0,)* of (600,)"),
    ],
)
def test_the_axis_that_carries_the_dependences_runs_in_order(
    start: Pair, distances: list[Pair], by_columns: bool, told: str
) -> None:
    assert order((20, 30), start, distances, by_columns=by_columns) == told
