"""Little scratch lies on the stack, more in memory of the thread's own."""

from __future__ import annotations

import re

import pytest

from intaglio.core.dtypes import dtypes
from intaglio.core.target import Target
from intaglio.ir.node import make
from intaglio.lower.index import number
from intaglio.ops.loop import STORE, Linear
from intaglio.ops.memory import Local, const
from intaglio.ops.scratch import LINE, STACK, scratch_of
from intaglio.render import llvm


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((), (0, [])),
        ((16, 100), (0, [])),
        ((STACK // 4,), (0, [])),
        ((STACK // 4, 1), (STACK + LINE, [0, STACK])),
        ((1, 1 << 18, 17), (LINE + (1 << 20) + 2 * LINE, [0, LINE, LINE + (1 << 20)])),
    ],
)
def test_scratch_is_on_the_stack_up_to_some_kilobytes(sizes: tuple[int, ...], expected: tuple[int, list[int]]) -> None:
    locals_ = [make(Local(k, dtypes.float32, size)) for k, size in enumerate(sizes)]
    stores = [make(STORE, local, number(0), const(dtypes.float32, 1)) for local in locals_]
    linear = make(Linear("kernel"), *stores, *stores)
    places, total = scratch_of(linear)
    assert (total, [places[local] for local in locals_ if local in places]) == expected
    text = llvm.render(linear, Target(vector_bytes=64))
    assert len(re.findall("alloca", text)) == (0 if places else len(sizes))
    assert [int(n) for n in re.findall(r"ptr %scratch, i64 (\d+)", text)] == expected[1]
