"""Chains of few rows by sheets: attention of one row in one kernel, at fixed sizes and at any; little scratch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Context, GlobalCounters, Tensor
from intaglio.core.size import at
from intaglio.engine.devices import device_of, load
from intaglio.engine.waves import estimated
from intaglio.lower import sheets
from intaglio.ops.scratch import SHEET, scratch_of
from intaglio.schedule import chains
from intaglio.schedule.kernels import PlannedKernel
from intaglio.storage.flush import plans

if TYPE_CHECKING:
    from collections.abc import Iterator

RNG = np.random.default_rng(9)
TOLERANCES = {"float32": 4e-6, "float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-14}


def normal(*shape: int) -> np.ndarray[Any, Any]:
    """Normal numbers in single precision."""
    return RNG.standard_normal(shape).astype(np.float32)


def exact(q: np.ndarray[Any, Any], k: np.ndarray[Any, Any], v: np.ndarray[Any, Any], mask: Any = 0.0) -> Any:
    """Attention in double precision."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    with np.errstate(all="ignore"):
        s = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1]) + mask
        e = np.exp(s - s.max(-1, keepdims=True))
        return e @ v / e.sum(-1, keepdims=True)


def kernels_of(value: Tensor) -> int:
    """How many kernels compute a value."""
    GlobalCounters.reset()
    value.realize()
    return GlobalCounters.kernel_count


def in_one(value: Tensor) -> np.ndarray[Any, Any]:
    """A value that is computed by one kernel."""
    assert kernels_of(value) == 1
    return value.numpy()


def forget() -> None:
    """Have all kernels planned and lowered anew."""
    plans.clear()
    device_of("CPU")._kernels.clear()


@pytest.fixture(autouse=True)
def few_threads() -> Iterator[None]:
    """Fewer threads than sheets."""
    with Context(threads=2):
        yield


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Scratch of 64 numbers of single precision for each value of a sheet."""
    for module in (chains, sheets):
        monkeypatch.setattr(module, "SHEET", 256)
    forget()
    yield 64
    forget()


@pytest.mark.parametrize("rows", [1, 2, 7, 15])
@pytest.mark.parametrize(
    ("lead", "n", "d", "e"),
    [
        ((12,), 2, 64, 64), ((1, 12), 33, 32, 32), ((2, 5), 300, 80, 17), ((8,), 1030, 128, 128),
        ((3, 1, 4), 20, 7, 48), ((1,), 100, 64, 64), ((), 37, 16, 24),
    ],
)  # fmt: skip
@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_few_rows_of_any_size(
    rows: int, lead: tuple[int, ...], n: int, d: int, e: int, masked: bool
) -> None:
    q, k, v = normal(*lead, rows, d), normal(*lead, n, d), normal(*lead, n, e)
    keep = np.tril(np.ones((rows, n), np.bool_)) if masked else np.True_
    out = in_one(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=masked))
    np.testing.assert_allclose(out, exact(q, k, v, np.where(keep, 0, -np.inf)), rtol=0, atol=4e-6)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("rows", [1, 3])
def test_attention_of_other_dtypes_over_parts_of_caches(dtype: str, rows: int) -> None:
    q = Tensor(normal(2, rows, 6, 32)).cast(dtype).realize().transpose(1, 2)
    k, v = (Tensor(normal(2, 6, 200, 32)).cast(dtype).realize()[:, :, 5:150] for _ in range(2))
    bias = normal(rows, 145)
    out = q.scaled_dot_product_attention(k, v, Tensor(bias))
    assert out.dtype.name == ("float64" if dtype == "float64" else dtype)
    want = exact(*(x.cast("float64").numpy() for x in (q, k, v)), bias)
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(out.cast("float64").numpy(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", [(1, 90), (12, 1, 90), (1, 1, 90)])
def test_what_a_mask_leaves_out(shape: tuple[int, ...]) -> None:
    q, k, v = normal(12, 1, 24), normal(12, 90, 24), normal(12, 90, 24)
    keep = RNG.random(shape) < 0.5
    keep[..., 3] = True
    out = in_one(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), Tensor(keep)))
    np.testing.assert_allclose(out, exact(q, k, v, np.where(keep, 0, -np.inf)), rtol=0, atol=4e-6)
    nothing = Tensor(np.zeros((1, 90), np.bool_))
    assert np.isnan(in_one(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), nothing))).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_is_not_finite_stays_in_its_sheet(bad: float, which: int) -> None:
    operands = normal(9, 1, 16), normal(9, 50, 16), normal(9, 50, 16)
    operands[which][4, -1, 7] = bad
    out = in_one(Tensor(operands[0]).scaled_dot_product_attention(*map(Tensor, operands[1:])))
    np.testing.assert_array_equal(np.isfinite(out), np.isfinite(exact(*operands)))
    assert np.isfinite(out[np.arange(9) != 4]).all()


def test_one_key_and_value_for_all_heads() -> None:
    q, k, v = normal(2, 12, 1, 32), normal(2, 1, 70, 32), normal(2, 1, 70, 32)
    out = in_one(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v)))
    np.testing.assert_allclose(out, exact(q, k, v), rtol=0, atol=4e-6)


def test_threads_change_no_bit() -> None:
    q, k, v = (Tensor(normal(1, 11, n, 64)).realize() for n in (1, 3000, 3000))
    outs: list[np.ndarray[Any, Any]] = []
    for threads in (1, 2, 3):
        with Context(threads=threads):
            outs.append(in_one(q.scaled_dot_product_attention(k, v)))
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_array_equal(outs[0], outs[2])


def test_threads_share_the_heads_of_a_cache_of_any_size_where_it_is_long() -> None:
    forget()
    keys, values = (Tensor(normal(1, 12, 2500, 64)).realize() for _ in range(2))
    q = Tensor(normal(1, 12, 1, 64)).realize()
    sizes = (20, 40, 2000, 2011)
    outs: list[list[np.ndarray[Any, Any]]] = []
    for threads in (1, 2, 3):
        plans.clear()
        with Context(threads=threads):
            for n in range(3, 16):
                q.scaled_dot_product_attention(keys[:, :, :n], values[:, :, :n]).realize()
            many = [q.scaled_dot_product_attention(keys[:, :, :n], values[:, :, :n]) for n in sizes]
            shared: list[bool] = []
            for out in many:
                (kernel,) = out.schedule()
                assert isinstance(kernel, PlannedKernel)
                assert kernel.size_slot is not None
                lowered = load(kernel).lowered
                cost = estimated(kernel.nbytes, at(lowered.flops, kernel.size))
                shared.append(lowered.parallel and cost >= lowered.worth)
            assert shared == [False, False, *[device_of("CPU").target.threads > 1] * 2]
            outs.append([out.numpy() for out in many])
    for others in outs[1:]:
        for one, other in zip(outs[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("heads", [1, 3, 12])
def test_a_cache_that_grows_is_one_kernel_which_is_compiled_for_few_lengths(heads: int) -> None:
    forget()
    cache, width = 300, 32
    keys, values = (Tensor(normal(1, heads, cache, width)).realize() for _ in range(2))
    q = Tensor(normal(1, heads, 1, width)).realize()
    for n in (5, 6, 7, 8, 31, 64, 129, 300):
        out = q.scaled_dot_product_attention(keys[:, :, :n], values[:, :, :n])
        assert kernels_of(out) == 1
        assert GlobalCounters.global_mem == 4 * heads * width * (2 + 2 * n)  # no scores
        assert n < 9 or (GlobalCounters.plan_count, GlobalCounters.compile_count) == (0, 0)
        known = out.numpy()
        np.testing.assert_allclose(
            known, exact(*(t.numpy() for t in (q, keys[:, :, :n], values[:, :, :n]))), atol=4e-6, rtol=0
        )
        with pytest.MonkeyPatch.context() as patch:  # the kernel for that size alone
            patch.setattr(plans.__class__, "_of_any_size", lambda *_: None)
            patch.setattr(plans, "_known", {})
            patch.setattr(plans, "_recalled", {})
            alone = in_one(q.scaled_dot_product_attention(keys[:, :, :n], values[:, :, :n]))
        if n >= 16:  # a vector, in which the weights are summed
            np.testing.assert_array_equal(known, alone)


def test_a_cache_that_outgrows_the_room_of_scratch(little_room: int) -> None:
    keys, values = (Tensor(normal(1, 12, 200, 16)).realize() for _ in range(2))
    q = Tensor(normal(1, 12, 1, 16)).realize()
    compiled: dict[int, int] = {}
    for n in range(50, 90):
        out = q.scaled_dot_product_attention(keys[:, :, :n], values[:, :, :n])
        assert kernels_of(out) == (1 if n <= little_room else 3)
        compiled[n] = GlobalCounters.compile_count
        want = exact(*(t.numpy() for t in (q, keys[:, :, :n], values[:, :, :n])))
        np.testing.assert_allclose(out.numpy(), want, atol=4e-6, rtol=0)
    assert not any(count for n, count in compiled.items() if 55 < n <= little_room or n > little_room + 1)


@pytest.mark.parametrize("n", [100, 20_000])
def test_weights_take_the_bytes_of_scores(n: int) -> None:
    q, k, v = (Tensor.zeros(8, m, 64).realize() for m in (1, n, n))
    out = q.scaled_dot_product_attention(k, v)
    (kernel,) = out.schedule()
    out.realize()
    assert isinstance(kernel, PlannedKernel)
    assert scratch_of(load(kernel).lowered.linear)[1] in (0, -(-4 * n // 64) * 64)


def test_scores_without_room_are_stored() -> None:
    n = SHEET // 4 + 1  # keys
    q, k, v = (Tensor(normal(8, m, 4)).realize() for m in (1, n, n))
    out = q.scaled_dot_product_attention(k, v)
    assert kernels_of(out) == 3
    np.testing.assert_allclose(out.numpy(), exact(*(t.numpy() for t in (q, k, v))), rtol=0, atol=4e-6)


@pytest.mark.parametrize(("heads", "threads"), [(1, 2), (7, 1), (12, 16)])
def test_few_sheets_with_much_to_do_are_shared_by_threads_as_they_were(heads: int, threads: int) -> None:
    q, k, v = (Tensor(normal(1, heads, m, 64)).realize() for m in (1, 30_000 // heads, 30_000 // heads))
    plans.clear()
    out = q.scaled_dot_product_attention(k, v)
    with Context(threads=threads):
        assert kernels_of(out) == 3
    np.testing.assert_allclose(out.numpy(), exact(*(t.numpy() for t in (q, k, v))), rtol=0, atol=4e-6)


@pytest.mark.parametrize("n", [20, 100])
def test_what_is_reduced_along_the_rows_of_a_sheet(n: int) -> None:
    q, k, v = normal(12, 4, 16), normal(12, n, 16), normal(12, n, 16)
    scores = Tensor(q) @ Tensor(k).transpose(1, 2)
    out = in_one((scores.softmax(1) * scores) @ Tensor(v))
    s = q.astype(np.float64) @ np.swapaxes(k, 1, 2)
    e = np.exp(s - s.max(1, keepdims=True))
    np.testing.assert_allclose(out, (e / e.sum(1, keepdims=True) * s) @ v, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 5])
def test_gradients_of_attention_of_few_rows(rows: int) -> None:
    arrays = normal(3, rows, 16), normal(3, 40, 16), normal(3, 40, 24)
    q, k, v = (Tensor(a).requires_grad_() for a in arrays)
    weights = normal(3, rows, 24)
    (q.scaled_dot_product_attention(k, v) * Tensor(weights)).sum().backward()
    for which, tensor in enumerate((q, k, v)):
        assert tensor.grad is not None
        step = normal(*arrays[which].shape).astype(np.float64)
        ends = [exact(*(a + s * step if j == which else a for j, a in enumerate(arrays))) for s in (1e-5, -1e-5)]
        want = ((ends[0] - ends[1]) * weights).sum() / 2e-5
        np.testing.assert_allclose((tensor.grad.numpy() * step).sum(), want, rtol=1e-4, atol=1e-4)


def test_what_is_seen_of_a_long_cache_counts_and_no_more() -> None:
    q, k, v = normal(1, 2, 1, 64), normal(1, 2, 20_000, 64), normal(1, 2, 20_000, 64)
    cache = [Tensor(x).realize() for x in (k, v)]
    own = Tensor(q).realize()
    got = in_one(own.scaled_dot_product_attention(*(x[:, :, :100] for x in cache)))
    assert np.abs(got - exact(q, k[:, :, :100], v[:, :, :100])).max() < TOLERANCES["float32"]
