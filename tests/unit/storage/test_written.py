"""Flushes with larger writes pending are known by their history, and run again without a program made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor, no_grad
from intaglio.storage import flush as flushes
from intaglio.storage.flush import plans
from intaglio.storage.recall import Recalled
from intaglio.storage.written import Written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.storage.slice import Slice

ARRAY = np.arange(24, dtype=np.float32).reshape(6, 4)


def stored() -> Tensor:
    """A tensor in memory."""
    return Tensor(ARRAY).realize()


def key(*tensors: Tensor) -> bytes | None:
    """The key of the history of some tensors that have storages; None where it is not known in full."""
    walk = Written()
    storages = [tensor._storage for tensor in tensors if tensor._storage is not None]
    return walk.key([], "CPU") if walk.follow_all(storages, []) else None


def after(*writes: Callable[[Tensor, Tensor], object]) -> bytes | None:
    """The key of two tensors after some writes."""
    x, y = stored(), stored()
    for write in writes:
        write(x, y)
    return key(x, y)


def put(row: int, factor: float, source: int) -> Callable[[Tensor, Tensor], object]:
    """The write of a row of the first tensor, from one of the second."""

    def write(x: Tensor, y: Tensor) -> None:
        x[row : row + 1] = y[source : source + 1] * factor

    return write


def shift(x: Tensor, _: Tensor) -> None:
    """A tensor from its own rows."""
    x[1:] = x[:-1] * 2


def test_histories_of_one_program_have_one_key() -> None:
    assert after(put(1, 2.5, 0)) == after(put(1, 3.5, 4)) is not None  # numbers, and where a buffer is only read
    assert after(put(1, 2.5, 0)) != after(put(2, 2.5, 0))  # but not where it is written
    assert after(put(1, 2.5, 0), put(2, 2.5, 0)) != after(put(2, 2.5, 0), put(1, 2.5, 0))
    assert after(put(1, 2.5, 0), shift) != after(shift, put(1, 2.5, 0))
    assert after(put(1, 2.5, 0)) != after(put(1, 2.5, 0), put(1, 2.5, 0))
    assert after(lambda x, y: x.assign(y)) == after(lambda x, y: y.assign(x))
    assert after(lambda x, y: x.assign(y + 0.5)) != after(lambda x, y: x.assign(x + 0.5))


def test_a_read_before_a_write_is_not_one_after_it() -> None:
    def early(x: Tensor, y: Tensor) -> None:
        old = y[2:3] + 1
        y[2:3] = 0.5 * y[3:4]
        x[:1] = old

    def late(x: Tensor, y: Tensor) -> None:
        y[2:3] = 0.5 * y[3:4]
        x[:1] = y[2:3] + 1

    assert after(early) != after(late)


def test_what_is_not_written_as_a_whole_is_not_known() -> None:
    assert after(lambda x, y: x.__setitem__((0, 0), 1.0)) is None
    assert after(put(1, 2.5, 0), lambda x, y: x.__setitem__((0, 0), y[1, 1] * 2)) is None
    assert after(lambda x, y: x.__setitem__(Tensor([1, 2]), y[:2])) is not None


# -- programs that run again


class Watched:
    """How flushes were made: from a history that was known, or anew."""

    def __init__(self) -> None:
        self.recalled: int = 0
        self.made: int = 0


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Counts of flushes with something pending."""
    counts = Watched()
    recall = flushes.recall

    def counted(*arguments: object) -> object:
        found = recall(*arguments)  # pyright: ignore[reportArgumentType]
        counts.recalled += isinstance(found, Recalled)
        return found

    class Counted(flushes.Flush):
        def __init__(self, part: Slice) -> None:
            super().__init__(part)
            counts.made += 1

    monkeypatch.setattr(flushes, "recall", counted)
    monkeypatch.setattr(flushes, "Flush", Counted)
    return counts


def stencil() -> tuple[np.ndarray, np.ndarray]:
    """Elements from their neighbours, in place."""
    x, array = stored(), ARRAY.copy()
    x[1:-1] += 0.5 * (x[2:] - x[:-2])
    array[1:-1] += np.float32(0.5) * (array[2:] - array[:-2])
    return x.numpy(), array


def descent() -> tuple[np.ndarray, np.ndarray]:
    """A step along a gradient."""
    w = Tensor(ARRAY, requires_grad=True).realize()
    ((w * w) * 0.5).sum().backward()
    assert w.grad is not None
    with no_grad():
        w -= 0.25 * w.grad
    return w.numpy(), ARRAY * np.float32(0.75)


def caches() -> tuple[np.ndarray, np.ndarray]:
    """Places of two caches, one after the other, and what is computed of each in between."""
    keys, values = Tensor.zeros(6, 4).realize(), Tensor.zeros(6, 4).realize()
    x = stored()
    keys[2:3] = x[:1] * 2
    y = keys[:3].sum(0) + x[1]
    values[2:3] = y
    z = values[:3].sum() + keys[:3].sum()
    total = (ARRAY[0] * 2 + ARRAY[1]).sum() + ARRAY[0].sum() * 2
    return z.numpy(), np.asarray(total)


def fresh() -> tuple[np.ndarray, np.ndarray]:
    """Parts of a tensor that is not in memory yet."""
    x, out = stored(), Tensor.ones(6, 4) * 3
    out[1:3] = x[2:4]
    out[4:5] = out[1:2] + 1
    array = np.full((6, 4), 3, np.float32)
    array[1:3] = ARRAY[2:4]
    array[4:5] = array[1:2] + 1
    return out.numpy(), array


def viewed() -> tuple[np.ndarray, np.ndarray]:
    """Values that are viewed and not in memory, some of them still held."""
    x = stored()
    u = x * 2
    x[1:] += u[:-1]
    array = ARRAY.copy()
    array[1:] += ARRAY[:-1] * 2
    return np.concatenate([x.numpy(), u.numpy()]), np.concatenate([array, ARRAY * 2])


def scattered() -> tuple[np.ndarray, np.ndarray]:
    """Rows at positions."""
    x = stored()
    x[[3, 1]] = x[:2] * 2
    array = ARRAY.copy()
    array[[3, 1]] = ARRAY[:2] * 2
    return x.numpy(), array


@pytest.mark.parametrize("program", [stencil, descent, caches, fresh, viewed, scattered])
def test_a_program_runs_again_without_being_made(
    program: Callable[[], tuple[np.ndarray, np.ndarray]], watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        got, want = program()
        assert np.array_equal(got, want)
    monkeypatch.setattr(flushes, "Slice", None)
    monkeypatch.setattr(flushes, "Flush", None)
    watched.recalled = watched.made = 0
    for _ in range(3):
        got, want = program()
        assert np.array_equal(got, want)
    assert watched.made == 0
    assert watched.recalled >= 3


def test_forgotten_histories_are_learnt_again(watched: Watched) -> None:
    for made in (1, 2):
        plans.clear()
        for _ in range(2):
            got, want = stencil()
            assert np.array_equal(got, want)
        assert (watched.recalled, watched.made) == (made, made)


# -- what others still need of bytes that are overwritten


def a_value(x: Tensor) -> Sequence[Tensor]:
    """A value of them."""
    return (x[1:3] * 3,)


def a_value_of_another(x: Tensor) -> Sequence[Tensor]:
    """A value of a value, which is all that is held."""
    return ((x[1:3] * 3).sum(0) + 1,)


def an_element(x: Tensor) -> Sequence[Tensor]:
    """A scalar expression."""
    return (x[2, 1] * 2 + 1,)


def a_pending_write(x: Tensor) -> Sequence[Tensor]:
    """A write to another tensor."""
    other = Tensor.zeros(2, 4).realize()
    other[:] = x[1:3]
    return (other,)


def pending_elements(x: Tensor) -> Sequence[Tensor]:
    """Writes of elements of another tensor."""
    other = Tensor.zeros(4).realize()
    for k in range(4):
        other[k] = x[2, k] + 1
    return (other,)


def a_viewed_value(x: Tensor) -> Sequence[Tensor]:
    """A view of a value that is not in memory."""
    return ((x * 2).T[1:3],)


def the_whole(x: Tensor) -> Sequence[Tensor]:
    """A copy that is not made yet."""
    return (x.clone(),)


HOLDERS = [a_value, a_value_of_another, an_element, a_pending_write, pending_elements, a_viewed_value, the_whole]


@pytest.mark.parametrize("hold", HOLDERS)
@pytest.mark.parametrize("first", [False, True])
def test_what_was_read_before_a_write_stays_what_it_was(
    hold: Callable[[Tensor], Sequence[Tensor]], first: bool, watched: Watched
) -> None:
    def run(held: bool) -> None:
        x, array = stored(), ARRAY.copy()
        others = hold(x) if held else ()
        wanted = [other.numpy() for other in hold(stored())] if held else []
        x[1:-1] += x[2:] * 0.5
        array[1:-1] += array[2:] * np.float32(0.5)
        assert np.array_equal(x.numpy(), array)
        for other, want in zip(others, wanted, strict=True):
            assert np.array_equal(other.numpy(), want)

    for held in (first, not first, first, not first, first, not first):
        run(held)


def test_a_value_is_kept_for_whoever_holds_part_of_what_is_written(watched: Watched) -> None:
    def run(held: bool) -> None:
        x, array = stored(), ARRAY.copy()
        parts = [x[1:-1] * 2]
        parts.append(parts[0] + x[2:])
        x[1:-1] = parts[1]
        array[1:-1] = ARRAY[1:-1] * 2 + ARRAY[2:]
        if not held:
            parts.clear()
        assert np.array_equal(x.numpy(), array)
        for part, want in zip(parts, (ARRAY[1:-1] * 2, array[1:-1]), strict=False):
            assert np.array_equal(part.numpy(), want)

    for held in (False, False, True, True, False, True):
        run(held)
    assert watched.recalled >= 3


def test_a_result_that_is_written_in_place_is_kept_for_what_is_computed_from_it() -> None:
    def run(held: bool) -> None:
        x = stored()
        y = x * 3
        z = y + 1 if held else None
        y.realize()
        y[:2] += 10.0 * x[2:4]
        want = ARRAY * 3
        want[:2] += 10 * ARRAY[2:4]
        assert np.array_equal(y.numpy(), want)
        if z is not None:
            assert np.array_equal(z.numpy(), ARRAY * 3 + 1)

    for held in (False, False, True, True, False):
        run(held)


def test_writes_that_nobody_will_see_are_not_made() -> None:
    def run() -> int:
        x, y = stored(), stored()
        y[:] = x @ x.T @ x
        y[:] = x * 2
        GlobalCounters.reset()
        y.realize()
        assert np.array_equal(y.numpy(), ARRAY * 2)
        return GlobalCounters.kernel_count

    assert [run() for _ in range(3)] == [1, 1, 1]


def test_only_what_is_asked_for_is_done() -> None:
    for _ in range(3):
        x, y = stored(), stored()
        x[1:3] = y[:2] * 2
        first = x[1:3] + 1
        x[1:3] = y[2:4] * 3
        GlobalCounters.reset()
        assert np.array_equal(first.numpy(), ARRAY[:2] * 2 + 1)
        assert x._storage is not None
        assert len(x._storage.log) == 1
        assert np.array_equal(x.numpy()[1:3], ARRAY[2:4] * 3)


# -- one size that varies


def grown(n: int) -> tuple[np.ndarray, np.ndarray]:
    """One more row of a cache, and what is computed of its rows so far."""
    cache, x = Tensor(np.tile(ARRAY, (20, 1))).realize(), stored()
    cache[n : n + 1] = x[1:2] * 2
    out = (cache[: n + 1] * x[0]).sum(0) + cache[n]
    rows = np.tile(ARRAY, (20, 1))
    rows[n] = ARRAY[1] * 2
    return np.concatenate([out.numpy(), cache.numpy()[n]]), np.concatenate(
        [(rows[: n + 1] * ARRAY[0]).sum(0) + rows[n], rows[n]]
    )


def widened(n: int) -> tuple[np.ndarray, np.ndarray]:
    """A stencil of a tensor of any length."""
    x, array = Tensor(np.arange(n, dtype=np.float32)).realize(), np.arange(n, dtype=np.float32)
    x[1:-1] += 2 * x[2:] - x[:-2]
    array[1:-1] += 2 * array[2:] - array[:-2]
    return x.numpy(), array


@pytest.mark.parametrize("program", [grown, widened])
def test_a_history_of_another_size_is_known_as_well(
    program: Callable[[int], tuple[np.ndarray, np.ndarray]], watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans.clear()
    for n in range(30, 40):
        got, want = program(n)
        assert np.array_equal(got, want)
    monkeypatch.setattr(flushes, "Flush", None)
    GlobalCounters.reset()
    for n in (47, 60, 41, 47):
        got, want = program(n)
        assert np.array_equal(got, want)
    assert GlobalCounters.compile_count == GlobalCounters.plan_count == 0


def test_a_size_at_which_other_views_meet_is_made_anew() -> None:
    def run(n: int) -> None:
        x, array = Tensor(np.arange(100, dtype=np.float32)).realize(), np.arange(100, dtype=np.float32)
        x[n : n + 20] = x[60:80] * 2 + x[40:60]
        array[n : n + 20] = array[60:80] * 2 + array[40:60]
        assert np.array_equal(x.numpy(), array)

    for n in (*range(12), 30, 45, 55, 62, 70, 3, 80):
        run(n)


@pytest.mark.parametrize("fills", [(-9.5, -7.25), (3, 5)])
def test_numbers_that_stay_in_kernels_are_those_of_the_history(fills: tuple[float, float]) -> None:
    def filled(n: int, number: float) -> None:
        x, wanted = Tensor(np.ones((n, 4), np.float32)).realize(), np.ones((n, 4), np.float32)
        x[n - 2 :] = number
        x[:1] = x.sum(0)
        wanted[n - 2 :] = number
        wanted[:1] = wanted.sum(0)
        np.testing.assert_array_equal(x.numpy(), wanted)

    first, second = fills
    for n in range(20, 27):
        filled(n, first)
    for n in (23, 22, 21, 12, 40):
        filled(n, second)


def test_integers_that_followed_from_a_size_are_those_of_the_history() -> None:
    def filled(n: int, number: int) -> None:
        x, wanted = Tensor(np.arange(2 * n).reshape(n, 2)).realize(), np.arange(2 * n).reshape(n, 2)
        x[1:] = number
        x[:1] = x.sum(0)
        wanted[1:] = number
        wanted[:1] = wanted.sum(0)
        np.testing.assert_array_equal(x.numpy(), wanted)

    for n in range(10, 17):
        filled(n, 100 * n)
    for n, number in ((20, 2000), (20, 1300), (13, 7), (30, 3000)):
        filled(n, number)
