"""What lazy systems get wrong, each with the value that NumPy gives."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Context, GlobalCounters, Tensor, dtypes, no_grad
from intaglio.core.errors import GradError, OverlapError
from intaglio.ir.node import living

if TYPE_CHECKING:
    from collections.abc import Callable


def test_sums_between_writes_see_their_own_moment() -> None:
    t, array = Tensor.zeros(6), np.zeros(6)
    sums, expected = [], []
    for k in range(4):
        t[k:] += k + 1
        array[k:] += k + 1
        sums.append(t.sum())
        expected.append(array.sum())
    assert [s.item() for s in reversed(sums)] == expected[::-1]


def test_assignments_across_are_independent() -> None:
    a, b = Tensor([1, 2]), Tensor([10, 20])
    old = a * 2
    a.assign(a + b)
    b.assign(old)
    assert a.tolist() == [11, 22]
    assert b.tolist() == [2, 4]


def test_a_view_taken_before_a_write_sees_it_and_a_sum_does_not() -> None:
    t = Tensor([1, 2, 3])
    view, total = t[1:], t.sum()
    t[:] = 0
    assert view.tolist() == [0, 0]
    assert total.item() == 6


def test_a_write_after_an_unrealized_use() -> None:
    a = Tensor([1.0, 2.0])
    b = a + 1
    a[0] = 100
    assert b.tolist() == [2.0, 3.0]


def test_a_write_on_an_unrealized_base_with_a_view_alive() -> None:
    base = Tensor([1.0, 2.0, 3.0]) * 2
    view = base[1:]
    base[2] = 9
    assert view.tolist() == [4.0, 9.0]
    assert base.tolist() == [2.0, 4.0, 9.0]


def test_aliased_handles_share() -> None:
    a = Tensor([1, 2, 3, 4])
    b = a.reshape(2, 2)
    c = a.detach()
    b[1] = 0
    assert c.tolist() == [1, 2, 0, 0]


def test_rows_swapped_by_views_follow_eager_order() -> None:
    a = Tensor([[1, 2], [3, 4]])
    a[0], a[1] = a[1], a[0]
    assert a.tolist() == [[3, 4], [3, 4]]


def test_permuted_assignment_reads_back() -> None:
    target, source = Tensor.empty(4, 4), Tensor.arange(16).reshape(4, 4).cast("float32")
    result = target.permute(1, 0).assign(source)
    assert result.tolist() == source.tolist()
    assert target.tolist() == source.numpy().T.tolist()


def test_arms_of_a_loop_that_run_every_other_turn_write_whole_elements() -> None:
    x = np.arange(1, 5, dtype=np.float32)
    t, u = np.zeros(4, np.float32), x.copy()
    mine, other = Tensor(t), Tensor(u)
    for a, b in ((t, u), (mine, other)):
        for i in range(1, 4):
            a[i] = a[i - 1] * 0.5 + b[i]
            b[i] = a[i] * 0.25
        for i in (0, 2, 1):
            a[i] = b[i + 1] * 2 - 1
            b[i] = a[i] + a[3]
    assert np.array_equal(mine.numpy(), t)
    assert np.array_equal(other.numpy(), u)


def test_a_wide_write_after_a_loop_of_rows_leaves_it_a_loop() -> None:
    from intaglio import GlobalCounters

    x = np.ones((5000, 1), np.float32)
    t, u = Tensor.zeros(5000, 1).realize(), Tensor.zeros(5000, 1).realize()
    source = Tensor(x).realize()
    GlobalCounters.reset()
    with Context(journal_nodes=1 << 30):  # nodes of other tests may live as well
        for i in range(1, 5000):
            t[i] = t[i - 1] + source[i]
        u[:] = t * 2
    assert u.numpy().reshape(-1).tolist() == list(range(0, 10000, 2))
    assert GlobalCounters.kernel_count == 1


def test_a_value_of_the_middle_of_a_loop_is_that_of_its_moment() -> None:
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    t, mine, source = np.zeros((6, 2), np.float32), Tensor.zeros(6, 2).realize(), Tensor(x)
    for i in range(1, 6):
        t[i] = t[i - 1] * 0.5 + x[i]
        mine[i] = mine[i - 1] * 0.5 + source[i]
        if i == 3:
            held, expected = mine[3] * 2, t[3] * 2
    mine[[0]] = 1
    mine[3] = 9
    out = Tensor.zeros(2)
    out[:] = held
    del held
    assert np.array_equal(out.numpy(), expected)
    t[0], t[3] = 1, 9
    assert np.array_equal(mine.numpy(), t)


def test_a_write_through_an_expanded_view_is_refused() -> None:
    with pytest.raises(OverlapError):
        Tensor([1.0]).expand(3)[0] = 2.0


def test_a_clone_of_an_empty_tensor_that_is_written_keeps_its_value() -> None:
    t = Tensor.empty(4)
    for i in range(4):
        t[i] = i
    copy = t.clone()
    t[:] = 9
    assert copy.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_forgotten_tensor_does_not_keep_its_journal() -> None:
    gc.collect()
    before = living()
    t = Tensor.zeros(100).realize()
    for i in range(1, 100):
        t[i] = t[i - 1] + t[0] * 2
    t[:] = t + t.sum()
    del t
    gc.collect()
    assert living() <= before + 20


@pytest.mark.parametrize("step", [lambda t, x: t + x, lambda t, x: t * 2, lambda t, x: x * 2])
def test_what_nobody_can_reach_drops_its_writes(step: Callable[[Tensor, Tensor], Tensor]) -> None:
    t, x = Tensor.zeros(100).realize(), Tensor.ones(100).realize()
    t[:] = step(t, x)
    t[3] = t[2] * x[1]
    storage = weakref.ref(t._storage)  # pyright: ignore[reportArgumentType, reportPrivateUsage] -- it was written
    del t
    gc.collect()
    assert storage() is None
    GlobalCounters.reset()
    x[:] = 5
    assert x.tolist() == [5] * 100
    assert GlobalCounters.global_mem == 400  # nothing is kept for those writes


def test_a_scalar_that_was_written_somewhere_and_then_written_itself_is_its_own() -> None:
    t = Tensor([5, 6, 7], dtype=dtypes.int16)
    low = t[1].minimum(t[2])
    t[1] = low  # it is read back from there from now on
    low[()] = low + 9
    low[(None,)] = low + 4
    assert low.item() == 19
    assert t.tolist() == [5, 6, 7]


def test_many_steps_that_nobody_reads_stay_flat() -> None:
    p = Tensor.zeros(16).realize()
    average = Tensor.zeros(1)
    sizes = []
    for k in range(6000):
        p += 1
        average = average * 0.9 + 0.1
        if k % 2000 == 1999:
            p.realize(average)
            gc.collect()
            sizes.append((living(), GlobalCounters.mem_used))
    assert sizes[-1][0] <= sizes[-2][0] + 200
    assert sizes[-1][1] <= sizes[-2][1] + 4096
    assert p.tolist() == [6000.0] * 16


def test_a_kv_cache_is_written_in_place() -> None:
    rng = np.random.default_rng(0)
    heads, width, length = 4, 16, 24
    cache = Tensor.zeros(heads, length, width).realize()
    mirror = np.zeros((heads, length, width), np.float32)
    for position in range(length):
        key = rng.standard_normal((heads, width)).astype(np.float32)
        query = rng.standard_normal((heads, 1, width)).astype(np.float32)
        cache[:, position] = Tensor(key)
        mirror[:, position] = key
        seen = cache[:, : position + 1]
        got = ((Tensor(query) @ seen.transpose(-1, -2)).softmax(-1) @ seen).numpy()
        scores = query @ mirror[:, : position + 1].transpose(0, 2, 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        assert np.allclose(got, weights @ mirror[:, : position + 1], atol=1e-5)


def test_threads_on_two_devices_with_collection_forced() -> None:
    failures: list[str] = []

    def work(device: str) -> None:
        for k in range(20):
            t = Tensor(np.arange(50), device=device)
            t[10:] += k
            total = (t * 2).sum()
            t[:5] = 0
            gc.collect(0)
            expected = np.arange(50)
            expected[10:] += k
            if total.item() != int((expected * 2).sum()):
                failures.append(f"{device} {k}")

    threads = [threading.Thread(target=work, args=(d,)) for d in ("CPU", "CPU:1", "CPU")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert not any(thread.is_alive() for thread in threads)


def test_a_leaf_cannot_be_written_while_gradients_are_tracked() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(GradError, match="inside no_grad"):
        w[0] = 3.0
    with no_grad():
        w[0] = 3.0
    assert w.tolist() == [3.0, 2.0]


def test_a_scalar_expression_keeps_its_value_across_a_flush_of_something_else() -> None:
    t = Tensor([1.0, 2.0, 3.0]).realize()
    scalar = t[1] * 10
    Tensor.zeros(3).realize()
    t[1] = 99
    t.realize()
    assert scalar.item() == 20


def test_a_constant_that_was_computed_on_one_device_is_computed_on_another() -> None:
    kept = Tensor.arange(3).realize()
    base, source, places = np.arange(6.0).reshape(2, 3), np.ones((1, 3)), np.array([[0, 1, 0]])
    got = Tensor(base, device="PYTHON").scatter_reduce(
        0, Tensor(places, device="PYTHON"), Tensor(source, device="PYTHON"), "sum"
    )
    assert got.device == "PYTHON"
    assert got.tolist() == [[1, 1, 3], [3, 5, 5]]
    assert kept.tolist() == [0, 1, 2]


def test_a_constant_that_was_computed_is_no_copy_to_make_before_another_is_written() -> None:
    kept = Tensor.zeros(1000).realize()
    other = Tensor.zeros(1000).realize()
    GlobalCounters.reset()
    other[0] = 1
    assert other.sum().item() == 1
    assert GlobalCounters.global_mem == 4 + 4000 + 4
    assert kept.sum().item() == 0


def test_a_scalar_outlives_the_flush_of_a_known_value_and_what_overwrites_it() -> None:
    t = Tensor([1.0, 2.0, 3.0]) * 1
    known = t[2] * 1
    t[2] = t[0] * 2
    assert t[0].item() == 1.0
    old = t[1] * 1
    t[1] = t[0] * 5
    assert known.item() == 3.0
    assert t.tolist() == [1.0, 5.0, 2.0]
    assert old.item() == 2.0


@pytest.mark.parametrize("count", [1, 4, 8])
def test_rows_change_places_before_a_loop_over_columns(count: int) -> None:
    array = np.arange(24).reshape(3, 8)
    t = Tensor(array)
    expected = array.copy()
    first, second = t[2] + 0, t[1]
    t[2] = second
    t[1] = first
    expected[[1, 2]] = expected[[2, 1]]
    for i in range(count):
        t.T[i] = i
        expected.T[i] = i
    assert np.array_equal(t.numpy(), expected)


def test_an_element_written_elsewhere_keeps_what_was_read_before_the_write() -> None:
    a, d = Tensor(np.arange(6)), Tensor(np.zeros(3, np.int64))
    old = a[1] + 1
    a[1] = 5
    d[0] = old
    del old
    assert a.tolist() == [0, 5, 2, 3, 4, 5]  # only a part of the journal is flushed
    assert d.tolist() == [2, 0, 0]


def test_an_element_of_the_same_storage_keeps_what_was_read_before_a_value_that_is_read_first() -> None:
    a = Tensor(np.arange(6))
    old = a[1] + 1
    a[1] = 5
    total = a.sum()
    a[2] = old
    del old
    assert total.item() == 19
    assert a.tolist() == [0, 5, 2, 3, 4, 5]


def test_sums_between_old_values_that_are_written_back() -> None:
    a, totals = Tensor(np.arange(6)), []
    for i in range(4):
        old = a[0] + 0
        a[0] = i + 10
        totals.append(a.sum())
        a[5] = old
    assert [total.item() for total in totals] == [25, 21, 32, 34]
    assert a.tolist() == [13, 1, 2, 3, 4, 12]


def test_an_empty_tensor_can_be_read() -> None:
    assert Tensor.empty(5).numpy().shape == (5,)
    assert Tensor.empty(2, 3)[1].tolist() == Tensor.empty(3).tolist()
    assert Tensor.empty(0, 3).tolist() == []


@pytest.mark.parametrize(
    "numbers", [[-(2**63), 2**63 - 1] * 3, [2**62, -(2**62), 0, 5] * 4, [2**63 - 1, 0, -(2**63)] * 5]
)
def test_numbers_at_the_ends_of_a_range_are_written(numbers: list[int]) -> None:
    n = len(numbers)
    t, u, x = Tensor.zeros(n, dtype=dtypes.int64), Tensor.zeros(n, dtype=dtypes.int64), Tensor.arange(n)
    expected = np.zeros(n, np.int64)
    for i, number in enumerate(numbers):
        t[i] = number
        u[i] = x[i] * number if i % 3 == 0 else u[i - 1] + number
        with np.errstate(over="ignore"):
            expected[i] = np.int64(i) * np.int64(number) if i % 3 == 0 else expected[i - 1] + np.int64(number)
    assert t.tolist() == numbers
    assert u.tolist() == expected.tolist()


def test_a_value_asked_for_with_the_writes_after_it_is_as_it_was_before_them() -> None:
    array = np.arange(1.0, 9.0)
    a, b, d = (Tensor(x) for x in (array, np.zeros(8), np.zeros(8)))
    b[:] = a * 2
    c = b * 3
    for i in range(1, 5):
        b[i] = b[i - 1] * 0.5 + a[i]
    d += c
    b += a
    b.realize(d, c)
    want = array * 2
    for i in range(1, 5):
        want[i] = want[i - 1] * 0.5 + array[i]
    assert c.tolist() == d.tolist() == (array * 6).tolist()
    assert b.tolist() == (want + array).tolist()
