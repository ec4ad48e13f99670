"""Products agree with NumPy: matmul of every pair of ranks, einsum of every form."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio import Tensor, dtypes
from tests.conformance.agree import agree

PAIRS = [
    ((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)),
    ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 6)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)), ((0, 4), (4, 3)), ((3, 0),
    (0, 4)),
    ((17, 33), (33, 9)), ((1, 40), (40, 40)), ((2, 0, 3), (3, 2)), ((1, 1), (1, 1)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8", "float16"])
@pytest.mark.parametrize("shapes", PAIRS)
def test_matmul_of_whole_numbers_is_exact(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str, backend: str
) -> None:
    rng = np.random.default_rng(0)
    x, y = (np.asarray(rng.integers(-5, 5, s)).astype(dtype) for s in shapes)
    agree(Tensor(x, device=backend) @ Tensor(y, device=backend), x @ y)


def test_matmul_of_views(backend: str) -> None:
    x = np.arange(24.0).reshape(4, 6)
    t = Tensor(x, device=backend)
    agree(t.T @ t, x.T @ x)
    agree(t[::2, ::-1] @ t.T[:, 1:3], x[::2, ::-1] @ x.T[:, 1:3])
    agree(t[0].expand(3, 6) @ t.T, np.broadcast_to(x[0], (3, 6)) @ x.T)


@pytest.mark.parametrize("size", [31, 64, 130])
def test_matmul_of_larger_matrices(size: int) -> None:
    rng = np.random.default_rng(size)
    x, y = rng.standard_normal((2, size, size)).astype(np.float32)
    agree(Tensor(x) @ Tensor(y), (x.astype(np.float64) @ y).astype(np.float32), tolerance=3e-5)


ODD = [1, 2, 3, 5, 16, 17, 33, 127]
LAYOUTS = ["transposed right", "transposed left", "both transposed", "strided", "reversed"]


def laid_out(layout: str, side: str, array: np.ndarray) -> Tensor:
    """A matrix as a view that lies in memory as a layout says."""
    if "both" in layout or side in layout:
        return Tensor(np.ascontiguousarray(array.T)).T
    if layout == "strided":
        return Tensor(np.repeat(np.repeat(array, 2, 0), 3, 1))[::2, ::3]
    return Tensor(array[::-1, ::-1].copy()).flip(0, 1) if layout == "reversed" else Tensor(array)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", ODD)
def test_matmul_of_odd_sizes_in_every_layout(rows: int, layout: str) -> None:
    rng = np.random.default_rng(rows)
    for columns, depth in ((1, 5), (2, 17), (16, 16), (17, 33), (33, 1), (70, 127)):
        x, y = rng.standard_normal((rows, depth), np.float32), rng.standard_normal((depth, columns), np.float32)
        got = laid_out(layout, "left", x) @ laid_out(layout, "right", y)
        agree(got, (x.astype(np.float64) @ y).astype(np.float32), tolerance=3e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize(
    "leads", [((), ()), ((3,), (3,)), ((), (3,)), ((3,), ()), ((1,), (3,)), ((3,), (1,)), ((2, 1), (2, 3))]
)
def test_matmul_by_transposed_matrices_of_every_dtype(leads: tuple[tuple[int, ...], ...], dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = np.asarray(rng.integers(0, 3, (*leads[0], 20, 37))).astype(dtype)
    y = np.asarray(rng.integers(0, 3, (*leads[1], 41, 37))).astype(dtype)
    agree(Tensor(x) @ Tensor(y).mT, x @ np.swapaxes(y, -1, -2))


def test_matmul_by_a_transposed_matrix_of_bfloat16() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(-3, 4, (33, 50)).astype(np.float32), rng.integers(-3, 4, (40, 50)).astype(np.float32)
    got = Tensor(x).cast(dtypes.bfloat16) @ Tensor(y).cast(dtypes.bfloat16).T
    agree(got.cast(dtypes.float32), Tensor(x @ y.T).cast(dtypes.bfloat16).cast(dtypes.float32).numpy())


def test_matmul_by_a_transposed_matrix_with_more_around_it() -> None:
    rng = np.random.default_rng(0)
    x, w, r = (rng.standard_normal(s, np.float32) for s in ((33, 50), (70, 50), (33, 70)))
    scale, bias = rng.standard_normal(70, np.float32), rng.standard_normal(70, np.float32)
    whole = rng.integers(-128, 128, (70, 50)).astype(np.int8)
    tx, tw, tr = Tensor(x), Tensor(w), Tensor(r)
    wide = x.astype(np.float64)
    agree(
        (tx @ tw.T + Tensor(bias) + tr).relu(), np.maximum(wide @ w.T + bias + r, 0).astype(np.float32), tolerance=3e-5
    )
    agree((tx * 2 + 1) @ (tw - 1).T, ((wide * 2 + 1) @ (w - 1.0).T).astype(np.float32), tolerance=3e-5)
    scale /= 128
    dequantised = Tensor(whole).cast(dtypes.float32) * Tensor(scale).reshape(70, 1)
    agree(tx @ dequantised.T, (wide @ (whole * scale[:, None]).T).astype(np.float32), tolerance=3e-5)
    agree(tx @ tx.T, (wide @ x.T).astype(np.float32), tolerance=3e-5)


FORMS: dict[str, tuple[tuple[int, ...], ...]] = {
    "ij,jk->ik": ((3, 4), (4, 5)), "ij,jk": ((3, 4), (4, 5)), "ij->ji": ((3, 4),), "ii": ((3, 3),), "ii->i": ((3, 3),),
    "i,j": ((3,), (4,)), "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)), "...ij,...jk->...ik": ((2, 2, 3, 4), (2, 2, 4, 5)),
    "i,i,i->": ((3,), (3,), (3,)), "ab,bc,cd->ad": ((2, 3), (3, 4), (4, 5)), "ij->": ((3, 4),), "ba": ((2, 3),),
    "bhqd,bhkd->bhqk": ((2, 2, 3, 4), (2, 2, 5, 4)), "iij->j": ((3, 3, 2),), "...->...": ((2, 3),), "i...->...": ((2,
    3),),
    "ij,j->i": ((3, 4), (4,)), "ab,ab->": ((2, 3), (2, 3)), "iji->j": ((3, 2, 3),), "...i,ij": ((2, 3, 4), (4, 5)),
    "ij,kl": ((2, 3), (3, 2)), " i j , j k -> k i": ((2, 3), (3, 2)), "a,b,ab->": ((2,), (3,), (2, 3)),
}  # fmt: skip


@pytest.mark.parametrize("formula", FORMS)
def test_einsum(formula: str, backend: str) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 4, s).astype(np.float32) for s in FORMS[formula]]
    agree(Tensor.einsum(formula, *(Tensor(a, device=backend) for a in arrays)), np.einsum(formula, *arrays))


def test_linear_takes_weights_as_torch_does(backend: str) -> None:
    x, w, b = (np.arange(n, dtype=np.float32).reshape(s) for n, s in ((6, (2, 3)), (12, (4, 3)), (4, (4,))))
    agree(Tensor(x, device=backend).linear(Tensor(w, device=backend), Tensor(b, device=backend)), x @ w.T + b)
