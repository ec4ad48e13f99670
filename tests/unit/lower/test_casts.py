"""Casts of every pair of dtypes are in vectors, with no call and no lane by itself, whatever the target has."""

from __future__ import annotations

import re

import pytest

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.target import Target
from intaglio.ir.node import make
from intaglio.ir.view import View
from intaglio.lower.kernel import lower
from intaglio.ops.elementwise import cast
from intaglio.ops.loop import sink, store
from intaglio.ops.memory import Param, window
from intaglio.render import llvm
from intaglio.runtime.compiler import host_target

EVERY = list({d.name: d for d in vars(dtypes).values() if isinstance(d, DType)}.values())
TARGETS = {
    "host": host_target(1),
    "avx2": Target("cpu", 32, frozenset({"fma", "f16c", "avx2"})),
    "sse": Target("cpu", 16, frozenset()),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("source", EVERY, ids=lambda d: d.name)
def test_casts_are_in_vectors(source: DType, name: str) -> None:
    target = TARGETS[name]
    for to in EVERY:
        if to is source:
            continue
        x = window(View.contiguous(source, (1 << 12,)), make(Param(0, source, 0)))
        out = window(View.contiguous(to, (1 << 12,)), make(Param(1, to, 1)))
        text = llvm.render(lower(sink(store(out, cast(x, to))), target).linear, target)
        assert re.search(r"store .*<\d+ x", text), to.name
        assert not re.search(r"extractelement|call [^@]*@(?!llvm\.)", text), to.name
