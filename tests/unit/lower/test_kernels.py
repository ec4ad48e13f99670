"""Lowered kernels give NumPy's values, chunk by chunk, whatever the shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio.core.dtypes import dtypes
from intaglio.ops.elementwise import add, div, exp, mul, sub
from intaglio.ops.memory import const
from intaglio.ops.movement import expand, flip, pad, permute, reshape, shrink
from intaglio.ops.reduce import reduce, scan
from tests.unit.lower.running import Operands, loops, numbers, run

if TYPE_CHECKING:
    from intaglio.ir.node import Node

SHAPES = [(1,), (7,), (64,), (1000,), (3, 5), (17, 33), (64, 64), (2, 3, 4, 5), (33, 1, 65), (900, 1000)]
KINDS = {"sum": np.sum, "max": np.max, "min": np.min}


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_elementwise_stores_every_element_once(shape: tuple[int, ...], threads: int) -> None:
    x, y = numbers(shape), numbers(shape, seed=1)
    out = np.full(shape, 99, np.float32)
    k = Operands()
    run(k, k.write(out, add(mul(k.read(x), const(dtypes.float32, 3)), k.read(y))), threads=threads)
    np.testing.assert_array_equal(out, x * 3 + y)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("shape", [(3, 5), (16, 16), (17, 100), (130, 67), (900, 1000), (5, 40, 48), (513, 1025)])
def test_transposed_reads_land_where_they_belong(shape: tuple[int, ...], dtype: str, threads: int) -> None:
    x = numbers(shape, dtype)
    order = tuple(reversed(range(len(shape))))
    out = np.full(tuple(shape[i] for i in order), 77, dtype)
    other = numbers(out.shape, dtype, seed=3)
    k = Operands()
    run(k, k.write(out, add(permute(k.read(x), order), k.read(other))), threads=threads)
    np.testing.assert_array_equal(out, x.transpose(order) + other)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1000,), (0,)),
        ((37, 129), (1,)),
        ((37, 129), (0,)),
        ((37, 129), (0, 1)),
        ((6, 7, 65), (0, 2)),
        ((6, 7, 65), (0, 1)),
        ((6, 7, 65), (1, 2)),
        ((6, 7, 65), (1,)),
        ((70000,), (0,)),
        ((500, 1200), (0,)),
        ((500, 1200), (1,)),
        ((3, 4, 5, 6), (1, 3)),
        ((3, 4, 5, 2), (0, 1, 2, 3)),
    ],
)
def test_reductions_along_any_axes(shape: tuple[int, ...], axes: tuple[int, ...], kind: str, threads: int) -> None:
    x = numbers(shape)
    want = KINDS[kind](x, axis=axes)
    out = np.full(want.shape, 99, np.float32)
    k = Operands()
    run(k, k.write(out, reduce(kind, k.read(x), axes)), threads=threads)
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(("rows", "columns"), [(5, 7), (40, 64), (33, 1000), (300, 1025), (3, 9000)])
def test_softmax_rows_are_one_nest(rows: int, columns: int, threads: int) -> None:
    x = numbers((rows, columns)) / 4
    out = np.zeros_like(x)
    k = Operands()
    value = k.read(x)

    def along(reduced: Node) -> Node:
        return expand(reshape(reduced, (rows, 1)), (rows, columns))

    powers = exp(sub(value, along(reduce("max", value, (1,)))))
    run(k, k.write(out, div(powers, along(reduce("sum", powers, (1,))))), threads=threads)
    e = np.exp((x - x.max(1, keepdims=True)).astype(np.float64))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=2e-6)


def product(k: Operands, a: np.ndarray, b: np.ndarray) -> Node:
    """The node of a @ b."""
    *batch, m, depth = a.shape
    n = b.shape[-1]
    full = (*batch, m, n, depth)
    rank = len(batch)
    left = expand(reshape(k.read(a), (*batch, m, 1, depth)), full)
    right = expand(reshape(permute(k.read(b), (*range(rank), rank + 1, rank)), (*batch, 1, n, depth)), full)
    return reduce("sum", mul(left, right), (rank + 2,))


SIZES = [
    (1, 1, 1),
    (2, 3, 4),
    (8, 32, 16),
    (9, 33, 17),
    (16, 16, 16),
    (7, 64, 64),
    (64, 7, 64),
    (100, 33, 77),
    (97, 130, 5),
    (200, 200, 3),
    (130, 96, 700),
    (40, 1040, 500),
    (200, 530, 160),
    (333, 240, 250),
    (1, 300, 200),
    (300, 1, 200),
]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize(("m", "n", "depth"), SIZES)
def test_products_of_any_shape(m: int, n: int, depth: int, turned: str, threads: int) -> None:
    a, b = numbers((m, depth)), numbers((depth, n), seed=1)
    a = a.T.copy().T if "a" in turned else a
    b = b.T.copy().T if "b" in turned else b
    bias = numbers((n,), seed=2)
    out = np.full((m, n), 99, np.float32)
    k = Operands()
    value = add(product(k, a, b), expand(reshape(k.read(bias), (1, n)), (m, n)))
    run(k, k.write(out, value), threads=threads)
    np.testing.assert_array_equal(out, a @ b + bias)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    ("batch", "m", "n", "depth"),
    [(3, 9, 33, 17), (12, 64, 48, 64), (1, 20, 20, 20), (40, 96, 80, 80), (32, 40, 160, 128), (2, 250, 90, 200)],
)
def test_batches_of_products(batch: int, m: int, n: int, depth: int, threads: int) -> None:
    a, b = numbers((batch, m, depth)), numbers((batch, depth, n), seed=1)
    out = np.full((batch, m, n), 99, np.float32)
    k = Operands()
    run(k, k.write(out, product(k, a, b)), threads=threads)
    np.testing.assert_array_equal(out, a @ b)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scans_along_any_axis(axis: int) -> None:
    x = numbers((5, 19, 33))
    out = np.zeros_like(x)
    k = Operands()
    run(k, k.write(out, scan("sum", k.read(x), axis)))
    np.testing.assert_array_equal(out, np.cumsum(x, axis))


def test_views_with_odd_strides() -> None:
    base = numbers((40, 60))
    target = np.zeros((40, 60), np.float32)
    k = Operands()
    run(k, k.write(target[::-2, 5:50:3], k.read(base[1:21, 44:59][::-1, ::-1])))
    want = np.zeros_like(target)
    want[::-2, 5:50:3] = base[1:21, 44:59][::-1, ::-1]
    np.testing.assert_array_equal(target, want)


@pytest.mark.parametrize("interpret", [False, True])
def test_padding_and_windows_of_values(interpret: bool) -> None:
    x = numbers((6, 10))
    out = np.full((9, 8), 99, np.float32)
    k = Operands()
    padded = pad(k.read(x), ((1, 2), (0, 3)))
    run(k, k.write(out, shrink(flip(padded, (1,)), ((0, 9), (2, 10)))), interpret=interpret)
    np.testing.assert_array_equal(out, np.pad(x, ((1, 2), (0, 3)))[:, ::-1][:, 2:10])


def test_code_size_does_not_follow_the_shape() -> None:
    sizes = []
    for n in (1 << 10, 1 << 16):
        x, out = numbers((n,)), np.zeros(n, np.float32)
        k = Operands()
        lowered = run(k, k.write(out, mul(k.read(x), k.read(x))))
        sizes.append(len(lowered.linear.src))
        assert loops(lowered) == 1
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    ("m", "n", "depth"), [(2, 3, 4), (8, 32, 16), (19, 45, 17), (130, 96, 64), (300, 320, 133), (3, 64, 8)]
)
def test_costly_epilogues_of_products(m: int, n: int, depth: int, threads: int) -> None:
    a, b, bias = numbers((m, depth)), numbers((depth, n), seed=1), numbers((n,), seed=2)
    out = np.full((m, n), 99, np.float32)
    k = Operands()
    value = add(product(k, a, b), expand(reshape(k.read(bias), (1, n)), (m, n)))
    value = exp(mul(value, const(dtypes.float32, 1 / 64)))
    run(k, k.write(out, add(value, expand(reshape(k.read(bias), (1, n)), (m, n)))), threads=threads)
    np.testing.assert_allclose(out, np.exp((a @ b + bias) / np.float32(64)) + bias, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("left", "right"), [((40, 500), (500, 1040)), ((600, 200), (200, 200)), ((32, 40, 128), (32, 128, 160))]
)
def test_products_are_shared_by_columns_rows_or_batches(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = numbers(left), numbers(right, seed=1)
    out = np.full((*left[:-1], right[-1]), 99, np.float32)
    k = Operands()
    assert run(k, k.write(out, product(k, a, b)), threads=4).chunks > 1
    np.testing.assert_array_equal(out, a @ b)


@pytest.mark.parametrize("shape", [(3_000_001,), (1500, 2000), (30, 1000, 100)])
@pytest.mark.parametrize("step", [1, 2])
def test_long_sums_stay_as_exact_as_numpy(shape: tuple[int, ...], step: int) -> None:
    x = np.full(shape, 0.1, np.float32)[..., ::step]
    out = np.zeros((), np.float32)
    k = Operands()
    run(k, k.write(out, reduce("sum", k.read(x), tuple(range(x.ndim)))))
    exact = float(np.float32(0.1)) * x.size
    assert abs(float(out) - exact) <= 1e-6 * exact


def test_adjacent_axes_that_are_reduced_are_one_loop() -> None:
    x, out = numbers((8, 30, 50)), np.zeros(8, np.float32)
    k = Operands()
    lowered = run(k, k.write(out, reduce("sum", k.read(x), (1, 2))))
    np.testing.assert_array_equal(out, x.sum((1, 2)))
    assert lowered.name == "r_8_1500"


def test_code_grows_with_the_length_of_a_chain_of_functions() -> None:
    sizes: list[int] = []
    for length in (10, 20):
        x, out = numbers((64,)) / 8, np.zeros(64, np.float32)
        k = Operands()
        value = k.read(x)
        want = x.astype(np.float64)
        for _ in range(length):
            value = mul(exp(sub(value, value)), value)
        sizes.append(len(run(k, k.write(out, value)).linear.src))
        np.testing.assert_allclose(out, want, rtol=1e-6)
    assert sizes[1] <= 2 * sizes[0]
