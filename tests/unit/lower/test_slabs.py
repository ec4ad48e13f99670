"""Products of few rows by large matrices: no bit depends on how it is read; only what is computed of it is copied."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.dtypes import dtypes
from intaglio.core.target import Target
from intaglio.lower.kernel import lower
from intaglio.lower.product import PACK
from intaglio.lower.slabs import COPIED_ROWS, ROWS
from intaglio.lower.stream import COMPUTED_FEW
from intaglio.lower.sums import TERMS
from intaglio.ops.elementwise import add, maximum, mul
from intaglio.ops.loop import Prefetch, sink
from intaglio.ops.memory import Local, const
from intaglio.ops.movement import expand, permute, reshape
from intaglio.ops.reduce import reduce
from intaglio.runtime.compiler import host_target
from tests.unit.lower.running import Operands, numbers
from tests.unit.lower.running import run as run_alone

if TYPE_CHECKING:
    from intaglio.ir.node import Node


def product(k: Operands, a: np.ndarray, b: np.ndarray, matrix: Node | None = None) -> Node:
    """a @ b, of the last two axes; `matrix`: what is computed of b."""
    *lead, m, depth = a.shape
    n, rank = b.shape[-1], len(lead)
    left = expand(reshape(k.read(a), (*lead, m, 1, depth)), (*lead, m, n, depth))
    turned = permute(k.read(b) if matrix is None else matrix, (*range(b.ndim - 2), b.ndim - 1, b.ndim - 2))
    right = expand(reshape(turned, (*b.shape[:-2], 1, n, depth)), (*lead, m, n, depth))
    return reduce("sum", mul(left, right), (rank + 2,))


def run(k: Operands, *statements: Node, level2: int, threads: int) -> int:
    """Run statements, the last chunk first; gives how many scratch arrays there were."""
    lowered = run_alone(k, *statements, target=replace(host_target(threads), level2=level2))
    scratch = {s for n in lowered.linear.src for s in n.src if isinstance(s.op, Local)}
    assert sum(s.op.size * s.dtype.itemsize for s in scratch if isinstance(s.op, Local)) <= PACK
    return len(scratch)


SHAPES = (
    (2, 513, 256),
    (5, 1000, 999),
    (17, 700, 1111),
    (25, 600, 1025),
    (64, 1030, 300),
    (33, 600, 2500),
    (128, 300, 320),
    (130, 1025, 257),
)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_slabs_and_threads_change_no_bit(shape: tuple[int, int, int], *, computed: bool) -> None:
    m, depth, n = shape
    slabs = m <= COPIED_ROWS if computed else True
    scale = 3.0 if computed else 1.0
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(s, np.float32) for s in ((m, depth), (depth, n), (n,)))
    results: list[bytes] = []
    for level2, threads in ((1 << 30, 1), (3 * b.nbytes, 1), (1 << 14, 1), (1 << 14, 2)):
        out = np.full((m, n), 99, np.float32)
        k = Operands()
        matrix = mul(k.read(b), expand(const(dtypes.float32, scale), b.shape)) if computed else k.read(b)
        value = maximum(add(product(k, a, b, matrix), expand(reshape(k.read(c), (1, n)), (m, n))), const_zero(m, n))
        scratch = run(k, k.write(out, value), level2=level2, threads=threads)
        if slabs:  # if half of the second cache holds the matrix, as few rows as are streamed otherwise are, too
            near = level2 == 1 << 30 or (computed and level2 > b.nbytes)
            least = 0 if near else 2 if computed and m > COMPUTED_FEW else 1
            assert least <= scratch <= least + (not near and depth > TERMS[0])  # a block of the sum may be one slab
        np.testing.assert_allclose(out, np.maximum(a.astype(np.float64) @ b * scale + c, 0), atol=1e-3)
        results.append(out.tobytes())
    assert len(set(results)) == 1


def const_zero(m: int, n: int) -> Node:
    """Zeros."""
    return expand(const(dtypes.float32, 0), (m, n))


@pytest.mark.parametrize(
    ("vectors", "few", "many"),
    [(3, ROWS, ROWS + 1), (2, 2 * ROWS, 2 * ROWS + 1), (1, 10 * ROWS, None)],  # whose columns could be copied
)
def test_deep_products_are_slabbed_from_more_rows_on(vectors: int, few: int, many: int | None) -> None:
    target = replace(host_target(2), level2=1 << 14)
    depth = PACK // (vectors * target.vector_bytes)
    for m, slabbed in ((few, True), (many, False)):
        if m is not None:
            k = Operands()
            a, b, out = (np.zeros(shape, np.float32) for shape in ((m, depth), (depth, 300), (m, 300)))
            lowered = lower(sink(k.write(out, product(k, a, b))), target)
            assert any(d.name == "slabs" for d in lowered.decisions) == slabbed


def test_products_too_deep_to_copy_columns_are_slabbed_by_blocks_of_rows() -> None:
    depth = PACK // (2 * 64) + 1
    a, b = numbers((410, depth)), numbers((depth, 300), seed=1)
    out = np.full((410, 300), 99, np.float32)
    k = Operands()
    assert run(k, k.write(out, product(k, a, b)), level2=1 << 14, threads=2) in (2, 3)  # two levels of sums, and slabs
    assert np.array_equal(out, a @ b)


def test_the_next_panel_is_asked_for_where_no_copy_is_made() -> None:
    for rows, computed, asked in [(32, False, True), (COPIED_ROWS, True, False)]:
        a, b = numbers((rows, 600)), numbers((600, 1024), seed=1)
        k = Operands()
        matrix = mul(k.read(b), expand(const(dtypes.float32, 3.0), b.shape)) if computed else k.read(b)
        store = k.write(np.zeros((rows, 1024), np.float32), product(k, a, b, matrix))
        lowered = lower(sink(store), Target(vector_bytes=64, level2=1 << 14))
        assert any(isinstance(n.op, Prefetch) for n in lowered.linear.src) == asked


def test_products_of_a_batch_are_slabbed() -> None:
    a, b = numbers((3, 5, 700)), numbers((3, 700, 300), seed=1)
    out = np.full((3, 5, 300), 99, np.float32)
    k = Operands()
    assert run(k, k.write(out, product(k, a, b)), level2=1 << 14, threads=2) == 2
    assert np.array_equal(out, a @ b)


def test_more_than_one_summed_axis_is_slabbed() -> None:
    a, b = numbers((3, 5, 600)), numbers((3, 600, 300), seed=1)
    out = np.full((5, 300), 99, np.float32)
    k = Operands()
    left = expand(reshape(permute(k.read(a), (1, 0, 2)), (5, 1, 3, 600)), (5, 300, 3, 600))
    right = expand(reshape(permute(k.read(b), (2, 0, 1)), (1, 300, 3, 600)), (5, 300, 3, 600))
    assert run(k, k.write(out, reduce("sum", mul(left, right), (2, 3))), level2=1 << 14, threads=1) == 3
    assert np.array_equal(out, np.einsum("bik,bkn->in", a, b))


def test_a_product_of_depth_one_is_not_slabbed() -> None:
    a, b = (np.arange(n, dtype=np.float32) for n in (16, 1024))
    out = Tensor(a).reshape(1, 16, 1) @ Tensor(b).reshape(1, 1024, 1).transpose(1, 2)
    np.testing.assert_array_equal(out.numpy()[0], np.outer(a, b))
