"""What is left of a range after its whole vectors is one vector under a mask: no loop over single elements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.size import NOMINAL
from intaglio.core.target import Target
from intaglio.ir.node import Node, make
from intaglio.ir.view import View
from intaglio.lower.kernel import lower
from intaglio.ops.elementwise import add, div, exp, mul, sub
from intaglio.ops.loop import Loop, Store, sink, store
from intaglio.ops.memory import Load, Param, window
from intaglio.ops.movement import expand, reshape
from intaglio.ops.reduce import reduce
from intaglio.render import llvm

if TYPE_CHECKING:
    from collections.abc import Iterable

TARGETS: Final = {
    "avx512": Target("cpu", 64, frozenset({"fma", "f16c", "avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl"}), 2),
    "avx2": Target("cpu", 32, frozenset({"fma", "f16c", "avx2"}), 2),
}
SHAPES: Final = [(7,), (17,), (31,), (64,), (65,), (1003,), (1_000_003,), (5, 1003), (37, 3, 5)]
SCALAR: Final = re.compile(r"= load (?:float|double|i8),|store (?:float|double|i8) ")


def accesses(linear: Node) -> Iterable[tuple[int, bool]]:
    """(lanes, whether a mask says which of them count) of each load and store of elements."""
    for node in linear.src:
        match node.op:
            case Load(lanes=lanes) if isinstance(node.src[0].op, Param):
                yield lanes or 1, len(node.src) > 2
            case Store():
                yield node.src[2].size, len(node.src) > 3
            case _:
                pass


def windows(dtype: DType, *shapes: tuple[int, ...], gap: int = 0) -> list[Node]:
    """All of some arrays, whose rows may have so many elements between them."""
    found: list[Node] = []
    for slot, shape in enumerate(shapes):
        rows = View.contiguous(dtype, (*shape[:-1], shape[-1] + gap))
        view = View(dtype, shape, rows.strides, 0)
        found.append(window(view, make(Param(slot, dtype, slot))))
    return found


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int8], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_rest_of_elements_is_one_masked_vector(target: Target, dtype: DType, shape: tuple[int, ...]) -> None:
    a, b, out = windows(dtype, shape, shape, shape)
    linear = lower(sink(store(out, add(mul(a, b), a))), target).linear
    found = [*accesses(linear)]
    lanes = {count for count, _ in found}
    assert len(lanes) == 1
    (wide,) = lanes
    assert 1 < wide <= target.vector_bytes // dtype.itemsize
    left = out.size % wide
    assert sum(masked for _, masked in found) == (3 if left else 0)  # two loads, one store
    turns = [loop.src[2] for loop in linear.src if isinstance(loop.op, Loop)]
    assert len(turns) <= 1
    text = llvm.render(linear, target)
    assert len(re.findall(r"= call .*@llvm\.masked\.load", text)) == (2 if left else 0)
    assert text.count("call void @llvm.masked.store") == (1 if left > 1 else 0)
    assert len(SCALAR.findall(text)) == (1 if left == 1 else 0)  # a mask of one lane stores that


@pytest.mark.parametrize("gap", [0, 5])
def test_the_rest_of_each_row_is_one_masked_vector(gap: int) -> None:
    target = TARGETS["avx512"]
    shape = 50, 1003
    x, out = windows(dtypes.float32, shape, shape, gap=gap)

    def along(reduced: Node) -> Node:
        return expand(reshape(reduced, (50, 1)), shape)

    powers = exp(sub(x, along(reduce("max", x, (1,)))))
    for value in (mul(x, x), div(powers, along(reduce("sum", powers, (1,))))):
        linear = lower(sink(store(out, value)), target).linear
        found = [*accesses(linear)]
        assert {count for count, _ in found} == {16}
        assert any(masked for _, masked in found)
        assert not SCALAR.search(llvm.render(linear, target))


def test_the_rest_of_a_size_that_is_known_at_last_is_masked_vectors() -> None:
    target = TARGETS["avx512"]
    a, b, out = windows(dtypes.float32, *[(NOMINAL,)] * 3)
    linear = lower(sink(store(out, add(mul(a, b), a))), target, 3).linear
    found = [*accesses(linear)]
    assert {count for count, _ in found} == {16}
    assert sum(masked for _, masked in found) == 3
    assert sum(isinstance(n.op, Loop) for n in linear.src) == 2  # of whole vectors, and of the rest
    assert not SCALAR.search(llvm.render(linear, target))
