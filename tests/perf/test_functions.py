"""What functions of float32 and float64 cost: no calls, and no work for what is rare unless a lane asks for it."""

from __future__ import annotations

import re

import pytest

from intaglio.core.dtypes import DType, dtypes
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
    "exp": 16, "exp2": 15, "expm1": 23, "log": 21, "log2": 32, "log10": 33, "log1p": 28, "sin": 34, "cos": 35,
    "tan": 37, "asin": 20, "acos": 26, "atan": 21, "sinh": 30, "cosh": 26, "tanh": 26, "asinh": 42, "acosh": 38,
    "atanh": 43, "erf": 33,
    "pow": 57, "atan2": 34,
}  # fmt: skip
DOUBLE = {  # instructions on one vector of float64
    "exp": 21, "exp2": 20, "expm1": 29, "log": 31, "log2": 39, "log10": 40, "log1p": 43, "sin": 42, "cos": 43,
    "tan": 47, "asin": 31, "acos": 37, "atan": 36, "sinh": 35, "cosh": 31, "tanh": 38, "asinh": 52, "acosh": 51,
    "atanh": 66, "erf": 57,
    "pow": 86, "atan2": 49,
}  # fmt: skip
WITH_RARE = {"log", "log2", "log10", "log1p", "sin", "cos", "tan", "asinh", "acosh", "atanh", "pow", "atan2"}


def kernel(name: str, n: int, dtype: DType) -> Node:
    """A function of many numbers, lowered."""
    kind = Op.registry[name]
    assert issubclass(kind, Elementwise)
    pointers = [make(Param(k, dtype, k)) for k in range(kind.arity + 1)]
    *inputs, out = (window(View.contiguous(dtype, (n,)), p) for p in pointers)
    return lower(sink(store(out, make(Op.single(kind), *inputs))), WIDE).linear


CASES = [(name, dtypes.float32) for name in USUALLY] + [(name, dtypes.float64) for name in DOUBLE]
each_function = pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda v: getattr(v, "name", v))


@each_function
def test_a_function_takes_so_many_instructions(name: str, dtype: DType) -> None:
    usual, inside = 0, False
    ifs = vectors = 0
    for node in kernel(name, 1 << 12, dtype).src:
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
    assert usual // vectors == (USUALLY if dtype is dtypes.float32 else DOUBLE)[name]


@each_function
def test_a_function_calls_no_library(name: str, dtype: DType) -> None:
    """But for large angles and powers at the edges of float64, which are rare."""
    text = llvm.render(kernel(name, 1000, dtype), WIDE)
    called = set(re.findall(r"call [^@]*@([\w.]+)\(", text))
    if dtype is dtypes.float64 and name in ("sin", "cos", "tan", "pow"):
        called.remove(name)
    assert all(c.startswith("llvm.") for c in called)
    assert not called & {"llvm.exp", "llvm.log", "llvm.pow", "llvm.sin", "llvm.cos"}
