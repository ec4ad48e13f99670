"""Chains of products: which statements run together by rows, and that the others give what they always gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.dtypes import dtypes
from intaglio.core.trace import GlobalCounters
from intaglio.ir.view import View
from intaglio.ops.elementwise import add, mul
from intaglio.ops.memory import BufferRef, buffer, window
from intaglio.ops.movement import expand, flip, pad, permute, reshape, shrink
from intaglio.ops.reduce import reduce
from intaglio.schedule.chains import Chain, chained
from intaglio.schedule.kernels import PlannedKernel
from intaglio.schedule.program import Write

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.ir.node import Node
    from intaglio.schedule.program import Statement

RNG = np.random.default_rng(11)
Q, K, V = (RNG.integers(-2, 3, (2, 160, 24)).astype(np.float32) for _ in range(3))  # whose sums are exact
S = Q @ K.swapaxes(1, 2)


def scores(q: Tensor) -> Tensor:
    """A product to be used by another."""
    return q @ Tensor(K).transpose(1, 2)


def cumulated(q: Tensor) -> Tensor:
    """Rows that depend on the rows before them."""
    return scores(q).cumsum(1) @ Tensor(V)


CHAINED: dict[str, tuple[Callable[[Tensor], Tensor], Any]] = {
    "twice": (lambda q: scores(q) @ Tensor(V), S @ V),
    "elementwise": (lambda q: (scores(q) * 2 - 1).relu() @ Tensor(V), np.maximum(S * 2 - 1, 0) @ V),
    "rows summed": (
        lambda q: (scores(q) - scores(q).sum(-1, keepdim=True)) @ Tensor(V),
        (S - S.sum(-1, keepdims=True)) @ V,
    ),
    "three": (
        lambda q: (scores(q).relu() @ Tensor(V)) @ Tensor(K).transpose(1, 2) @ Tensor(V),
        np.maximum(S, 0) @ V @ K.swapaxes(1, 2) @ V,
    ),
    "columns reversed": (lambda q: scores(q).flip(-1) @ Tensor(V), S[..., ::-1] @ V),
    "moved": (lambda q: (scores(q) @ Tensor(V)).transpose(1, 2).contiguous(), (S @ V).swapaxes(1, 2)),
    "joined": (
        lambda q: (scores(q) @ Tensor(V)).transpose(0, 1).reshape(160, 48),
        (S @ V).swapaxes(0, 1).reshape(160, 48),
    ),
    "with a value added": (lambda q: scores(q) @ Tensor(V) + Tensor(V), S @ V + V),
}
APART: dict[str, tuple[Callable[[Tensor], Tensor], Any]] = {
    "rows reversed": (lambda q: scores(q).flip(1) @ Tensor(V), S[:, ::-1] @ V),
    "rows moved": (
        lambda q: (scores(q).pad(((0, 0), (1, 0), (0, 0)))[:, :-1] - scores(q)) @ Tensor(V),
        (np.pad(S, ((0, 0), (1, 0), (0, 0)))[:, :-1] - S) @ V,
    ),
    "transposed": (lambda q: scores(q).transpose(1, 2) @ Tensor(V), S.swapaxes(1, 2) @ V),
    "batches exchanged": (lambda q: (scores(q).flip(0) - scores(q)) @ Tensor(V), (S[::-1] - S) @ V),
    "columns summed": (
        lambda q: (scores(q) - scores(q).sum(1, keepdim=True)) @ Tensor(V),
        (S - S.sum(1, keepdims=True)) @ V,
    ),
    "rows in order": (cumulated, S.cumsum(1) @ V),
}


def run(value: Tensor) -> tuple[np.ndarray[Any, Any], int]:
    """(a value, by how many kernels)."""
    GlobalCounters.reset()
    value.realize()
    return value.numpy(), GlobalCounters.kernel_count


@pytest.mark.parametrize("name", CHAINED)
def test_chains_are_one_kernel(name: str) -> None:
    program, want = CHAINED[name]
    out, kernels = run(program(Tensor(Q)))
    assert kernels == 1
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("name", APART)
def test_values_that_need_other_rows_are_right(name: str) -> None:
    program, want = APART[name]
    out, _ = run(program(Tensor(Q)))
    np.testing.assert_array_equal(out, want)


def statements(moved: Callable[[Node], Node]) -> tuple[list[Statement], set[BufferRef]]:
    """A product into a buffer, then a product of that, moved; and that buffer."""
    n, shape = 160, (2, 160, 160)
    q, held, out = (BufferRef(2 * n * n * 4, "CPU") for _ in range(3))
    whole = View.contiguous(dtypes.float32, shape)

    def times(x: Node) -> Node:
        left, right = (reshape(y, s) for y, s in ((x, (2, n, 1, n)), (window(whole, buffer(q)), (2, 1, n, n))))
        return reduce("sum", mul(*(expand(y, (2, n, n, n)) for y in (left, right))), (3,))

    first = Write(held, whole, times(window(whole, buffer(q))))
    return [first, Write(out, whole, times(moved(window(whole, buffer(held)))))], {held}


@pytest.mark.parametrize(
    ("moved", "together"),
    [
        (lambda x: x, True),
        (lambda x: flip(x, (2,)), True),
        (lambda x: reshape(reshape(x, (2, 160, 16, 10)), (2, 160, 160)), True),
        (lambda x: permute(permute(x, (1, 0, 2)), (1, 0, 2)), True),
        (lambda x: pad(shrink(x, ((0, 2), (0, 160), (3, 160))), ((0, 0), (0, 0), (3, 0))), True),
        (lambda x: flip(x, (1,)), False),
        (lambda x: flip(x, (0,)), False),
        (lambda x: permute(x, (0, 2, 1)), False),
        (lambda x: pad(shrink(x, ((0, 2), (1, 160), (0, 160))), ((0, 0), (1, 0), (0, 0))), False),
        (lambda x: expand(shrink(x, ((0, 1), (0, 160), (0, 160))), (2, 160, 160)), False),
        (lambda x: add(x, flip(x, (1,))), False),
        (lambda x: reshape(permute(reshape(x, (320, 160)), (1, 0)), (2, 160, 160)), False),
    ],
)
def test_only_what_is_in_the_same_rows_is_taken_from_scratch(moved: Callable[[Node], Node], together: bool) -> None:
    given, private = statements(moved)
    (part,) = chained(given, private)
    assert isinstance(part, Chain) == together
    assert not any(isinstance(p, Chain) for p in chained(given, set()))


def test_a_value_that_is_asked_for_is_not_scratch() -> None:
    s = scores(Tensor(Q))
    out = s @ Tensor(V)
    Tensor.realize(out, s)
    np.testing.assert_array_equal(out.numpy(), S @ V)
    np.testing.assert_array_equal(s.numpy(), S)


def test_a_value_of_two_products_is_not_scratch() -> None:
    s = scores(Tensor(Q))
    one, two = s @ Tensor(V), s.relu() @ Tensor(K)
    Tensor.realize(one, two)
    np.testing.assert_array_equal(one.numpy(), S @ V)
    np.testing.assert_array_equal(two.numpy(), np.maximum(S, 0) @ K)


def test_a_chain_that_is_written_over_its_operand() -> None:
    q = Tensor(Q).realize()
    q[:] = scores(q) @ Tensor(V)
    np.testing.assert_array_equal(q.numpy(), S @ V)
    q = Tensor(Q).realize()
    q += scores(q) @ Tensor(V)
    np.testing.assert_array_equal(q.numpy(), Q + S @ V)
    q = Tensor(Q).realize()
    q[:, :100] = (scores(q) @ Tensor(V))[:, 60:]
    np.testing.assert_array_equal(q.numpy(), np.concatenate([(S @ V)[:, 60:], Q[:, 100:]], 1))


def test_a_chain_whose_operand_is_written_later() -> None:
    q = Tensor(Q).realize()
    out = scores(q) @ Tensor(V)
    q[:, 5] = 7.0
    np.testing.assert_array_equal(out.numpy(), S @ V)
    assert (q[:, 5] == 7.0).all().item()


def test_a_chain_into_part_of_a_tensor() -> None:
    t = Tensor.zeros(2, 200, 30).realize()
    t[:, 20:180, 3:27] = scores(Tensor(Q)) @ Tensor(V)
    want = np.zeros((2, 200, 30), np.float32)
    want[:, 20:180, 3:27] = S @ V
    np.testing.assert_array_equal(t.numpy(), want)


def test_matrices_that_are_not_thin_are_not_chained() -> None:
    x, a, b = (RNG.integers(-1, 2, n).astype(np.float32) for n in ((64, 300), (300, 400), (400, 300)))
    out, kernels = run(Tensor(x) @ Tensor(a) @ Tensor(b))
    assert kernels == 2
    np.testing.assert_array_equal(out, x @ a @ b)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("moved", "kernels"),
    [
        (lambda s: s, 1),
        (lambda s: s.relu() * 2, 1),
        (lambda s: s.flip(-1), 1),
        (lambda s: s - s.sum(-1, keepdim=True), 1),
        (lambda s: s - s.sum(0, keepdim=True), 3),
        (lambda s: s.cumsum(0), (2, 3)),  # of three rows the product is large: it is not computed by the running sum
    ],
)
def test_few_rows_run_by_sheets_that_read_only_their_own(rows: int, moved: Any, kernels: int | tuple[int, int]) -> None:
    q = RNG.integers(-2, 3, (9, rows, 24)).astype(np.float32)
    k, v = (RNG.integers(-2, 3, (9, 160, 24)).astype(np.float32) for _ in range(2))
    out, count = run(moved(Tensor(q) @ Tensor(k).transpose(1, 2)) @ Tensor(v))
    assert count == (kernels if isinstance(kernels, int) else kernels[rows == 3])
    scores = Tensor(q @ k.swapaxes(1, 2)).realize()
    np.testing.assert_array_equal(out, moved(scores).numpy() @ v)


def test_few_rows_by_a_matrix_that_all_share_are_no_sheets() -> None:
    x, a, b = (RNG.integers(-1, 2, n).astype(np.float32) for n in ((12, 1, 64), (64, 200), (200, 64)))
    out, kernels = run(Tensor(x) @ Tensor(a) @ Tensor(b))
    assert kernels == 2
    np.testing.assert_array_equal(out, x @ a @ b)
    one, kernels = run((Tensor(x[0]) @ Tensor(a)).relu() @ Tensor(b))
    assert kernels == 2
    np.testing.assert_array_equal(one, np.maximum(x[0] @ a, 0) @ b)


def test_gradients_of_a_chain() -> None:
    q, k, v = (Tensor(t[0]).requires_grad_() for t in (Q, K, V))
    (q @ k.T @ v).sum().backward()
    ones = np.ones((160, 24), np.float32)
    assert q.grad is not None
    assert v.grad is not None
    np.testing.assert_allclose(q.grad.numpy(), ones @ V[0].T @ K[0])
    np.testing.assert_allclose(v.grad.numpy(), (Q[0] @ K[0].T).T @ ones)


def test_a_mask_by_positions_stays_with_the_rows_that_it_cuts_off() -> None:
    draw = np.random.default_rng(0)
    q, k, v = (Tensor(draw.standard_normal((2, 64, 16), dtype=np.float32)).realize() for _ in range(3))
    product, *rest = q.scaled_dot_product_attention(k, v, is_causal=True).schedule()
    assert isinstance(product, PlannedKernel)
    assert "where" not in product.metadata
    assert any("where" in kernel.metadata for kernel in rest if isinstance(kernel, PlannedKernel))
    mask = Tensor(draw.standard_normal((64, 64)) > 0).realize()
    product, *_ = q.scaled_dot_product_attention(k, v, mask).schedule()
    assert isinstance(product, PlannedKernel)
    assert "where" in product.metadata
