"""Products keep to the registers, the caches and the stack; their blocks change no bit of a result."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.target import Target
from intaglio.ir.node import toposort
from intaglio.lower.kernel import Lowered, lower
from intaglio.lower.product import PACK, even_chunks, tile_shape
from intaglio.ops.elementwise import Fma, mul
from intaglio.ops.loop import Interleave, Loop, sink
from intaglio.ops.memory import Load, Local
from intaglio.ops.movement import expand, permute, reshape
from intaglio.ops.reduce import reduce
from intaglio.render import llvm
from intaglio.runtime.compiler import host_caches, host_target
from intaglio.schedule.kernels import PlannedKernel
from tests.unit.lower.running import Operands, compiler, function, numbers, run

if TYPE_CHECKING:
    from intaglio.ir.node import Node


def product(k: Operands, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Node:
    """The kernel of out = a @ b."""
    (m, depth), n = a.shape, b.shape[1]
    left = expand(reshape(k.read(a), (m, 1, depth)), (m, n, depth))
    right = expand(reshape(permute(k.read(b), (1, 0)), (1, n, depth)), (m, n, depth))
    return sink(k.write(out, reduce("sum", mul(left, right), (2,))))


def scratch(lowered: Lowered) -> int:
    """Bytes of scratch that a kernel has on the stack."""
    locals_ = {n for instruction in lowered.linear.src for n in instruction.src if isinstance(n.op, Local)}
    return sum(n.op.size * n.dtype.itemsize for n in locals_ if isinstance(n.op, Local))


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("width", [1, 2, 3, 8, 100])
def test_tiles_fit_the_registers(vector_bytes: int, width: int) -> None:
    target = Target(vector_bytes=vector_bytes)
    for height in range(1, 200):
        rows, vectors = tile_shape(height, width, target)
        assert 1 <= rows <= height
        assert 1 <= vectors <= max(1, width)
        assert rows * vectors + vectors + 1 <= target.vector_registers


def test_tiles_leave_no_rows_over_where_that_is_cheap() -> None:
    target = Target(vector_bytes=64)
    for height in (64, 96, 100, 128, 300, 512, 768, 1000, 1024, 4096):
        rows, _ = tile_shape(height, 64, target)
        assert height % rows == 0
        assert rows >= 8


def test_tiles_of_few_rows_are_wider_where_no_columns_are_left_over() -> None:
    target = Target(vector_bytes=64)
    assert [tile_shape(128, width, target) for width in (24, 48, 32, 49)] == [(8, 3), (8, 3), (8, 2), (8, 2)]
    assert [tile_shape(height, 48, target) for height in (12, 9, 4)] == [(12, 2), (9, 3), (4, 6)]
    assert tile_shape(128, 3, target, part=True) == (8, 2)


@pytest.mark.parametrize(("width", "columns"), [(384, 192), (480, 240), (96, 96)])
def test_blocks_of_packed_columns_are_about_equal(width: int, columns: int) -> None:
    k = Operands()
    a, b = np.zeros((256, 400), np.float32), np.zeros((width, 400), np.float32)
    target = Target(vector_bytes=64, level2=2 << 20)  # a quarter holds 288 columns
    lowered = lower(product(k, a, b.T, np.zeros((256, width), np.float32)), target)
    assert scratch(lowered) == 400 * 4 * columns


@pytest.mark.parametrize(("height", "width", "chunks"), [(4096, 384, 4), (1000, 384, 4), (384, 1024, 8)])
def test_threads_share_the_rows_of_tall_products(height: int, width: int, chunks: int) -> None:
    k = Operands()
    a, b = np.zeros((height, 384), np.float32), np.zeros((width, 384), np.float32)
    target = Target(vector_bytes=64, level2=2 << 20, threads=2)
    lowered = lower(product(k, a, b.T, np.zeros((height, width), np.float32)), target)
    assert lowered.chunks == chunks


@pytest.mark.parametrize(("m", "n", "depth"), [(100, 300, 70), (61, 1000, 150), (130, 97, 333), (19, 3000, 40)])
def test_caches_and_threads_change_no_bit(m: int, n: int, depth: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, depth), np.float32), rng.standard_normal((depth, n), np.float32)
    results: list[bytes] = []
    for level2, threads in ((1 << 14, 1), (1 << 15, 4), (1 << 30, 1)):
        target = replace(host_target(threads), level2=level2)
        out = np.full((m, n), 99, np.float32)
        k = Operands()
        lowered = lower(product(k, a, b, out), target)
        assert bool(scratch(lowered)) == (level2 < 1 << 30)
        address, _ = compiler().load(llvm.render(lowered.linear, target), lowered.name)
        slots = array("Q", (x.ctypes.data for x in k.arrays))
        for chunk in reversed(range(lowered.chunks)):
            function(address, lowered.linear)(slots.buffer_info()[0], chunk, chunk + 1)
        np.testing.assert_allclose(out, a.astype(np.float64) @ b, atol=1e-4)
        results.append(out.tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize(("size", "chunks"), [(64, 1), (128, 1), (192, 2), (256, 6)])
def test_products_are_shared_in_pieces_of_some_microseconds(size: int, chunks: int) -> None:
    a, b, out = (np.zeros((size, size), np.float32) for _ in range(3))
    k = Operands()
    assert lower(product(k, a, b, out), Target(vector_bytes=64, level2=2 << 20, threads=2)).chunks == chunks
    assert lower(product(k, a, b, out), Target(vector_bytes=64, level2=2 << 20)).chunks == 1


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("m", "n", "depth"), [(16, 30, 33), (40, 300, 70), (130, 97, 333), (19, 8, 40)])
def test_the_layout_of_the_columns_changes_no_bit(m: int, n: int, depth: int, turned: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, depth), np.float32), rng.standard_normal((depth, n), np.float32)
    columns = np.ascontiguousarray(b.T).T if turned else b
    out = np.full((m, n), 99, np.float32)
    k = Operands()
    run(k, *product(k, a, columns, out).src, threads=2)
    np.testing.assert_allclose(out, in_blocks(a, b, (1 << 12, 1 << 8)), rtol=0, atol=0)


@pytest.mark.parametrize(("m", "n", "depth"), [(1, 140, 5000), (17, 33, 4900), (3, 700, 600), (40, 600, 4200)])
def test_deep_products_are_sums_of_blocks_of_blocks(m: int, n: int, depth: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, depth), np.float32), rng.standard_normal((depth, n), np.float32)
    out = np.full((m, n), 99, np.float32)
    k = Operands()
    run(k, *product(k, a, b, out).src, threads=2)
    np.testing.assert_allclose(out, in_blocks(a, b, (1 << 12, 1 << 8)), rtol=0, atol=0)


def in_blocks(a: np.ndarray, b: np.ndarray, blocks: tuple[int, ...]) -> np.ndarray:
    """a @ b by sums of blocks of blocks of so many terms, in order; each product and sum rounded once."""
    depth = a.shape[1]
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for start in range(0, depth, blocks[0] if blocks else 1):
        if blocks:
            own = slice(start, start + blocks[0])
            total += in_blocks(a[:, own], b[own], blocks[1:])
        else:
            total = (a[:, start : start + 1].astype(np.float64) * b[start] + total).astype(np.float32)
    return total


@pytest.mark.parametrize("interpret", [False, True])
def test_columns_that_lie_apart_are_turned_in_registers(interpret: bool) -> None:
    a, b = numbers((17, 21)), numbers((35, 21), seed=1)
    out = np.full((17, 35), 99, np.float32)
    k = Operands()
    lowered = run(k, *product(k, a, b.T, out).src, interpret=interpret)
    assert np.array_equal(out, a @ b.T)
    assert any(isinstance(n.op, Interleave) for n in lowered.linear.src)
    gathered = [n for n in lowered.linear.src if isinstance(n.op, Load) and n.src[1].shape]
    assert not gathered


@pytest.mark.parametrize(  # the last is in slabs
    ("size", "loops", "length"), [(512, 9, 150), (1024, 9, 150), (4096, 9, 150), (8192, 20, 600)]
)
def test_packed_columns_are_few_and_their_code_short(size: int, loops: int, length: int) -> None:
    k = Operands()
    a = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (size, size), (size * 4, 4))
    lowered = lower(product(k, a, a, a), host_target(2))
    assert scratch(lowered) <= PACK
    assert sum(isinstance(n.op, Loop) for n in lowered.linear.src) <= loops
    assert len(lowered.linear.src) < length


def test_caches_of_the_host_are_in_order() -> None:
    found = host_caches()
    assert set(found) <= {"level1", "level2", "level3"}
    assert sorted(found.values()) == [found[name] for name in sorted(found)]


def test_threads_have_as_many_chunks_where_there_are_enough() -> None:
    assert [even_chunks(tiles, 8, 2) for tiles in (42, 32, 7, 3, 1)] == [6, 8, 4, 8, 8]
    for tiles in range(1, 100):
        for threads in (1, 2, 3, 16):
            number = even_chunks(tiles, 8, threads)
            assert number == 8 or (number % threads == 0 and number <= 8)


@pytest.mark.parametrize("arrays", [0, 1, 3])
def test_what_is_added_to_a_product_does_not_choose_its_vectors(arrays: int) -> None:
    """The gradient of a convolution's weights: they lie together along an axis of three, what it reads along others."""
    draw = np.random.default_rng(0)
    x, w, ct = (Tensor(numbers(s)).realize() for s in ((8, 16, 14, 14), (32, 16, 3, 3), (8, 32, 14, 14)))
    others = [Tensor(draw.standard_normal(w.shape, dtype=np.float32)).realize() for _ in range(arrays)]
    wanted = w.clone().requires_grad_()
    (value,) = (x.conv2d(wanted, padding=1) * ct).sum().gradient(wanted)
    for other in others:
        value = value + other
    *_, kernel = value.schedule()
    assert isinstance(kernel, PlannedKernel)
    lowered = lower(kernel.ast, replace(host_target(1), vector_bytes=64))
    assert sum(isinstance(node.op, Fma) and node.shape == (16,) for node in toposort(lowered.linear.src)) >= 8
