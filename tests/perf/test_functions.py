"""What functions of float32 cost: no calls, and no work for what is rare unless a lane asks for it."""

from __future__ import annotations

import re

import pytest

from intaglio.core.dtypes import dtypes
from intaglio.core.target import Target
from intaglio.ir.node import Node, Op, make
from intaglio.ir.view import View
from intaglio.lower.kernel import lower
from intaglio.ops.elementwise import Elementwise
from intaglio.ops.loop import EndIf, If, Store, sink, store
from intaglio.ops.memory import Param, window
from intaglio.render import llvm

WIDE = Target("cpu", 64, frozenset({"fma", "f16c", "avx2", "avx512f", "avx512dq"}))
USUALLY = {  # instructions on one vector
    "exp": 16, "exp2": 15, "expm1": 23, "log": 21, "log2": 32, "log1p": 28, "sin": 34, "cos": 35, "tan": 35, "asin": 20,
    "acos": 26, "atan": 21, "sinh": 29, "cosh": 25, "tanh": 26, "asinh": 42, "acosh": 38, "atanh": 43, "erf": 33,
    "pow": 57, "atan2": 34,
}  # fmt: skip
WITH_RARE = {"log", "log2", "log1p", "sin", "cos", "tan", "asinh", "acosh", "atanh", "pow", "atan2"}


def kernel(name: str, n: int) -> Node:
    """A function of many numbers, lowered."""
    kind = Op.registry[name]
    assert issubclass(kind, Elementwise)
    pointers = [make(Param(k, dtypes.float32, k)) for k in range(kind.arity + 1)]
    *inputs, out = (window(View.contiguous(dtypes.float32, (n,)), p) for p in pointers)
    return lower(sink(store(out, make(Op.single(kind), *inputs))), WIDE).linear


@pytest.mark.parametrize("name", USUALLY)
def test_a_function_takes_so_many_instructions(name: str) -> None:
    usual, inside = 0, False
    ifs = vectors = 0
    for node in kernel(name, 1 << 12).src:
        match node.op:
            case If():
                inside, ifs = True, ifs + 1
            case EndIf():
                inside = False
            case Store():
                vectors += 1
            case Elementwise():
                usual += bool(node.shape) and not inside
            case _:
                pass
    assert ifs == (name in WITH_RARE)
    assert usual // vectors == USUALLY[name]


@pytest.mark.parametrize("name", USUALLY)
def test_a_function_calls_no_library(name: str) -> None:
    text = llvm.render(kernel(name, 1000), WIDE)
    called = set(re.findall(r"call [^@]*@([\w.]+)\(", text))
    assert all(c.startswith("llvm.") for c in called)
    assert not called & {"llvm.exp", "llvm.log", "llvm.pow", "llvm.sin", "llvm.cos"}
