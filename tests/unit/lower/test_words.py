"""Products of bfloat16 and of bytes: by words where the target has them, to the bit where they are whole numbers."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.dtypes import DType, dtypes
from intaglio.ir.interpret import run_linear
from intaglio.ir.node import Node, make, walk
from intaglio.ir.view import View
from intaglio.lower.kernel import Lowered, lower
from intaglio.ops.elementwise import cast, mul
from intaglio.ops.loop import sink, store
from intaglio.ops.memory import Param, window
from intaglio.ops.movement import expand, permute, reshape
from intaglio.ops.reduce import Dot, reduce
from intaglio.render import llvm
from intaglio.runtime.compiler import host_features, host_target
from tests.unit.lower.running import compiler, function

if TYPE_CHECKING:
    from intaglio.core.target import Target

RNG = np.random.default_rng(3)
FEATURE = {"int8": "avx512vnni", "uint8": "avx512vnni", "bfloat16": "avx512bf16"}
Array = np.ndarray[Any, Any]


def target(*features: str) -> Target:
    """The host, as if it had wide vectors, some features, and no others of their kind."""
    host = host_target(1)
    return replace(host, vector_bytes=64, features=host.features - set(FEATURE.values()) | set(features))


def seen(slot: int, dtype: DType, shape: tuple[int, ...]) -> Node:
    """An operand of a kernel."""
    return window(View.contiguous(dtype, shape), make(Param(slot, dtype, slot)))


def product(left: DType, right: DType, m: int, depth: int, n: int, *, turned: bool) -> Node:
    """The kernel of a product in the wider dtype; `turned`: of a matrix that is given by its columns."""
    wide = dtypes.float32 if left.is_float else dtypes.int32
    matrix = seen(1, right, (n, depth)) if turned else permute(seen(1, right, (depth, n)), (1, 0))
    x = expand(reshape(cast(seen(0, left, (m, depth)), wide), (m, 1, depth)), (m, n, depth))
    y = expand(reshape(cast(matrix, wide), (1, n, depth)), (m, n, depth))
    return sink(store(seen(2, wide, (m, n)), reduce("sum", mul(x, y), (2,))))


def numbers(dtype: str, *shape: int) -> tuple[Array, Array]:
    """(numbers as they lie in memory, as they are)."""
    if dtype != "bfloat16":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        made = RNG.integers(low, high, shape, dtype=dtype, endpoint=True)
        return made, made.astype(np.int64)
    words = RNG.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16
    return words.astype(np.uint16), (words << 16).view(np.float32).astype(np.float64)


def has_words(lowered: Lowered) -> bool:
    """Whether code sums products of the parts of words."""
    return any(isinstance(n.op, Dot) for n in walk((lowered.linear,)))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shape", [(16, 64, 17), (33, 68, 16), (20, 128, 70)])
@pytest.mark.parametrize(
    "pair", [("int8", "int8"), ("int8", "uint8"), ("uint8", "int8"), ("uint8", "uint8"), ("bfloat16", "bfloat16")]
)
def test_words_and_plain_code_agree(pair: tuple[str, str], shape: tuple[int, int, int], turned: bool) -> None:
    m, depth, n = shape
    left, right = (next(d for d in dtypes.all if d.name == name) for name in pair)
    (a, exact_a), (b, exact_b) = numbers(pair[0], m, depth), numbers(pair[1], *((n, depth) if turned else (depth, n)))
    want = exact_a @ (exact_b.T if turned else exact_b)
    feature = FEATURE[pair[0]]
    ast = product(left, right, m, depth, n, turned=turned)
    for having in (target(feature), target()):
        lowered = lower(ast, having)
        assert has_words(lowered) == bool(having.features & {feature})
        out = np.zeros((m, n), np.float32 if left.is_float else np.int32)
        slots = array("Q", (x.ctypes.data for x in (a, b, out)))
        if having.features <= host_features() and host_target(1).vector_bytes == 64:
            address, _ = compiler().load(llvm.render(lowered.linear, having), lowered.name)
            for chunk in range(lowered.chunks):
                function(address, lowered.linear)(slots.buffer_info()[0], chunk, chunk + 1)
        else:
            run_linear(lowered.linear, list(slots), lowered.chunks)
        if left.is_float:
            np.testing.assert_allclose(out, want, rtol=0, atol=1e-6 * depth)
        else:
            np.testing.assert_array_equal(out, want)


def test_the_interpreter_knows_words() -> None:
    """The least and greatest bytes, of which no partial sum may saturate."""
    m, depth, n = 16, 64, 16
    for pair, low in ((("int8", "int8"), (-128, -128)), (("uint8", "int8"), (255, -128))):
        left, right = (next(d for d in dtypes.all if d.name == name) for name in pair)
        lowered = lower(product(left, right, m, depth, n, turned=False), target("avx512vnni"))
        assert has_words(lowered)
        a, b = np.full((m, depth), low[0], pair[0]), np.full((depth, n), low[1], pair[1])
        out = np.zeros((m, n), np.int32)
        run_linear(lowered.linear, [x.ctypes.data for x in (a, b, out)], lowered.chunks)
        np.testing.assert_array_equal(out, low[0] * low[1] * depth)


@pytest.mark.parametrize("shape", [(1, 3, 5), (20, 65, 33), (64, 256, 64), (100, 1000, 130), (300, 512, 40)])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_products_of_bytes_wrap_as_each_operation_would(shape: tuple[int, int, int], dtype: str) -> None:
    m, depth, n = shape
    (a, _), (b, _) = numbers(dtype, m, depth), numbers(dtype, depth, n)
    out = Tensor(a) @ Tensor(b)
    assert out.dtype.name == dtype
    np.testing.assert_array_equal(out.numpy(), a @ b)
    wide = Tensor(a).cast("int32") @ Tensor(b).cast("int32")
    np.testing.assert_array_equal(wide.numpy(), a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("shape", [(1, 3, 5), (20, 64, 200), (130, 700, 257), (300, 9000, 70)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("turned", [False, True])
def test_products_of_half_precision_are_summed_in_single(shape: tuple[int, int, int], dtype: str, turned: bool) -> None:
    m, depth, n = shape
    a = Tensor(RNG.standard_normal((m, depth)).astype(np.float32)).cast(dtype).realize()
    b = Tensor(RNG.standard_normal((n, depth) if turned else (depth, n)).astype(np.float32)).cast(dtype).realize()
    b = b.T if turned else b
    x, y = (t.cast("float64").numpy() for t in (a, b))
    out = (a.cast("float32") @ b.cast("float32")).numpy()
    np.testing.assert_allclose(out, x @ y, rtol=0, atol=float(1e-6 * (np.abs(x) @ np.abs(y)).max()))
    np.testing.assert_array_equal((a @ b).numpy(), Tensor(out).cast(dtype).numpy())


def test_rows_that_are_not_finite_stay_so() -> None:
    a = np.ones((40, 128), np.float16)
    a[3, 5], a[7, 9], a[9, 100] = np.nan, np.inf, -np.inf
    out = (Tensor(a) @ Tensor(np.ones((128, 64), np.float16))).numpy()
    assert np.isnan(out[3]).all()
    assert (out[7] == np.inf).all()
    assert (out[9] == -np.inf).all()
    assert (np.delete(out, [3, 7, 9], 0) == 128).all()
