"""Exact counts of named programs: kernels, launches, sources, bytes moved."""

from __future__ import annotations

import gc
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Context, Tensor
from intaglio.core.dtypes import dtypes
from intaglio.core.trace import GlobalCounters
from intaglio.engine.devices import device_of
from intaglio.engine.explain import sources
from intaglio.storage.flush import plans

if TYPE_CHECKING:
    from collections.abc import Callable

N = 200


def counted(program: Callable[[], Any]) -> tuple[Any, int, list[str]]:
    """(what a program gives, how many kernels it ran, their distinct sources)."""
    GlobalCounters.reset()
    with sources() as seen:
        result = program()
        return result, GlobalCounters.kernel_count, list(seen)


def numbers() -> tuple[Tensor, np.ndarray[Any, Any]]:
    """A float tensor in memory, and its array."""
    array = np.arange(N, dtype=np.float32) % 13
    return Tensor(array), array


def zeros(*shape: int) -> tuple[Tensor, np.ndarray[Any, Any]]:
    """Zeros in memory, and their array."""
    return Tensor.zeros(*shape).realize(), np.zeros(shape, np.float32)


def write_range(n: int) -> list[float]:
    t = Tensor.empty(n)
    for i in range(n):
        t[i] = i
    return t.tolist()


def test_a_loop_of_numbers_is_one_kernel_whose_source_does_not_grow() -> None:
    lengths: set[int] = set()
    for n in (2, 6, 10, 100, 1000, 20000):
        plans.clear()  # else sizes after the first few share one text
        got, kernels, texts = counted(lambda n=n: write_range(n))
        assert (got, kernels) == (list(range(n)), 1)
        assert GlobalCounters.table_bytes == 0
        if n >= 1000:
            lengths.add(len(texts[0].replace(str(n), "n")))
    assert len(lengths) == 1


def write_rows(t: Tensor, n: int) -> None:
    for i in range(n):
        row = t[i]
        for j in range(5):
            row[j] = 5 * i + j


def write_backwards(t: Tensor, n: int) -> None:
    for j in range(-1, -6, -1):
        for i in range(n):
            t[i, j] = 5 * i + 5 + j


def write_in_turns(t: Tensor, n: int) -> None:
    left, right = t[:, :2], t[:, 2:]
    for i in range(n):
        for j in range(3):
            right[i, j] = 5 * i + 2 + j
            if j < 2:
                left[i][j] = 5 * i + j


@pytest.mark.parametrize(("write", "in_order"), [(write_rows, True), (write_backwards, True), (write_in_turns, False)])
def test_numbers_through_any_views_of_one_tensor_are_one_kernel(
    write: Callable[[Tensor, int], None], in_order: bool
) -> None:
    lengths: set[int] = set()
    for n in (100, 2000):

        def program(n: int = n) -> list[list[float]]:
            t = Tensor.empty(n, 5)
            write(t, n)
            return t.tolist()

        plans.clear()
        got, kernels, texts = counted(program)
        assert (got, kernels) == (np.arange(5 * n).reshape(n, 5).tolist(), 1)
        assert (GlobalCounters.table_bytes == 0) == in_order
        lengths.add(len(texts[0].replace(str(5 * n), "n").replace(str(n), "n")))
    assert len(lengths) == 1


def test_a_write_of_a_number_allocates_nothing_and_launches_nothing() -> None:
    t, _ = zeros(N)
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    for i in range(N):
        t[i] = i
    assert (GlobalCounters.launch_count, GlobalCounters.kernel_count) == (0, 0)
    assert (GlobalCounters.mem_used, GlobalCounters.peak) == (before, before)


def test_a_loop_of_expressions_is_one_kernel() -> None:
    x, array = numbers()

    def program() -> Any:
        t = Tensor.empty(N)
        for i in range(N):
            t[i] = x[i] * 2 + i
        return t.numpy()

    got, kernels, _ = counted(program)
    assert np.array_equal(got, array * 2 + np.arange(N))
    assert (kernels, GlobalCounters.table_bytes) == (1, 0)


def test_writes_to_two_storages_in_turn_are_one_kernel() -> None:
    x, array = numbers()
    a, b = Tensor.empty(N), Tensor.empty(N)

    def program() -> None:
        for i in range(N):
            a[i] = i
            b[i] = x[i] * 3
        a.realize(b)

    _, kernels, _ = counted(program)
    assert kernels == 1
    assert a.tolist() == list(range(N))
    assert np.array_equal(b.numpy(), array * 3)


def test_a_write_to_another_storage_at_every_third_turn_is_one_kernel() -> None:
    a, (b, expected) = Tensor.empty(N), zeros(N)

    def program() -> None:
        for i in range(N):
            a[i] = i
            if i % 3 == 0:
                b[i] = i * 2
                expected[i] = i * 2
        a.realize(b)

    _, kernels, _ = counted(program)
    assert kernels == 1
    assert a.tolist() == list(range(N))
    assert np.array_equal(b.numpy(), expected)


def test_a_recurrence_is_one_kernel() -> None:
    x, array = numbers()
    t, expected = zeros(N)

    def program() -> Any:
        for i in range(1, N):
            t[i] = t[i - 1] * 0.5 + x[i]
            expected[i] = np.float32(expected[i - 1] * np.float32(0.5)) + array[i]
        return t.numpy()

    got, kernels, _ = counted(program)
    assert np.array_equal(got, expected)
    assert (kernels, GlobalCounters.table_bytes) == (1, 0)


def test_a_recurrence_of_rows_that_looks_two_back_is_one_kernel() -> None:
    x, array = numbers()
    rows = array.reshape(50, 4)
    t, expected = zeros(50, 4)

    def program() -> Any:
        for i in range(2, 50):
            t[i] = x.reshape(50, 4)[i] - t[i - 1] - t[i - 2]
            expected[i] = rows[i] - expected[i - 1] - expected[i - 2]
        return t.numpy()

    got, kernels, _ = counted(program)
    assert np.array_equal(got, expected)
    assert kernels == 1


def backward(n: int, turn: Callable[[Tensor, Tensor, Tensor, int], None]) -> tuple[int, int, Tensor, Tensor]:
    """(kernels, bytes) of the gradients of a sum of what n turns write, and these gradients."""
    x = Tensor(np.linspace(0, 1, 2 * n, dtype=np.float32).reshape(n, 2), requires_grad=True).realize()
    w = Tensor([0.5, 0.25], requires_grad=True).realize()
    t = Tensor.zeros(n, 2).realize()
    for i in range(1, n):
        turn(t, x, w, i)
    loss = t.sum().realize()
    GlobalCounters.reset()
    loss.backward()
    assert x.grad is not None
    x.grad.realize(*([w.grad] if w.grad is not None else []))
    return GlobalCounters.kernel_count, GlobalCounters.global_mem, x.grad, x if w.grad is None else w.grad


def decay(t: Tensor, x: Tensor, w: Tensor, i: int) -> None:
    """A recurrence whose slope is a number."""
    t[i, 0] = t[i - 1, 0] * 0.5 + x[i, 0]


def weigh(t: Tensor, x: Tensor, w: Tensor, i: int) -> None:
    """A product with one weight: no recurrence."""
    t[i, 0] = w[0] * x[i, 0]


def squash(t: Tensor, x: Tensor, w: Tensor, i: int) -> None:
    """A recurrence of rows, with weights, whose slope depends on the values."""
    t[i] = (t[i - 1] * w).tanh() + x[i]


def accumulate(t: Tensor, x: Tensor, w: Tensor, i: int) -> None:
    """One place that every turn overwrites."""
    t[0, 0] = t[0, 0] * x[i, 0] + x[i, 1]


@pytest.mark.parametrize(
    ("turn", "kernels", "each"), [(decay, 1, 56), (weigh, 1, 12), (squash, 1, 104), (accumulate, 1, 72)]
)
def test_backward_takes_as_many_kernels_at_any_length_and_bytes_in_proportion(
    turn: Callable[[Tensor, Tensor, Tensor, int], None], kernels: int, each: int
) -> None:
    found = {n: backward(n, turn)[:2] for n in (1000, 4000)}
    assert [count for count, _ in found.values()] == [kernels, kernels]
    assert found[4000][1] - found[1000][1] == 3000 * each


def carry(t: Tensor, x: Tensor, w: Tensor, i: int) -> None:
    """A recurrence with a weight, whose gradient needs all values."""
    t[i, 0] = t[i - 1, 0] * w[0] + x[i, 0]


def test_backward_through_a_recurrence_of_a_hundred_thousand_turns_is_one_kernel_too() -> None:
    short, long = backward(1000, carry), backward(100_000, carry)
    assert short[0] == long[0] == 1
    assert long[1] - short[1] == 99_000 * 68
    slopes = np.zeros((100_000, 2))
    slopes[1:, 0] = 2 - 0.5 ** np.arange(99_998.0, -1, -1)
    assert np.allclose(long[2].numpy(), slopes)
    values = np.zeros(100_000)
    for i in range(1, 100_000):
        values[i] = values[i - 1] * 0.5 + 2 * i / 199_999
    assert np.allclose(long[3].numpy(), [(values[:-1] * slopes[1:, 0]).sum(), 0], rtol=1e-3)


def add_all(loss: Tensor, t: Tensor, x: Tensor, i: int) -> Tensor:
    """A sum of elements."""
    return loss + t[i]


def add_squares(loss: Tensor, t: Tensor, x: Tensor, i: int) -> Tensor:
    """A sum of squared differences."""
    d = t[i] - x[i]
    return loss + d * d


def add_parts(loss: Tensor, t: Tensor, x: Tensor, i: int) -> Tensor:
    """A sum of sums of views that overlap."""
    return loss + (t[i - 1 : i + 1] * x[i - 1 : i + 1]).sum()


@pytest.mark.parametrize(
    ("grow", "slope"),
    [
        (add_all, lambda x: np.full(len(x), 2.0)),
        (add_squares, lambda x: 2 * x * (np.arange(len(x)) > 0) + 2 * (np.arange(len(x)) == 0)),
        (add_parts, lambda x: 4 * x * (2 - (np.arange(len(x)) % (len(x) - 1) == 0)) + 2 * (np.arange(len(x)) == 0)),
    ],
)
def test_backward_of_a_loss_that_grows_in_a_loop_takes_as_many_kernels_at_any_length(
    grow: Callable[[Tensor, Tensor, Tensor, int], Tensor], slope: Callable[[Any], Any]
) -> None:
    found: list[tuple[int, float]] = []
    for n in (50, 250):
        x = Tensor(np.linspace(0, 1, n), requires_grad=True).realize()
        t = x * 2
        loss = t[0]
        for i in range(1, n):
            loss = grow(loss, t, x, i)
        loss.realize()
        GlobalCounters.reset()
        loss.backward()
        assert x.grad is not None
        x.grad.realize()
        found.append((GlobalCounters.kernel_count, GlobalCounters.global_mem / n))
        assert np.allclose(x.grad.numpy(), slope(np.linspace(0, 1, n)))
    assert found[0][0] == found[1][0] <= 4
    assert found[1][1] < 1.2 * found[0][1]


def test_backward_of_one_weight_is_one_kernel_at_any_length_even_if_recording_it_flushes() -> None:
    def program(n: int) -> tuple[int, int]:
        x, w, t = Tensor.ones(n).realize(), Tensor([2.0], requires_grad=True), Tensor.zeros(n).realize()
        for i in range(n):
            t[i] = w[0] * x[i]
        loss = t.sum().realize()
        GlobalCounters.reset()
        loss.backward()
        assert w.grad is not None
        assert w.grad.tolist() == [n]
        return GlobalCounters.kernel_count, GlobalCounters.global_mem

    assert program(1000) == (1, 4 * 1000 + 4)
    with Context(journal_entries=5000):
        assert program(100_000) == (1, 4 * 100_000 + 4)


def test_values_that_a_loop_overwrites_are_kept_by_the_loop() -> None:
    x = Tensor(np.ones(N, np.float32), requires_grad=True)
    t, _ = zeros(1)

    def program() -> Any:
        for i in range(N):
            t[0] = t[0] * x[i] + 1
        return t.tolist()

    got, kernels, _ = counted(program)
    assert (got, kernels) == ([float(N)], 1)
    (_, kernels, _) = counted(lambda: t.sum().backward() and x.grad.numpy())  # pyright: ignore[reportOptionalMemberAccess]
    assert x.grad is not None
    assert np.array_equal(x.grad.numpy(), np.arange(N, dtype=np.float32))
    assert kernels == 2  # the sum, and the reversed loop, which copies the gradient out of its workspace


def test_an_edit_distance_table_is_one_kernel_after_its_setup() -> None:
    rng = random.Random(1)
    n = 60
    a, b = ([rng.randrange(3) for _ in range(n)] for _ in range(2))
    cost = Tensor([[int(p != q) for q in b] for p in a])
    t = Tensor.zeros(n + 1, n + 1, dtype=cost.dtype)
    t[0, :] = Tensor.arange(n + 1)
    t[:, 0] = Tensor.arange(n + 1)
    t.realize()

    def program() -> Any:
        for i in range(1, n + 1):
            for j in range(1, n + 1):
                t[i, j] = (t[i - 1, j] + 1).minimum(t[i, j - 1] + 1).minimum(t[i - 1, j - 1] + cost[i - 1, j - 1])
        return t.tolist()

    got, kernels, _ = counted(program)
    expected = [[i + j if i * j == 0 else 0 for j in range(n + 1)] for i in range(n + 1)]
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            best = min(expected[i - 1][j], expected[i][j - 1]) + 1
            expected[i][j] = min(best, expected[i - 1][j - 1] + (a[i - 1] != b[j - 1]))
    assert (got, kernels) == (expected, 1)


def test_two_nested_loops_are_one_kernel() -> None:
    t = Tensor.empty(20, 30)

    def program() -> Any:
        for i in range(20):
            for j in range(30):
                t[i, j] = i * 2 + j
        return t.tolist()

    got, kernels, _ = counted(program)
    assert (got, kernels) == ([[i * 2 + j for j in range(30)] for i in range(20)], 1)


def test_a_triangular_nest_is_one_kernel() -> None:
    t, expected = zeros(24, 24)

    def program() -> Any:
        for i in range(24):
            for j in range(i + 1):
                t[i, j] = i * 2 + j
                expected[i, j] = i * 2 + j
        return t.numpy()

    got, kernels, _ = counted(program)
    assert np.array_equal(got, expected)
    assert kernels == 1


@pytest.mark.parametrize("repeats", [1, 3])
def test_numbers_at_random_positions_are_one_kernel(repeats: int) -> None:
    places = [*range(N)] * repeats
    random.Random(2).shuffle(places)
    t, expected = zeros(N)

    def program() -> Any:
        for k, i in enumerate(places):
            t[i] = k
            expected[i] = k
        return t.numpy()

    got, kernels, _ = counted(program)
    assert np.array_equal(got, expected)
    assert kernels == 1


def test_accumulation_at_random_positions_is_one_kernel() -> None:
    rng = random.Random(3)
    x, array = numbers()
    t, expected = zeros(N)

    def program() -> Any:
        for k in range(N):
            i = rng.randrange(N // 4)
            t[i] += x[k]
            expected[i] += array[k]
        return t.numpy()

    got, kernels, _ = counted(program)
    assert np.array_equal(got, expected)
    assert kernels == 1


def test_a_loop_with_a_branch_is_one_kernel_whose_source_does_not_grow() -> None:
    lengths: list[int] = []
    for n in (1000, 4000):
        plans.clear()
        rng = random.Random(4)
        t = Tensor.zeros(n, dtype=dtypes.int64).realize()
        expected = np.zeros(n, np.int64)

        def program(t: Tensor = t, expected: Any = expected, n: int = n, rng: random.Random = rng) -> Any:
            with np.errstate(over="ignore"):
                for i in range(1, n):
                    if rng.random() < 0.5:
                        t[i] = t[i - 1] + 1
                        expected[i] = expected[i - 1] + 1
                    else:
                        t[i] = t[i - 1] * 2
                        expected[i] = expected[i - 1] * 2
            return t.numpy()

        got, kernels, texts = counted(program)
        assert np.array_equal(got, expected)
        assert kernels == 1
        lengths.append(len(texts[0].replace(str(n - 1), "n")))  # but for how often the loop turns
    assert lengths[0] == lengths[1]


def test_a_loop_of_rows_is_one_kernel() -> None:
    x = Tensor(np.arange(200, dtype=np.float32).reshape(20, 10))
    t = Tensor.empty(20, 10)

    def program() -> Any:
        for i in range(20):
            t[i, :] = x[i] * 3
        return t.numpy()

    got, kernels, _ = counted(program)
    assert np.array_equal(got, x.numpy() * 3)
    assert kernels == 1


def test_a_hundred_stencil_steps_are_one_program_in_one_launch() -> None:
    t = Tensor((np.arange(N) ** 2 % 17).astype(np.float32))
    expected = t.numpy()

    def program() -> Any:
        for _ in range(100):
            t[1:-1] += 0.25 * (t[2:] - 2 * t[1:-1] + t[:-2])
            expected[1:-1] += np.float32(0.25) * (expected[2:] - 2 * expected[1:-1] + expected[:-2])
        return t.numpy()

    got, kernels, texts = counted(program)
    assert np.array_equal(got, expected)
    assert (kernels, len(texts), GlobalCounters.launch_count) == (100, 1, 1)


def test_steps_over_a_plane_are_one_kernel_each_and_copy_only_the_edges() -> None:
    plane = np.random.default_rng(0).integers(-8, 9, (40, 40)).astype(np.float32)
    t = Tensor(plane).realize()

    def program() -> Any:
        for _ in range(10):
            t[1:-1, 1:-1] = (t[:-2, 1:-1] + t[2:, 1:-1] + t[1:-1, :-2] + t[1:-1, 2:]) * 0.25
            plane[1:-1, 1:-1] = (plane[:-2, 1:-1] + plane[2:, 1:-1] + plane[1:-1, :-2] + plane[1:-1, 2:]) * 0.25
        return t.numpy()

    got, kernels, texts = counted(program)
    assert np.array_equal(got, plane)
    assert (kernels, len(texts), GlobalCounters.launch_count) == (10, 1, 1)
    inner, edge = 4 * 38 * 38, 4 * (40 * 40 - 38 * 38)
    assert GlobalCounters.global_mem == 10 * (5 * inner + 2 * edge)


def test_softmax_and_normalization_are_one_kernel_each() -> None:
    x, array = numbers()
    got, kernels, _ = counted(lambda: x.reshape(10, 20).softmax(-1).numpy())
    e = np.exp(array.reshape(10, 20) - array.reshape(10, 20).max(-1, keepdims=True))
    assert np.allclose(got, e / e.sum(-1, keepdims=True), atol=1e-6)
    assert kernels == 1
    y = x.reshape(10, 20)
    _, kernels, _ = counted(
        lambda: ((y - y.mean(-1, keepdims=True)) / (y.var(-1, keepdims=True) + 1e-5).sqrt()).numpy()
    )
    assert kernels == 1


def test_a_number_that_changes_does_not_make_another_source() -> None:
    x, array = numbers()
    texts: set[str] = set()
    for rate in (0.1, 0.3, 7.25):
        got, kernels, seen = counted(lambda rate=rate: (x * rate + 3.5).numpy())
        assert np.array_equal(got, array * np.float32(rate) + np.float32(3.5))
        assert kernels == 1
        texts.update(seen)
    assert len(texts) == 1


def test_literals_that_kernels_take_are_constant_memory() -> None:
    device = device_of("CPU")
    device._kernels.clear()
    value = numbers()[0]
    for k in range(3, 20):
        value = value + k * 1.5
    value.realize()
    (source,) = [kernel.source for kernel in device._kernels.values()]
    assert source.count(", !tbaa !2") == source.count("= load float, ptr %p") == 17


@pytest.mark.parametrize(
    ("step", "steps"),
    [
        (lambda z, x, i: z + i, 1000),
        (lambda z, x, i: z + x, 1000),
        (lambda z, x, i: z * 0.75 + x, 1000),
        (lambda z, x, i: z * z * 0.5 + x, 500),
    ],
    ids=["numbers", "another", "both", "read twice"],
)
def test_a_chain_of_a_thousand_operations_is_one_kernel_that_is_compiled_once(
    step: Callable[[Any, Any, int], Any], steps: int
) -> None:
    x, array = Tensor([0.25, 0.5, -0.25]).realize(), np.array([0.25, 0.5, -0.25], np.float32)
    z, want = x, array
    for i in range(steps):
        z, want = step(z, x, i), step(want, array, i)
    plans.clear()
    device_of("CPU")._kernels.clear()
    with Context(cache=False):
        got, kernels, _ = counted(z.numpy)
    assert np.allclose(got, want, rtol=1e-5)
    counts = GlobalCounters.launch_count, GlobalCounters.plan_count, GlobalCounters.compile_count
    assert (kernels, *counts) == (1, 1, 1, 1)
    assert GlobalCounters.global_mem == 2 * 3 * 4


@pytest.mark.parametrize(
    ("step", "kernels"),
    [
        (lambda x: x - x.sum() * 0.01, 8),
        (lambda x: x - x.sum(1, keepdims=True) * 0.1, 34),
        (lambda x: x * 0.9 - (x * x).sum() * 0.01, 13),
    ],
    ids=["of all", "of rows", "of squares"],
)
def test_a_chain_of_reductions_is_cut_where_it_is_deep_and_what_comes_after_computes_nothing_again(
    step: Callable[[Any], Any], kernels: int
) -> None:
    array = np.linspace(0.0, 0.25, 64, dtype=np.float64).reshape(8, 8)
    x, want = Tensor(array).realize(), array
    for _ in range(400):
        x, want = step(x), step(want)
    got, count, _ = counted(x.numpy)
    assert np.allclose(got, want, rtol=1e-9)
    assert count == kernels


def test_a_chain_that_reads_many_arrays_is_cut_where_they_are_too_many_at_once() -> None:
    arrays = [np.full(5, i, np.float32) for i in range(400)]
    tensors = [Tensor(array).realize() for array in arrays]
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    got, kernels, _ = counted(total.numpy)
    assert np.array_equal(got, sum(arrays))
    assert kernels == 3


def test_two_gradients_of_a_product_take_no_memory_beside_them() -> None:
    n = 128
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n)).astype(np.float32) for _ in range(2))
    x, w = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
    x.realize(w)
    (x @ w).relu().sum().backward()
    assert x.grad is not None
    assert w.grad is not None
    before = GlobalCounters.mem_used
    _, kernels, _ = counted(lambda: Tensor.realize(x.grad, w.grad))
    assert kernels == 3
    assert GlobalCounters.peak - before <= 3 * 4 * n * n
    slope = (a @ b > 0).astype(np.float32)
    assert np.allclose(x.grad.numpy(), slope @ b.T, atol=1e-4)
    assert np.allclose(w.grad.numpy(), a.T @ slope, atol=1e-4)


@pytest.mark.parametrize("sizes", [(16, 24, 32), (64, 64, 64), (200, 96, 130)])
def test_a_product_with_bias_and_activation_is_one_kernel(sizes: tuple[int, int, int]) -> None:
    rows, inner, columns = sizes
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((rows, inner), (inner, columns), (columns,))]
    x, w, b = (Tensor(array).realize() for array in arrays)
    got, kernels, _ = counted(lambda: (x @ w + b).relu().numpy())
    assert np.allclose(got, np.maximum(arrays[0] @ arrays[1] + arrays[2], 0), atol=1e-4)
    assert kernels == 1
    assert counted(lambda: (x @ w + b).gelu().numpy())[1] == 1


@pytest.mark.parametrize("sizes", [(1, 70, 50), (5, 130, 70), (16, 24, 32), (33, 130, 70), (128, 256, 300)])
def test_a_product_with_a_transposed_factor_copies_nothing_through_memory(sizes: tuple[int, int, int]) -> None:
    rows, inner, columns = sizes
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((rows, inner), (columns, inner), (columns,))]
    x, w, b = (Tensor(array).realize() for array in arrays)
    residual = rng.standard_normal((rows, columns)).astype(np.float32)
    r = Tensor(residual).realize()
    got, kernels, seen = counted(lambda: (x.linear(w, b) + r).realize())
    assert kernels == 1
    assert GlobalCounters.global_mem == 4 * (rows * inner + columns * inner + columns + 2 * rows * columns)
    assert "gather" not in seen[0]
    assert np.allclose(got.numpy(), arrays[0] @ arrays[1].T + arrays[2] + residual, atol=1e-4)


@pytest.mark.parametrize("sizes", [(1, 1500, 1100), (32, 1500, 1100), (3, 1030, 2000)])
def test_a_product_of_few_rows_reads_the_matrix_once(sizes: tuple[int, int, int]) -> None:
    rows, inner, columns = sizes
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, shape).astype(np.float32) for shape in ((rows, inner), (inner, columns), (columns,))]
    x, w, b = (Tensor(array).realize() for array in arrays)
    got, kernels, _ = counted(lambda: (x @ w + b).realize())
    assert kernels == 1
    assert GlobalCounters.global_mem == 4 * (rows * inner + inner * columns + columns + rows * columns)
    assert np.array_equal(got.numpy(), arrays[0] @ arrays[1] + arrays[2])


@pytest.mark.parametrize(("rows", "kernels"), [(40, 1), (200, 6)])
def test_large_arrays_that_have_nothing_in_common_have_kernels_of_one_program(rows: int, kernels: int) -> None:
    arrays = [np.random.default_rng(k).standard_normal((rows, 611), np.float32) for k in range(6)]
    tensors, scale = [Tensor(array).realize() for array in arrays], Tensor([2.0]).realize()

    def run() -> list[Tensor]:
        made = [(t * scale).exp().sum(1) for t in tensors]
        made[0].realize(*made[1:])
        return made

    results, count, sources = counted(run)
    assert (count, len(sources)) == (kernels, 1)
    for result, array in zip(results, arrays, strict=True):
        np.testing.assert_allclose(result.numpy(), np.exp(array * 2).sum(1), rtol=1e-5)


def test_large_results_of_one_array_or_one_value_are_one_kernel() -> None:
    x = Tensor(np.random.default_rng(0).standard_normal((300, 700), np.float32)).realize()

    def of(*makers: Callable[[], Tensor]) -> int:
        made = [make() for make in makers]
        return counted(lambda: made[0].realize(*made[1:]))[1]

    assert of(lambda: x + 1, lambda: x.exp(), lambda: x[::-1] * 2) == 1
    assert of(lambda: x.sum(1), lambda: x.max(1)) == 1


@pytest.mark.parametrize(("rows", "kernels"), [(10, 1), (63, 1), (64, 3), (300, 3)])
def test_factors_that_are_rounded_are_rounded_once_if_they_are_used_often(rows: int, kernels: int) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, shape).astype(np.float32) for shape in ((rows, 300), (300, 300))]
    x, w = (Tensor(array).realize() for array in arrays)
    got, count, _ = counted(lambda: (x.cast("bfloat16") @ w.cast("bfloat16")).cast("float32").realize())
    assert count == kernels
    both = x.numel() + w.numel()
    assert GlobalCounters.global_mem == (8 if rows >= 64 else 4) * both + 4 * got.numel()  # 4 + 2 of each, then 2
    assert np.array_equal(got.numpy(), Tensor(arrays[0] @ arrays[1]).cast("bfloat16").cast("float32").numpy())


@pytest.mark.parametrize("size", [7, 14, 20, 56])
@pytest.mark.parametrize("padding", [0, 1])
def test_a_convolution_with_bias_and_activation_is_one_kernel_that_reads_the_image_once(
    size: int, padding: int
) -> None:
    rng = np.random.default_rng(0)
    shapes = (2, 5, size, size + 3), (17, 5, 3, 3), (17,)
    arrays = [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
    x, w, b = (Tensor(array).realize() for array in arrays)
    got, kernels, _ = counted(lambda: x.conv2d(w, b, padding=padding).relu().realize())
    assert kernels == 1
    assert GlobalCounters.global_mem == 4 * (sum(a.size for a in arrays) + got.numel())


def test_the_cotangents_of_a_convolution_are_products_over_copies_of_its_operands() -> None:
    x, w = Tensor.rand(2, 8, 20, 24).realize(), Tensor.rand(16, 8, 3, 3).realize()
    ct = Tensor.rand(2, 16, 20, 24).realize()
    x.requires_grad = w.requires_grad = True

    def slopes() -> None:
        x.conv2d(w, padding=1).backward(ct)
        assert x.grad is not None
        assert w.grad is not None
        Tensor.realize(x.grad, w.grad)

    assert counted(slopes)[1] == 4  # the kernels turned round, the image channels last; the two products


def test_pools_are_one_kernel_each() -> None:
    x = Tensor.rand(2, 3, 12, 40).realize()
    assert counted(lambda: x.max_pool2d(2).realize())[1] == 1
    assert counted(lambda: x.avg_pool2d(2).realize())[1] == 1
    assert counted(lambda: x.max_pool2d(3, 2, padding=1).realize())[1] == 1


def test_a_layer_norm_with_weights_is_one_kernel() -> None:
    x, array = numbers()
    w, b = Tensor(array[:20]), Tensor(array[20:40])
    got, kernels, _ = counted(lambda: x.reshape(10, 20).layer_norm(20, w, b).numpy())
    rows = array.reshape(10, 20)
    centred = rows - rows.mean(-1, keepdims=True)
    expected = centred / np.sqrt(rows.var(-1, keepdims=True) + 1e-5) * array[:20] + array[20:40]
    assert np.allclose(got, expected, atol=1e-4)
    assert kernels == 1


def test_a_number_that_changes_compiles_nothing() -> None:
    x, array = numbers()

    def loop(rate: float) -> Any:
        t = Tensor.empty(N)
        for i in range(N):
            t[i] = x[i] * rate + i
        return t.numpy()

    loop(1.5)
    for rate in (2.5, 9.0):
        got, kernels, _ = counted(lambda rate=rate: loop(rate))
        assert (kernels, GlobalCounters.compile_count) == (1, 0)
        assert np.array_equal(got, array * np.float32(rate) + np.arange(N, dtype=np.float32))


def test_the_bytes_that_a_kernel_moves_are_those_of_its_views() -> None:
    x, _ = numbers()
    counted(lambda: (x[10:20] + 3.5).numpy())
    assert GlobalCounters.global_mem == 2 * 10 * 4


@pytest.mark.parametrize(
    ("take", "read"),
    [
        (lambda x, i: x[i], 10 * 64),
        (lambda x, i: (x * 2)[i], 10 * 64),
        (lambda x, i: x[:, i], 1000 * 10),
        (lambda x, i: x[i, i], 10),
        (lambda x, i: x.sum(1)[i], 10 * 64),
        (lambda x, i: x[i].sum(0), 10 * 64),
        (lambda x, i: x.gather(1, i.reshape(1, 10)), 10),
        (lambda x, i: x[i] + x[:10], 2 * 10 * 64),
        (lambda x, i: x[i] * x.max(), 1000 * 64),  # which reads all of it
    ],
    ids=["rows", "of a value", "columns", "elements", "of sums", "sum", "gather", "and a slice", "and all"],
)
def test_the_bytes_of_what_is_taken_are_not_those_of_all_that_it_is_taken_from(
    take: Callable[[Tensor, Tensor], Tensor], read: int
) -> None:
    x, i = Tensor(np.ones((1000, 64), np.float32)).realize(), Tensor(np.arange(10) * 5).realize()
    got, kernels, _ = counted(lambda: take(x, i).realize())
    assert kernels == 1
    assert GlobalCounters.global_mem == 4 * read + 8 * 10 + got.nbytes


@pytest.mark.parametrize("together", [True, False], ids=["in one value", "in two"])
def test_the_bytes_of_what_is_taken_at_two_places_are_those_of_both(together: bool) -> None:
    x, i = Tensor(np.ones((1000, 64), np.float32)).realize(), Tensor(np.arange(10) * 5).realize()
    j = (i + 1).realize()

    def program() -> int:
        results = [x[i] + x[j]] if together else [x[i], x[j]]
        results[0].realize(*results[1:])
        return sum(result.nbytes for result in results)

    written, kernels, _ = counted(program)
    assert kernels == 1
    assert GlobalCounters.global_mem == 4 * 2 * 640 + 8 * 20 + written


@pytest.mark.parametrize(
    ("view", "read"),
    [
        (lambda x: x[0].expand(100, 64), 64),
        (lambda x: x[:, :1].expand(1000, 64), 1000),  # at each place of every row
        (lambda x: x.unfold(0, 3, 1), 1000 * 64),
        (lambda x: x.reshape(-1).unfold(0, 100, 50), 1000 * 64),
        (lambda x: x[::2, ::-1], 500 * 64),
        (lambda x: x.T, 1000 * 64),
        (lambda x: x[:0].expand(5, 0, 64), 0),
    ],
    ids=["a row", "a column", "rows", "overlapping", "steps", "transposed", "nothing"],
)
def test_bytes_that_a_view_shows_more_than_once_are_counted_once(view: Callable[[Tensor], Tensor], read: int) -> None:
    x = Tensor(np.ones((1000, 64), np.float32)).realize()
    got, _, _ = counted(lambda: (view(x) * 3).realize())
    assert GlobalCounters.global_mem == 4 * read + got.nbytes


@pytest.mark.parametrize("make", [lambda: Tensor.zeros(1000), lambda: Tensor.arange(1000) * 2.5])
def test_the_first_write_to_a_computed_tensor_moves_no_more_than_it_writes(make: Callable[[], Tensor]) -> None:
    t = make().realize()
    five = Tensor([5.0]).realize()
    for i in range(3):
        GlobalCounters.reset()
        t[i : i + 1] = five
        t.realize()
        assert GlobalCounters.global_mem == 8


def test_a_constant_that_was_overwritten_in_one_tensor_is_still_itself_in_another() -> None:
    t, u = Tensor.arange(6) * 2, Tensor.arange(6) * 2
    t.realize()
    t[0] = 9
    both = t + u
    t[1] = 8
    assert both.tolist() == [9, 4, 8, 12, 16, 20]
    assert (t.tolist(), u.tolist()) == ([9, 8, 4, 6, 8, 10], [0, 2, 4, 6, 8, 10])


def attend(cache: Tensor, place: int, key: np.ndarray[Any, Any], query: np.ndarray[Any, Any]) -> Any:
    """One step of attention over a cache of keys (which are their own values)."""
    cache[:, place] = Tensor(key)
    seen = cache[:, : place + 1]
    weights = (Tensor(query).reshape(-1, 1) * seen).sum(0).softmax(-1)
    return (seen * weights.reshape(1, -1)).sum(1).numpy()


def test_a_cache_of_keys_is_written_in_place_and_compiled_for_a_few_lengths_only() -> None:
    rng = np.random.default_rng(0)
    width, length = 16, 256
    cache = Tensor.zeros(width, length).realize()
    expected = np.zeros((width, length), np.float32)
    for place in range(length):
        key, query = rng.standard_normal((2, width)).astype(np.float32)
        expected[:, place] = key
        got, _, texts = counted(lambda p=place, k=key, q=query: attend(cache, p, k, q))
        seen = expected[:, : place + 1]
        weights = np.exp(query @ seen - (query @ seen).max())
        assert np.allclose(got, seen @ (weights / weights.sum()), atol=1e-5)
        if place:  # one kernel reads what is seen, and no more: the cache is not copied, no scores are in memory
            assert GlobalCounters.global_mem == 4 * (80 + 16 * place)
        if place > 8:
            assert (GlobalCounters.plan_count, GlobalCounters.compile_count) == (0, 0)
            assert all("int64_t arg" in text for text in texts)


def test_kernelize_then_realize_moves_a_tensor_from_its_graph_to_its_buffer() -> None:
    a, b, c = (Tensor([float(k), float(k + 1)]) for k in range(3))
    mul = a * b
    out = mul + c
    assert out.uop.op.name == "add"
    out.kernelize()
    assert out.uop.op.name == "assign"
    target, kernel = out.uop.src
    assert (target.op.name, kernel.op.name, mul.uop.op.name) == ("buffer", "kernel", "mul")
    assert [s.op.name for s in kernel.src] == ["sink", *["buffer"] * 4]
    assert kernel.op.metadata == ("mul", "add")
    child = (out + 2).kernelize()
    assert target in child.uop.src[1].src
    got, kernels, _ = counted(child.tolist)
    assert (got, kernels) == ([4.0, 7.0], 2)
    assert out.realize().uop.op.name == "buffer"
    assert out.tolist() == [2.0, 5.0]


def test_schedule_runs_nothing_and_realize_runs_it() -> None:
    x, array = numbers()
    y = (x * 2).sum()
    GlobalCounters.reset()
    assert len(y.schedule()) == 1
    assert GlobalCounters.kernel_count == 0
    assert y.item() == array.sum() * 2
    assert GlobalCounters.kernel_count == 1


def test_running_sums_of_rows_in_a_recurrence_are_kernels_of_their_own() -> None:
    t, expected = zeros(6, 4)
    for i in range(1, 6):
        t[i] = t[i - 1].cumsum(0) + 1
        expected[i] = expected[i - 1].cumsum() + 1
    assert np.array_equal(t.numpy(), expected)


def test_an_irregular_mix_takes_tables_by_its_length_not_by_its_kinds() -> None:
    sizes: list[int] = []
    for kinds in (2, 8):
        rng, (t, expected) = random.Random(3), zeros(N + 1)

        def program(rng: random.Random = rng, t: Tensor = t, e: Any = expected, kinds: int = kinds) -> Any:
            for i in range(N):
                kind, j = rng.randrange(kinds), rng.randrange(i + 1)
                value, number = t[j], e[j]
                for _ in range(kind + 1):
                    value, number = value * 0.5 + 1, number * np.float32(0.5) + 1
                t[i + 1], e[i + 1] = value, number
            return t.numpy()

        got, kernels, _ = counted(program)
        assert np.array_equal(got, expected)
        assert kernels == 1
        sizes.append(GlobalCounters.table_bytes)
    assert sizes[0] == sizes[1] == 24 * N


def exchanged(pairs: list[tuple[int, int]], how: str) -> tuple[Tensor, np.ndarray[Any, Any]]:
    """Rows of a table exchanged in turn, and what comes of it."""
    array = np.arange(4 * N, dtype=np.float32).reshape(N, 4)
    a = Tensor(array).realize()
    expected = array.copy()
    for i, j in pairs:
        expected[[i, j]] = expected[[j, i]]
        if how == "views":
            first, second = a[i], a[j]
            kept = first.clone()
            first.assign(second)
            second.assign(kept)
        else:
            kept = a[i].clone() if how == "clone" else a[i] + 0
            a[i] = a[j]
            a[j] = kept
    return a, expected


@pytest.mark.parametrize("how", ["clone", "sum", "views"])
@pytest.mark.parametrize("irregular", [False, True])
def test_rows_exchanged_in_a_loop_are_one_kernel(how: str, irregular: bool) -> None:
    rng = random.Random(4)
    lengths: set[int] = set()
    for n in (N // 2, N - 1):
        plans.clear()
        pairs = [(rng.randrange(N), rng.randrange(N)) if irregular else (i, i + 1) for i in range(n)]
        a, expected = exchanged(pairs, how)
        got, kernels, texts = counted(a.numpy)
        assert np.array_equal(got, expected)
        assert kernels == 1
        assert (GlobalCounters.table_bytes > 0) == irregular
        lengths.add(len(texts[0]))
    assert max(lengths) - min(lengths) <= 8  # the digits of the number of turns


def test_what_only_the_slice_holds_is_not_kept() -> None:
    n = 50
    array = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
    a = Tensor(array).realize()
    expected = array.copy()
    for i in range(n - 1):
        expected[[i, i + 1]] = expected[[i + 1, i]]
        a[i], a[i + 1] = a[i + 1].clone(), a[i].clone()
    got, kernels, _ = counted(a.numpy)
    assert np.array_equal(got, expected)
    assert kernels == 1
    rows = 4 * (n - 1) + 3  # six in each turn, if an old row were kept for others
    assert GlobalCounters.global_mem == 12 * rows


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("where", [False, True])
def test_neighbours_compared_and_exchanged_are_one_sequential_kernel(rows: bool, where: bool) -> None:
    shape = (N, 3) if rows else (N,)
    array = np.random.default_rng(6).permutation(int(np.prod(shape))).astype(np.float32).reshape(shape)
    t, expected = Tensor(array).realize(), array.copy()

    def program() -> Any:
        for i in range(N - 1):
            a, b = t[i], t[i + 1]
            low = (a < b).where(a, b) if where else a.minimum(b)
            high = (a < b).where(b, a) if where else a.maximum(b)
            t[i] = low
            t[i + 1] = high
        return t.numpy()

    for i in range(N - 1):
        a, b = expected[i].copy(), expected[i + 1].copy()
        expected[i], expected[i + 1] = np.minimum(a, b), np.maximum(a, b)
    got, kernels, _ = counted(program)
    assert np.array_equal(got, expected)
    assert (kernels, GlobalCounters.table_bytes) == (1, 0)


def test_parts_of_a_product_written_in_a_recurrence_are_one_kernel() -> None:
    w = (np.arange(64, dtype=np.float32).reshape(8, 8) % 5 - 2) / 8
    expected = np.ones((N, 8), np.float32)
    t, weights = Tensor(expected).realize(), Tensor(w)

    def program() -> Any:
        for i in range(1, N):
            h = t[i - 1] @ weights
            t[i, :4] = h[:4]
            t[i, 4:] = h[4:]
        return t.numpy()

    for i in range(1, N):
        expected[i] = expected[i - 1] @ w
    got, kernels, _ = counted(program)
    assert np.allclose(got, expected, rtol=1e-4, atol=1e-6)
    assert kernels == 1


def test_loops_through_the_parts_of_a_few_values_are_whole_array_writes() -> None:
    x, w = Tensor(np.eye(8, dtype=np.float32)), Tensor(np.arange(128, dtype=np.float32).reshape(2, 8, 8))
    t, expected = zeros(2, 8, 8)

    def program() -> Any:
        for k in range(2):
            q = x @ w[k]
            for i in range(8):
                t[k, i] = q[i] + i
                expected[k, i] = np.arange(8) + 8 * i + 64 * k + i
        return t.numpy()

    got, kernels, _ = counted(program)
    assert np.array_equal(got, expected)
    assert kernels <= 4


def test_an_old_value_that_is_kept_of_a_turn_outlives_the_exchange() -> None:
    a, expected = Tensor(np.arange(4.0 * N).reshape(N, 4)).realize(), np.arange(4.0 * N).reshape(N, 4)
    kept, values = [], []
    for i in range(N - 1):
        row = a[i].clone()
        if i % 50 == 7:
            kept.append(row)
            values.append(expected[i].copy())
        a[i] = a[i + 1]
        a[i + 1] = row
        expected[[i, i + 1]] = expected[[i + 1, i]]
    assert np.array_equal(a.numpy(), expected)
    for row, value in zip(kept, values, strict=True):
        assert np.array_equal(row.numpy(), value)


@pytest.mark.parametrize(
    "row", [lambda i: Tensor([i, i + 1, i + 2]), lambda i: [i, i + 1, i + 2], lambda i: np.arange(i, i + 3)]
)
def test_rows_from_the_host_are_one_kernel(row: Callable[[int], Any]) -> None:
    for n in (50, 400):
        t = Tensor.zeros(n, 3, dtype=dtypes.int64).realize()

        def write(n: int = n, t: Tensor = t) -> list[Any]:
            for i in range(n):
                t[i] = row(i)
            return t.tolist()

        got, kernels, _ = counted(write)
        assert got == [[i, i + 1, i + 2] for i in range(n)]
        assert kernels == 1


@pytest.mark.parametrize("rows", [1, 8])
def test_attention_of_few_rows_stores_no_scores(rows: int) -> None:
    """One kernel that reads its operands once, writes its result, and needs no other bytes."""
    operands = [Tensor(np.ones((1, 12, n, 64), np.float32)).realize() for n in (rows, 2000, 2000)]
    gc.collect()  # what other tests left behind is not freed in between
    device_of("CPU").allocator.collect()
    GlobalCounters.reset()
    before, (q, k, v) = GlobalCounters.mem_used, operands
    with Context(threads=2):  # fewer than heads
        out = q.scaled_dot_product_attention(k, v).realize()
    moved = sum(t.nbytes for t in operands) + out.nbytes
    assert (GlobalCounters.kernel_count, GlobalCounters.launch_count, GlobalCounters.global_mem) == (1, 1, moved)
    assert (GlobalCounters.mem_used, GlobalCounters.peak) == (before + out.nbytes, before + out.nbytes)


@pytest.mark.parametrize("program", ["attention", "causal", "written out", "two maps"])
def test_chains_of_products_store_nothing_between_them(program: str) -> None:
    """One kernel that reads its operands once, writes its result, and needs no other bytes."""
    q, k, v = (Tensor(np.ones((3, 4, 300, 32), np.float32)).realize() for _ in range(3))
    a, b = Tensor(np.ones((32, 500), np.float32)).realize(), Tensor(np.ones((500, 32), np.float32)).realize()
    gc.collect()  # what other tests left behind is not freed in between
    x = Tensor(np.ones((800, 32), np.float32)).realize()
    GlobalCounters.reset()
    before, operands = GlobalCounters.mem_used, (q, k, v)
    match program:
        case "attention":
            out = q.scaled_dot_product_attention(k, v)
        case "causal":
            out = q.scaled_dot_product_attention(k, v, is_causal=True)
        case "written out":
            keep = Tensor.ones(300, 300).tril() != 0
            out = keep.where(q @ k.transpose(-1, -2) * 0.25, -1e9).softmax(-1) @ v
        case _:
            out, operands = (x @ a).gelu() @ b, (x, a, b)
    out.realize()
    moved = sum(t.nbytes for t in operands) + out.nbytes
    assert (GlobalCounters.kernel_count, GlobalCounters.launch_count, GlobalCounters.global_mem) == (1, 1, moved)
    assert (GlobalCounters.mem_used, GlobalCounters.peak) == (before + out.nbytes, before + out.nbytes)
