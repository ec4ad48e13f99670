"""Exact counts of products of few rows that are computed: each chunk of the product's kernel computes them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Context, GlobalCounters, Tensor

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

DEPTH, WIDTH = 160, 640
FLOAT = 4


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Numbers in memory."""
    return Tensor(np.random.default_rng(seed).standard_normal(shape, np.float32)).realize()


def normed(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """A layer norm in double precision."""
    x = x.astype(np.float64)
    away = x - x.mean(-1, keepdims=True)
    return away / np.sqrt((away**2).mean(-1, keepdims=True) + 1e-5) * scale + shift


def counted(value: Tensor) -> tuple[np.ndarray, int, int]:
    """A value, how many kernels it takes, and how many bytes they move."""
    GlobalCounters.reset()
    value.realize()
    return value.numpy(), GlobalCounters.kernel_count, GlobalCounters.global_mem


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_a_norm_of_few_rows_is_computed_by_the_kernel_of_its_product(rows: int, turned: bool) -> None:
    x, matrix = drawn(rows, DEPTH), drawn(*((WIDTH, DEPTH) if turned else (DEPTH, WIDTH)))
    scale, shift, bias = drawn(DEPTH, seed=1), drawn(DEPTH, seed=2), drawn(WIDTH, seed=3)
    value, kernels, moved = counted(x.layer_norm(DEPTH, scale, shift) @ (matrix.T if turned else matrix) + bias)
    product = matrix.numpy().T if turned else matrix.numpy()
    want = normed(*(t.numpy() for t in (x, scale, shift))) @ product + bias.numpy()
    assert np.abs(value - want).max() < 1e-3
    if rows <= 4:
        assert kernels == 1
        assert moved == FLOAT * (rows * DEPTH + 2 * DEPTH + DEPTH * WIDTH + WIDTH + rows * WIDTH)
    else:
        assert kernels == 2


ROWS = pytest.mark.parametrize(
    ("make", "kernels"),
    [
        (lambda x, w, v: x.layer_norm(DEPTH) @ w + x.layer_norm(DEPTH) @ v, 1),  # two products of one result
        (
            lambda x, w, v: (x.layer_norm(DEPTH) @ w).cat((x.layer_norm(DEPTH) @ v).sigmoid()),
            4,
        ),  # two results need it, and are joined
        (lambda x, w, v: (x * 2 + 1).relu() @ w, 1),
        (lambda x, w, v: (x.softmax(-1) @ w).gelu() @ v.T, 1),  # little to do: all together
        (lambda x, w, v: (x + x.sum() * 0.1) @ w, 1),
    ],
    ids=["one", "two", "brief", "chain", "sum"],
)


@ROWS
def test_what_only_one_large_product_needs_is_computed_by_it(
    make: Callable[[Tensor, Tensor, Tensor], Tensor], kernels: int
) -> None:
    x, w, v = drawn(2, DEPTH), drawn(DEPTH, WIDTH), drawn(DEPTH, WIDTH, seed=4)
    value, count, _ = counted(make(x, w, v))
    assert count == kernels
    with Context(DEVICE="PYTHON"):
        small = [Tensor(t.numpy()) for t in (x, w, v)]
        assert np.abs(value - make(*small).numpy()).max() < 1e-2


def test_what_is_wanted_itself_is_stored() -> None:
    x, w = drawn(1, DEPTH), drawn(DEPTH, WIDTH)
    rows = x.layer_norm(DEPTH)
    product = rows @ w
    GlobalCounters.reset()
    rows.realize(product)
    assert GlobalCounters.kernel_count == 3  # the sums of the rows, the rows, the product
    assert np.abs(product.numpy() - rows.numpy() @ w.numpy()).max() < 1e-3


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_rows_that_the_product_overwrites_are_read_before(threads: int) -> None:
    width = 768
    x, w = drawn(2, width), drawn(width, width)
    scale, shift = drawn(width, seed=1), drawn(width, seed=2)
    want = normed(x.numpy(), scale.numpy(), shift.numpy()) @ w.numpy()
    with Context(THREADS=threads):
        x[:] = x.layer_norm(width, scale, shift) @ w
        assert np.abs(x.numpy() - want).max() < 1e-2


def test_random_chains_of_few_rows_are_what_numpy_says(rng: random.Random) -> None:
    for _ in range(20):
        draw = np.random.default_rng(rng.randrange(1 << 32))
        rows, depth = rng.randint(1, 5), rng.choice([16, 33, 64, 100])
        x = draw.standard_normal((rows, depth))
        own, told = Tensor(x).realize(), x
        for _ in range(rng.randint(1, 3)):
            width = rng.choice([48, 100, 2048, 6000])
            matrix = draw.standard_normal((told.shape[-1], width)) * told.shape[-1] ** -0.5
            before = rng.randrange(4)
            if before == 0:
                own, told = own * 2 + 1, told * 2 + 1
            elif before == 1:
                own, told = own.layer_norm(own.shape[-1]), normed(told, np.ones(told.shape[-1]), np.zeros(1))
            elif before == 2:
                own, told = own - own.max(-1, keepdim=True), told - told.max(-1, keepdims=True)
            kind = rng.choice(["plain", "turned"])
            factor = Tensor(np.ascontiguousarray(matrix.T)).T if kind == "turned" else Tensor(matrix)
            own, told = own @ factor, told @ matrix
            if rng.random() < 0.3:
                own.realize()
        assert np.abs(own.numpy() - told).max() < 1e-9 * max(1, np.abs(told).max())
