"""Exact bytes and kernels of programs whose writes are overwritten before anybody reads them."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.trace import GlobalCounters
from intaglio.storage import trim

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.storage.storage import Storage

N = 240
ONES = np.ones(N, np.float32)


@pytest.fixture
def sources() -> tuple[Tensor, Tensor, Tensor]:
    """A target in memory, and two sources: x = 0 .. N-1, y = 1."""
    x, y = Tensor(np.arange(N, dtype=np.float32) / N), Tensor(ONES)
    return Tensor.zeros(N).realize(), x.realize(), y.realize()


def moved(program: Callable[[], Any]) -> tuple[Any, float, int]:
    """(what a program gives, the bytes that it moves an element, its kernels)."""
    GlobalCounters.reset()
    result = program()
    return result, GlobalCounters.global_mem / N, GlobalCounters.kernel_count


def overwritten(t: Tensor, x: Tensor) -> None:
    t[:] = x.exp()


def overwritten_twice(t: Tensor, x: Tensor) -> None:
    t[:] = x.exp()
    t[:] = x.sin()


def overwritten_with_what_only_it_read(t: Tensor, x: Tensor) -> None:
    t[:] = x.exp()
    t[:] = t * 2
    t[3:] += t[:-3]


def through_a_temporary(t: Tensor, x: Tensor) -> None:
    u = Tensor.zeros(N)
    u[:] = x.exp()
    u[0] = t[1] * 3
    t[:] = u * 2


def through_temporaries_of_one_another(t: Tensor, x: Tensor) -> None:
    for _ in range(20):
        u = Tensor.empty(N)
        u[:] = t + x
        t[:] = u * 2


def elements(t: Tensor, x: Tensor) -> None:
    for i in range(N):
        t[i] = x[i] * 2


def a_recurrence(t: Tensor, x: Tensor) -> None:
    for i in range(1, N):
        t[i] = t[i - 1] * 0.5 + x[i]


def numbers(t: Tensor, x: Tensor) -> None:
    for i in range(0, N, 3):
        t[i] = i


def a_part(t: Tensor, x: Tensor) -> None:
    t[5:77:3] = x[:24]


@pytest.mark.parametrize(
    "program",
    [
        overwritten,
        overwritten_twice,
        overwritten_with_what_only_it_read,
        through_a_temporary,
        through_temporaries_of_one_another,
        elements,
        a_recurrence,
        numbers,
        a_part,
    ],
)
def test_what_is_overwritten_unseen_is_not_computed(
    program: Callable[[Tensor, Tensor], None], sources: tuple[Tensor, Tensor, Tensor]
) -> None:
    t, x, y = sources

    def run() -> Any:
        program(t, x)
        t[:] = y
        return t.numpy()

    got, each, kernels = moved(run)
    assert np.array_equal(got, ONES)
    assert (each, kernels) == (8, 1)


def cover_by_halves(t: Tensor, y: Tensor) -> None:
    t[: N // 2] = y[: N // 2]
    t[N // 2 :] = y[N // 2 :]


def cover_by_rows(t: Tensor, y: Tensor) -> None:
    rows, ones = t.reshape(12, N // 12), y.reshape(12, N // 12)
    for i in reversed(range(12)):
        rows[i] = ones[i]


def cover_by_elements(t: Tensor, y: Tensor) -> None:
    for i in range(N):
        t[N - 1 - i] = y[N - 1 - i] + 0.0


def cover_by_reverse(t: Tensor, y: Tensor) -> None:
    t[::-1] = y


@pytest.mark.parametrize("cover", [cover_by_halves, cover_by_rows, cover_by_elements, cover_by_reverse])
def test_a_write_is_dropped_that_later_ones_cover_together(
    cover: Callable[[Tensor, Tensor], None], sources: tuple[Tensor, Tensor, Tensor]
) -> None:
    t, x, y = sources

    def run() -> Any:
        t[:] = x.exp()
        cover(t, y)
        return t.numpy()

    got, each, _ = moved(run)
    assert np.array_equal(got, ONES)
    assert each == 8


def test_a_strided_write_is_dropped_that_a_later_one_to_the_same_places_covers() -> None:
    t, x = Tensor.zeros(200, 6).realize(), Tensor(np.ones((200, 3), np.float32)).realize()
    GlobalCounters.reset()
    t[:, ::2] = x.exp()
    other = (t[:, 1::2] + 1).sum()  # reads the columns between
    t[:, ::2] = x
    assert t.sum().item() == 600
    assert other.item() == 600
    del other
    GlobalCounters.reset()
    t[:, ::2] = x.exp()
    t[:, ::2] = x
    t.realize()
    assert GlobalCounters.global_mem == 2 * 4 * 600


def test_version_0_is_not_computed_where_it_is_overwritten(sources: tuple[Tensor, Tensor, Tensor]) -> None:
    _, x, y = sources

    def run() -> Any:
        t = x.exp()
        first = t[:1]
        t[:] = y
        return first.tolist() + t.tolist()

    got, each, kernels = moved(run)
    assert got == [1.0] * (N + 1)
    assert (each, kernels) == (8, 1)


def test_what_only_a_dropped_write_needed_stays_pending(sources: tuple[Tensor, Tensor, Tensor]) -> None:
    t, x, y = sources
    u = Tensor.zeros(N).realize()

    def run() -> Any:
        u[:] = x + 1
        t[:] = u * 2
        t[:] = y
        return t.numpy()

    assert moved(run)[1:] == (8, 1)
    assert np.array_equal(u.numpy(), x.numpy() + 1)


def test_a_write_that_is_covered_but_for_one_element_is_made(sources: tuple[Tensor, Tensor, Tensor]) -> None:
    t, x, y = sources
    t[:] = x * 2
    t[:7] = y[:7]
    t[8:] = y[8:]
    expected = ONES.copy()
    expected[7] = np.float32(7 / N) * 2
    assert np.array_equal(t.numpy(), expected)


def test_who_read_between_two_writes_sees_the_first(sources: tuple[Tensor, Tensor, Tensor]) -> None:
    t, x, y = sources
    t[:] = x * 2
    held, scalar = t[:100] + 1, t[5] * 3
    u = Tensor.zeros(N)
    for i in range(N):
        u[i] = t[i] + 1
    t[:] = y
    assert np.array_equal(t.numpy(), ONES)
    assert np.array_equal(u.numpy(), x.numpy() * 2 + 1)
    assert np.array_equal(held.numpy(), x.numpy()[:100] * 2 + 1)
    assert scalar.item() == np.float32(5 / N) * 2 * 3


def test_a_reader_that_is_gone_needs_nothing(sources: tuple[Tensor, Tensor, Tensor]) -> None:
    t, x, y = sources

    def run() -> Any:
        t[:] = x.exp()
        total, scalar = t.sum(), t[5] * 3
        t[:] = y
        del total, scalar
        return t.numpy()

    assert moved(run)[1:] == (8, 1)


def test_writes_to_what_nobody_can_reach_are_not_made(sources: tuple[Tensor, Tensor, Tensor]) -> None:
    t, x, y = sources

    def run() -> Any:
        u = Tensor.zeros(N)
        u[:] = x.exp() + t
        for i in range(N):
            u[i] = x[i] * 2
        del u
        t[:] = y
        return t.numpy()

    gc.disable()
    try:
        assert moved(run)[1:] == (8, 1)
    finally:
        gc.enable()


def test_the_covered_part_gets_no_gradient_and_is_not_computed_forward(sources: tuple[Tensor, Tensor, Tensor]) -> None:
    _, x, y = sources
    a, b = x.detach().clone().requires_grad_(), y.clone().requires_grad_()
    a.realize(b)
    t = Tensor.zeros(N).realize()

    def run() -> Any:
        t[:] = a.exp()
        t[10:] = b[10:] * 2
        t[:10] = b[:10] * 3
        return t.realize()

    assert moved(run)[1] == 8
    (t * x).sum().backward()
    assert b.grad is not None
    expected = x.numpy() * 2
    expected[:10] = x.numpy()[:10] * 3
    assert np.array_equal(b.grad.numpy(), expected)
    assert a.grad is None or not a.grad.numpy().any()


def test_the_sweep_takes_steps_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    looked = trim._Sweep._see  # pyright: ignore[reportPrivateUsage]

    def count(self: trim._Sweep, readers: Any) -> None:  # pyright: ignore[reportPrivateUsage]
        readers = list(readers)
        counts[-1] += 1 + len(readers)
        looked(self, readers)

    monkeypatch.setattr(trim._Sweep, "_see", count)  # pyright: ignore[reportPrivateUsage]
    for length in (50, 500):
        counts.append(0)
        t, x = Tensor.zeros(length, 8).realize(), Tensor.ones(length, 8).realize()
        for i in range(1, length):
            t[i] = t[i - 1] + x[i]
        t.realize()
    assert 0 < counts[1] <= 11 * counts[0]


def test_a_flush_of_single_writes_is_not_swept(sources: tuple[Tensor, Tensor, Tensor]) -> None:
    t, x, _ = sources
    t[:] = x
    storage: Storage = t._storage  # pyright: ignore[reportAssignmentType, reportPrivateUsage] -- it was written
    assert not trim.doubtful({storage: storage.sequence})
