"""Chains of products by blocks of rows: the same numbers as apart, whatever is cut off, and little scratch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from intaglio import Context, Tensor
from intaglio.core.dtypes import dtypes
from intaglio.core.target import Target
from intaglio.core.trace import GlobalCounters
from intaglio.ir.node import Node, make, substitute, toposort
from intaglio.lower.blocks import FEWEST, ROWS, SCRATCH, block_rows
from intaglio.lower.emit import Emitter
from intaglio.lower.index import Index, number
from intaglio.lower.limits import Compared, cut_of
from intaglio.ops.elementwise import add, cast, le, lt, ne, where
from intaglio.ops.loop import Range
from intaglio.ops.memory import Arg, Const, const

RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    """Normal numbers in single precision."""
    return RNG.standard_normal(shape).astype(np.float32)


def exact(q: np.ndarray[Any, Any], k: np.ndarray[Any, Any], v: np.ndarray[Any, Any], keep: Any) -> np.ndarray[Any, Any]:
    """Attention in double precision."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    with np.errstate(all="ignore"):
        s = np.where(keep, q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1]), -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        return e @ v / e.sum(-1, keepdims=True)


def in_one(value: Tensor) -> np.ndarray[Any, Any]:
    """A value that is computed by one kernel."""
    GlobalCounters.reset()
    value.realize()
    assert GlobalCounters.kernel_count == 1
    return value.numpy()


@pytest.mark.parametrize(
    ("n", "m", "d", "e"),
    [(16, 1024, 2, 2), (63, 300, 5, 17), (64, 257, 16, 33), (65, 256, 64, 64), (129, 129, 40, 15), (300, 1100, 8, 96)],
)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_any_size(n: int, m: int, d: int, e: int, causal: bool) -> None:
    q, k, v = normal(2, n, d), normal(2, m, d), normal(2, m, e)
    out = in_one(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=causal))
    keep = np.tril(np.ones((n, m), np.bool_)) if causal else np.True_
    np.testing.assert_allclose(out, exact(q, k, v, keep), rtol=0, atol=4e-6)


@pytest.mark.parametrize("shift", [-70, -1, 0, 3, 64, 500])
@pytest.mark.parametrize("low", [-math.inf, -1e9, 0.0])
def test_what_a_mask_cuts_off_is_skipped_to_the_bit(shift: int, low: float) -> None:
    n, m = 150, 190
    q, k, v = (Tensor(normal(2, r, 24)) for r in (n, m, m))
    ones = Tensor.ones(n, m)
    for computed in (ones.tril(shift), ones.triu(shift)):
        known = Tensor(computed.numpy() != 0)
        out = in_one(computed.cast(Tensor.bool_dtype).where(q @ k.transpose(-1, -2), low).softmax(-1) @ v)
        np.testing.assert_array_equal(out, in_one(known.where(q @ k.transpose(-1, -2), low).softmax(-1) @ v))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38])
@pytest.mark.parametrize("place", [0, 70, 199])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_is_not_finite_goes_where_the_formula_sends_it(bad: float, place: int, which: int) -> None:
    operands = normal(200, 16), normal(200, 16), normal(200, 16)
    operands[which][place, 7] = bad
    q, k, v = operands
    keep = np.tril(np.ones((200, 200), np.bool_))
    out = in_one(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=True))
    known = in_one(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), Tensor(keep)))
    np.testing.assert_array_equal(out, known)
    if bad != 3e38:  # of which products overflow in single precision alone
        np.testing.assert_array_equal(np.isfinite(out), np.isfinite(exact(q, k, v, keep)))


def test_rows_with_no_column_are_nan() -> None:
    q, v = normal(150, 20), normal(150, 30)
    out = in_one(
        (Tensor.ones(150, 150).tril(-40) != 0).where(Tensor(q) @ Tensor(q).T, -math.inf).softmax(-1) @ Tensor(v)
    )
    assert np.isnan(out[:40]).all()
    assert np.isfinite(out[40:]).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_attention_of_other_dtypes(dtype: str) -> None:
    q, k, v = (Tensor(normal(3, 140, 32)).cast(dtype).realize() for _ in range(3))
    out = q.scaled_dot_product_attention(k, v, is_causal=True)
    assert out.dtype.name == dtype
    keep = np.tril(np.ones((140, 140), np.bool_))
    want = exact(*(x.cast("float64").numpy() for x in (q, k, v)), keep)
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-14}[dtype]
    np.testing.assert_allclose(out.cast("float64").numpy(), want, rtol=tolerance, atol=tolerance)


def test_threads_change_no_bit() -> None:
    q, k, v = (Tensor(normal(3, 500, 32)).realize() for _ in range(3))
    outs: list[np.ndarray[Any, Any]] = []
    for threads in (1, 2, 3):
        with Context(threads=threads):
            outs.append(in_one(q.scaled_dot_product_attention(k, v, is_causal=True)))
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_array_equal(outs[0], outs[2])


def test_transposed_heads() -> None:
    q, k, v = (normal(2, 90, 3, 20) for _ in range(3))
    x, y, z = (Tensor(a).transpose(1, 2) for a in (q, k, v))
    out = in_one(x.scaled_dot_product_attention(y, z).transpose(1, 2).contiguous())
    want = exact(*(np.swapaxes(a, 1, 2) for a in (q, k, v)), np.True_)
    np.testing.assert_allclose(out, np.swapaxes(want, 1, 2), rtol=0, atol=4e-6)


def test_a_chain_of_matrices_with_an_activation() -> None:
    x, a, b = normal(700, 48), normal(48, 300), normal(300, 24)
    out = in_one((Tensor(x) @ Tensor(a)).relu() @ Tensor(b) + 1.0)
    want = np.maximum(x.astype(np.float64) @ a, 0) @ b + 1
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("width", [48, 130, 200])
def test_a_chain_of_square_matrices_reads_each_row_whole(width: int) -> None:
    x, matrices = normal(500, width), [normal(width, width) / 16 for _ in range(4)]
    out, want = Tensor(x), x.astype(np.float64)
    for m in matrices:
        out, want = (out @ Tensor(m)).relu(), np.maximum(want @ m, 0)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-3)


def test_blocks_are_of_about_equal_size_and_fit() -> None:
    for rows in (16, 17, 63, 64, 65, 100, 127, 513, 5000):
        for line in (4, 2048, 1 << 15, 1 << 18):
            for level2 in (1 << 18, 1 << 20, 1 << 24):
                height = block_rows(rows, line, level2)
                blocks = -(-rows // height)
                assert height * line <= max(SCRATCH, FEWEST * line)
                assert 1 <= height <= min(rows, ROWS)
                assert blocks * height - rows < blocks


@pytest.mark.parametrize("test", [lt, le])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("slope", [-2, 0, 1])
@pytest.mark.parametrize("shift", [-40, -1, 0, 5, 33])
def test_cuts_are_where_a_comparison_is_decided(test: Any, swapped: bool, slope: int, shift: int) -> None:
    height, width, unit = 7, 64, 8
    index = Index()
    emitter = Emitter(index, Target())
    row, column, first = (make(Range(k), number(n)) for k, n in enumerate((height, width, 100)))
    sides = column, index.sum([(row, slope), (first, 1)], shift)
    comparison = test(*reversed(sides)) if swapped else test(*sides)
    value = where(comparison, add(column, number(1)), number(0))
    cut = cut_of(emitter, value, column, Compared(row, height, emitter.bit(first)), unit)
    assert cut is not None

    def at(node: Node, **places: int) -> int:
        found = {"row": row, "column": column, "first": first}
        (made,) = substitute((node,), {found[k]: number(n) for k, n in places.items()})
        done: dict[Node, int] = {}
        for n in toposort((made,)):
            done[n] = int(n.op.value) if isinstance(n.op, Const) else int(n.op.evaluate(*(done[s] for s in n.src)))  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType] -- elementwise
        return done[made]

    for start in range(0, 60, 13):
        low, high = at(cut.low, first=start), at(cut.high, first=start)
        assert low % unit == high % unit == 0
        for r in range(height):
            for c in range(width):
                found = cut.before if c < low else cut.beyond if c >= high else value
                assert at(found, row=r, column=c, first=start) == at(value, row=r, column=c, first=start)


def test_a_mask_of_numbers_is_seen_through() -> None:
    emitter = Emitter(Index(), Target())
    row, column = make(Range(0), number(8)), make(Range(1), number(32))
    ones = where(le(column, row), const(dtypes.float32, 1), const(dtypes.float32, 0))
    kept, masked = make(Arg(0, dtypes.float32)), make(Arg(1, dtypes.float32))
    for flag in (cast(ones, dtypes.bool), ne(ones, const(dtypes.float32, 0))):
        cut = cut_of(emitter, where(flag, kept, masked), column, Compared(row, 8, 0), 8)
        assert cut is not None
        assert (cut.before, cut.beyond) == (kept, masked)
