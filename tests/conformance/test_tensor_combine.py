"""Combining and rearranging agrees with NumPy and torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from intaglio import Tensor, dtypes
from tests.conformance.agree import agree

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(5)
X, Y = RNG.integers(0, 9, (2, 3)), RNG.integers(0, 9, (4, 3))


def test_cat_and_stack(backend: str) -> None:
    x, y = Tensor(X, device=backend), Tensor(Y, device=backend)
    agree(Tensor.cat([x, y]), np.concatenate([X, Y]))
    agree(Tensor.cat([x, x], axis=-1), np.concatenate([X, X], 1))
    agree(Tensor.cat([x, x.float()], 1), np.concatenate([X, X], 1).astype(np.float32))
    agree(Tensor.stack([x, x + 1], -1), np.stack([X, X + 1], -1))
    agree(Tensor.cat([x[:0], y]), Y)


def test_split_and_chunk(backend: str) -> None:
    y = Tensor(Y, device=backend)
    for got, want in ((y.split(3), torch.tensor(Y).split(3)), (y.chunk(3), torch.tensor(Y).chunk(3))):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            agree(g, w)


@pytest.mark.parametrize(("mode", "reference"), [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")])
def test_pad_modes(mode: str, reference: str, backend: str) -> None:
    agree(Tensor(Y, device=backend).pad(((2, 3), (1, 2)), mode=mode), np.pad(Y, ((2, 3), (1, 2)), mode=reference))  # pyright: ignore[reportArgumentType]


def test_pad_with_a_value_and_flat_and_negative(backend: str) -> None:
    t = Tensor(X, device=backend)
    agree(t.pad(((1, 2), (0, 3)), value=7), np.pad(X, ((1, 2), (0, 3)), constant_values=7))
    agree(t.pad((1, 2)), torch.nn.functional.pad(torch.tensor(X), (1, 2)))
    agree(t.pad((-1, 2, 1, 0)), torch.nn.functional.pad(torch.tensor(X), (-1, 2, 1, 0)))
    agree(Tensor([1.0], device=backend).pad((0, 1), value=-math.inf), np.array([1, -math.inf], np.float32))


@pytest.mark.parametrize("diagonal", [-2, -1, 0, 1, 2])
def test_triangles(diagonal: int, backend: str) -> None:
    cube = np.arange(24).reshape(2, 3, 4)
    agree(Tensor(cube, device=backend).tril(diagonal), np.tril(cube, diagonal))
    agree(Tensor(cube, device=backend).triu(diagonal), np.triu(cube, diagonal))
    holes = np.array([[math.nan, math.inf], [1, 2]], np.float32)
    agree(Tensor(holes, device=backend).tril(-1), np.array([[0, 0], [1, 0]], np.float32))


def test_one_hot_and_meshgrid(backend: str) -> None:
    agree(Tensor(X, device=backend).one_hot(9), np.eye(9, dtype=np.int64)[X])
    a, b = Tensor([1, 2], device=backend), Tensor([3, 4, 5], device=backend)
    for kind in ("ij", "xy"):
        for got, want in zip(
            Tensor.meshgrid(a, b, indexing=kind), np.meshgrid([1, 2], [3, 4, 5], indexing=kind), strict=True
        ):  # pyright: ignore[reportArgumentType]
            agree(got, want)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather(axis: int, backend: str) -> None:
    index = RNG.integers(0, 3, (2, 3))
    agree(
        Tensor(Y, device=backend).gather(axis, Tensor(index, device=backend)),
        torch.tensor(Y).gather(axis, torch.tensor(index)),
    )


def test_scatter_where_positions_differ(backend: str) -> None:
    index = np.array([[0, 1, 2], [3, 2, 1]])
    t = Tensor(Y, device=backend)
    agree(
        t.scatter(0, Tensor(index, device=backend), Tensor(X, device=backend)),
        torch.tensor(Y).scatter(0, torch.tensor(index), torch.tensor(X)),
    )
    agree(t.scatter(0, Tensor(index, device=backend), 5), torch.tensor(Y).scatter(0, torch.tensor(index), 5))
    agree(t, Y)


def test_scatter_the_last_of_equal_positions_wins(backend: str) -> None:
    t = Tensor([0, 0, 0], device=backend).scatter(
        0, Tensor([1, 1, 1, 2], device=backend), Tensor([5, 6, 7, 8], device=backend)
    )
    agree(t, np.array([0, 7, 8]))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin", "mean"])
def test_scatter_reduce(reduce: str, include_self: bool, dtype: str, backend: str) -> None:
    index = np.array([[0, 1, 1], [0, 3, 1]])
    base, source = Y.astype(dtype), X.astype(dtype)
    got = Tensor(base, device=backend).scatter_reduce(
        0, Tensor(index, device=backend), Tensor(source, device=backend), reduce, include_self=include_self
    )
    want = torch.tensor(base).scatter_reduce(
        0, torch.tensor(index), torch.tensor(source), reduce, include_self=include_self
    )
    agree(got, want, tolerance=1e-6)


def test_index_add_and_select(backend: str) -> None:
    y = Tensor(Y, device=backend)
    place = Tensor([0, 0], device=backend)
    agree(
        y.index_add(0, place, Tensor(X, device=backend)),
        torch.tensor(Y).index_add(0, torch.tensor([0, 0]), torch.tensor(X)),
    )
    agree(y.index_add(1, place, y[:, :2]), torch.tensor(Y).index_add(1, torch.tensor([0, 0]), torch.tensor(Y)[:, :2]))
    agree(y.index_select(1, [2, 0]), Y[:, [2, 0]])


@pytest.mark.values
def test_masks(backend: str) -> None:
    y = Tensor(Y, device=backend)
    agree(y.masked_fill(y > 4, -1), np.where(Y > 4, -1, Y))
    agree(y.masked_select(y > 4), Y[Y > 4])
    agree((y > 4).nonzero(), np.argwhere(Y > 4))
    agree(y.unique(), np.unique(Y))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sorting_is_stable(axis: int, descending: bool, backend: str) -> None:
    for values in (
        Y,
        RNG.standard_normal((3, 7)).astype(np.float32),
        np.array([[2, math.nan, -3, math.inf, 2]], np.float32),
    ):
        want: Any = torch.tensor(values).sort(dim=axis, descending=descending, stable=True)
        got, places = Tensor(values, device=backend).sort(axis, descending=descending)
        agree(got, want.values)
        agree(places, want.indices)


EDGES: dict[str, list[float]] = {
    "float32": [0.0, -0.0, math.nan, math.inf, -math.inf, -math.nan, 1e-45, -1e-45, 3.4e38, 0.0],
    "float64": [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.0, 0.0], "float16": [0.0, -0.0, math.nan, 6e-8, -1],
    "int32": [-(2**31), 2**31 - 1, 0, -1, 0], "uint32": [0, 2**32 - 1, 2**31, 2**31 - 1, 0], "bool": [1, 0, 1, 0],
    "int8": [-128, 127, 0, -1, 0], "uint8": [255, 0, 128, 0], "int64": [2**63 - 1, -(2**63), 0, -1, 0],
}  # fmt: skip


@pytest.mark.parametrize("dtype", EDGES)
@pytest.mark.parametrize("descending", [False, True])
def test_order_at_the_edges_of_every_dtype(dtype: str, descending: bool) -> None:
    edges = np.array(EDGES[dtype], dtype)
    for values in (edges, np.stack([edges, np.roll(edges, 2), edges[::-1]])):
        for axis in range(values.ndim):
            want = np.argsort(values, axis, kind="stable")
            if descending:
                last = np.argsort(np.flip(values, axis), axis, kind="stable")
                want = values.shape[axis] - 1 - np.flip(last, axis)
            agree(Tensor(values).argsort(axis, descending=descending), want)
            agree(Tensor(values).topk(2, axis, largest=descending)[1], np.take(want, range(2), axis))
    assert Tensor(3.0).argsort().tolist() == 0


def test_topk(backend: str) -> None:
    values = RNG.permutation(21).reshape(3, 7).astype(np.float32)
    for largest in (True, False):
        for axis in (0, 1):
            got, places = Tensor(values, device=backend).topk(2, axis, largest=largest)
            want: Any = torch.tensor(values).topk(2, axis, largest=largest)
            agree(got, want.values)
            agree(places, want.indices)


def test_masked_fill_keeps_the_dtype() -> None:
    t = Tensor(np.array([1, 2], np.uint8)).masked_fill(Tensor([True, False]), 9)
    assert (t.dtype, t.tolist()) == (dtypes.uint8, [9, 2])
