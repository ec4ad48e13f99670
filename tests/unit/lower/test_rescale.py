"""Sums of exponentials by blocks of columns: exact enough, right where numbers are not finite, and little scratch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Context, GlobalCounters, Tensor
from intaglio.core.dtypes import dtypes
from intaglio.core.target import Target
from intaglio.engine.devices import device_of
from intaglio.ir.node import make
from intaglio.ir.view import View
from intaglio.lower import rows as row_stores
from intaglio.lower.rescale import COLUMNS, HIGH, column_block, row_block
from intaglio.ops.elementwise import lt, where
from intaglio.ops.memory import Param, iota, window
from intaglio.ops.movement import expand, permute, reshape
from intaglio.ops.rescaling import Exponentials
from intaglio.storage.flush import plans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RNG = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    """Normal numbers in single precision."""
    return RNG.standard_normal(shape).astype(np.float32)


def forget() -> None:
    """Have all kernels lowered anew."""
    plans.clear()
    device_of("CPU")._kernels.clear()


@pytest.fixture(autouse=True)
def every_row_is_long(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rows of any length go by in blocks of columns."""
    monkeypatch.setattr(row_stores, "are_long", lambda *_: True)
    forget()
    yield
    forget()


def whole(program: Callable[[], Tensor]) -> np.ndarray[Any, Any]:
    """A value computed by whole rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_stores, "are_long", lambda *_: False)
        forget()
        made = in_one(program())
    forget()
    return made


def in_one(value: Tensor) -> np.ndarray[Any, Any]:
    """A value that is computed by one kernel."""
    GlobalCounters.reset()
    value.realize()
    assert GlobalCounters.kernel_count == 1
    return value.numpy()


def exact(q: np.ndarray[Any, Any], k: np.ndarray[Any, Any], v: np.ndarray[Any, Any], keep: Any) -> np.ndarray[Any, Any]:
    """Attention in double precision."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    with np.errstate(all="ignore"):
        s = np.where(keep, q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1]), -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        return e @ v / e.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("n", "m", "d", "e"),
    [
        (16, 1024, 2, 2), (17, 1030, 5, 17), (63, 255, 16, 33), (65, 256, 64, 64), (129, 257, 40, 15),
        (300, 513, 8, 96), (100, 2048, 64, 64), (40, 1023, 3, 2),
    ],
)  # fmt: skip
@pytest.mark.parametrize("causal", [False, True])
def test_of_any_size(n: int, m: int, d: int, e: int, causal: bool) -> None:
    q, k, v = normal(2, n, d), normal(2, m, d), normal(2, m, e)
    out = in_one(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=causal))
    keep = np.tril(np.ones((n, m), np.bool_)) if causal else np.True_
    np.testing.assert_allclose(out, exact(q, k, v, keep), rtol=0, atol=4e-6)


def test_errors_do_not_grow_with_the_columns() -> None:
    q, k, v = normal(32, 16) * 4, normal(20_000, 16), normal(20_000, 8)
    want = exact(q, k, v, np.True_)
    program = lambda: Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v))  # noqa: E731
    error, before = (np.abs(out - want).max() for out in (in_one(program()), whole(program)))
    assert error <= 2 * before + 1e-7


def test_growing_maxima_are_followed() -> None:
    q, v = np.ones((20, 2), np.float32), normal(1500, 3)
    k = np.stack([np.arange(1500), np.zeros(1500)], 1).astype(np.float32)  # each block is far above the one before
    for keys in (k, k[::-1].copy(), -k, k * 0):
        x, y, z = (Tensor(a).realize() for a in (q, keys, v))
        want = whole(lambda x=x, y=y, z=z: x.scaled_dot_product_attention(y, z))
        np.testing.assert_allclose(in_one(x.scaled_dot_product_attention(y, z)), want, rtol=0, atol=1e-6)


def test_softmax_as_it_is_written_by_hand() -> None:
    q, k, v = normal(2, 90, 24), normal(2, 700, 24), normal(2, 700, 12)
    out = in_one((Tensor(q) @ Tensor(k).transpose(-1, -2) / math.sqrt(24)).softmax(-1) @ Tensor(v) + 1)
    np.testing.assert_allclose(out, exact(q, k, v, np.True_) + 1, rtol=0, atol=4e-6)


@pytest.mark.parametrize("shift", [-300, -1, 0, 64, 500])
@pytest.mark.parametrize("low", [-math.inf, -1e9, 0.0])
def test_what_a_mask_cuts_off_is_skipped_to_the_bit(shift: int, low: float) -> None:
    n, m = 350, 700
    q, k, v = (Tensor(normal(2, r, 24)) for r in (n, m, m))
    scores = q @ k.transpose(-1, -2)
    ones = Tensor.ones(n, m)

    for computed in (ones.tril(shift), ones.triu(shift)):
        known = Tensor(computed.numpy() != 0)
        out = in_one(computed.cast("bool").where(scores, low).softmax(-1) @ v)
        np.testing.assert_array_equal(out, in_one(known.where(scores, low).softmax(-1) @ v))


@pytest.mark.parametrize("widths", [(0, -64), (-64, 0), (20, -300), (-1, -1)])
def test_a_window_of_two_masks(widths: tuple[int, int]) -> None:
    n = 600
    q, k, v = normal(n, 24), normal(n, 24), normal(n, 24)
    first, second = Tensor.ones(n, n).tril(widths[0]).cast("bool"), Tensor.ones(n, n).triu(widths[1]).cast("bool")
    keep = np.tril(np.ones((n, n), np.bool_), widths[0]) & np.triu(np.ones((n, n), np.bool_), widths[1])
    want = exact(q, k, v, keep)
    for mask in (first & second, second & first):
        out = in_one(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), mask))
        np.testing.assert_allclose(out, want, rtol=0, atol=4e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 70, 290, 599])
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_what_is_not_finite_goes_where_the_formula_sends_it(bad: float, place: int, which: int, causal: bool) -> None:
    operands = normal(600, 16), normal(600, 16), normal(600, 16)
    operands[which][place, 7] = bad
    q, k, v = (Tensor(x).realize() for x in operands)
    out = in_one(q.scaled_dot_product_attention(k, v, is_causal=causal))
    want = whole(lambda: q.scaled_dot_product_attention(k, v, is_causal=causal))
    np.testing.assert_array_equal(np.isnan(out), np.isnan(want))
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)


def test_rows_without_columns_are_nan_and_late_ones_are_not() -> None:
    q, k, v = normal(150, 20), normal(600, 20), normal(600, 30)
    keep = np.ones((150, 600), np.bool_)
    keep[10] = False
    keep[20:40, :400] = False  # the first blocks are nothing but -inf
    keep[50, 1:] = False
    out = in_one(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), Tensor(keep)))
    assert np.isnan(out[10]).all()
    assert np.isfinite(np.delete(out, 10, 0)).all()
    np.testing.assert_allclose(np.delete(out, 10, 0), np.delete(exact(q, k, v, keep), 10, 0), rtol=0, atol=4e-6)


@pytest.mark.parametrize("bad", [-math.inf, math.inf, math.nan])
def test_sums_that_are_not_divided_are_nan_where_the_largest_is_not_finite(bad: float) -> None:
    q, k, v, bias = normal(40, 24), normal(700, 24), normal(700, 12), np.zeros((40, 700), np.float32)
    bias[3] = bad
    bias[5, :600] = -math.inf
    scores = Tensor(q) @ Tensor(k).T + Tensor(bias)
    out = in_one((scores - scores.max(1, keepdim=True)).exp() @ Tensor(v))
    assert np.isnan(out[3]).all()
    with np.errstate(all="ignore"):
        s = q.astype(np.float64) @ k.T + bias
        want = np.exp(s - s.max(1, keepdims=True)) @ v
    np.testing.assert_allclose(out, want, rtol=0, atol=1e-4)


def test_numbers_added_to_scores() -> None:
    q, k, v, bias = normal(3, 90, 20), normal(3, 530, 20), normal(3, 530, 12), normal(90, 530)
    out = in_one(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), Tensor(bias)))
    s = q.astype(np.float64) @ np.swapaxes(k, 1, 2) / math.sqrt(20) + bias
    e = np.exp(s - s.max(-1, keepdims=True))
    np.testing.assert_allclose(out, e @ v / e.sum(-1, keepdims=True), rtol=0, atol=4e-6)


def test_double_precision() -> None:
    q, k, v = (RNG.standard_normal(shape) for shape in ((100, 32), (700, 32), (700, 10)))
    out = in_one(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=True))
    np.testing.assert_allclose(out, exact(q, k, v, np.tril(np.ones((100, 700), np.bool_))), rtol=0, atol=1e-14)


@pytest.mark.parametrize("causal", [False, True])
def test_threads_change_no_bit(causal: bool) -> None:
    q, k, v = (Tensor(normal(3, 500, 32)).realize() for _ in range(3))
    outs: list[np.ndarray[Any, Any]] = []
    for threads in (1, 2, 3):
        with Context(threads=threads):
            outs.append(in_one(q.scaled_dot_product_attention(k, v, is_causal=causal)))
            forget()
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_array_equal(outs[0], outs[2])


def test_transposed_heads() -> None:
    q, k, v = (normal(2, 390, 3, 20) for _ in range(3))
    x, y, z = (Tensor(a).transpose(1, 2) for a in (q, k, v))
    out = in_one(x.scaled_dot_product_attention(y, z).transpose(1, 2).contiguous())
    want = exact(*(np.swapaxes(a, 1, 2) for a in (q, k, v)), np.True_)
    np.testing.assert_allclose(out, np.swapaxes(want, 1, 2), rtol=0, atol=4e-6)


def test_the_interpreter_agrees() -> None:
    q, k, v = normal(18, 6), normal(270, 6), normal(270, 5)
    x, y, z = (Tensor(a, device="PYTHON") for a in (q, k, v))
    out = x.scaled_dot_product_attention(y, z, is_causal=True).numpy()
    np.testing.assert_allclose(out, exact(q, k, v, np.tril(np.ones((18, 270), np.bool_))), rtol=0, atol=4e-6)


def test_blocks_of_columns_are_whole_where_they_can_be() -> None:
    assert [column_block(n) for n in (4096, 3 * 1024, 1 << 20)] == [COLUMNS] * 3
    assert column_block(192 * 7) == 192
    assert column_block(100) == 100
    assert column_block(4099) == COLUMNS


def test_blocks_of_rows_fit_and_leave_threads_some() -> None:
    scores = window(View.contiguous(dtypes.float32, (4096, 4096)), make(Param(0, dtypes.float32, 0)))
    places = expand(reshape(iota(4096), (1, 4096)), (4096, 4096))
    masked = where(lt(places, permute(places, (1, 0))), scores, scores)
    plain, causal = (Exponentials(x, (), x) for x in (scores, masked))
    large = Target("large", 64, level2=1 << 21)
    assert row_block(plain, 1, 4096, large) == HIGH
    assert row_block(causal, 1, 4096, large) == HIGH // 2
    assert row_block(plain, 1, 4096, Target("small", 64, level2=1 << 18)) == 64
    two = Target("large", 64, threads=2, level2=1 << 21)
    assert [row_block(plain, 1, rows, two) for rows in (20, 128, 256, 1024, 4096)] == [10, 64, 64, 128, HIGH]
    assert row_block(plain, 8, 64, two) == 64


def test_code_for_any_target_is_right_without_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = normal(90, 4), normal(290, 4), normal(290, 4)
    monkeypatch.setattr("intaglio.engine.devices.host_target", lambda _: Target("plain", 0))
    out = in_one(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v)))
    np.testing.assert_allclose(out, exact(q, k, v, np.True_), rtol=0, atol=4e-6)
