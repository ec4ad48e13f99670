"""The verifier passes real kernels and names what is wrong in damaged ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import InternalError
from intaglio.core.target import Target
from intaglio.ir.levels import Level
from intaglio.ir.node import Node, make
from intaglio.ir.verify import verify
from intaglio.ir.view import View
from intaglio.lower.kernel import lower
from intaglio.ops.elementwise import add, exp, lt, mul
from intaglio.ops.loop import (
    END_IF,
    END_LOOP,
    PREFETCH,
    Carried,
    Final,
    If,
    Interleave,
    Linear,
    Loop,
    Shuffle,
    sink,
    store,
)
from intaglio.ops.memory import Arg, BufferRef, Param, buffer, const, iota, load, window
from intaglio.ops.movement import expand, pad, reshape
from intaglio.ops.reduce import Across, reduce

if TYPE_CHECKING:
    from collections.abc import Callable

P = make(Param(0, dtypes.float32, 0))
Q = make(Param(1, dtypes.float32, 1))
X = window(View.contiguous(dtypes.float32, (40,)), P)
OUT = window(View.contiguous(dtypes.float32, (40,)), Q)
ZERO = const(dtypes.float32, 0)


def whole(value: int) -> Node:
    return const(dtypes.int64, value)


def linear(*code: Node) -> Node:
    return make(Linear("k"), *code)


LOOP = make(Loop(0), whole(0), whole(4), whole(1), ZERO)
ACC = make(Carried(0), LOOP)
READ = load(P, LOOP)
NEXT = add(ACC, READ)
END = make(END_LOOP, LOOP, NEXT)
SUM = make(Final(0), END)
GOOD = (LOOP, READ, NEXT, END, store(Q, whole(0), SUM))


def test_a_loop_by_hand_passes() -> None:
    verify(linear(*GOOD), Level.LINEAR)


@pytest.mark.parametrize(
    "value",
    [
        exp(X),
        add(X, X),
        reshape(pad(window(View.contiguous(dtypes.float32, (38,)), P), ((1, 1),)), (40,)),
        expand(reshape(reduce("sum", X, (0,)), (1,)), (40,)),
        expand(reshape(reduce("max", mul(X, X), (0,)), (1,)), (40,)),
    ],
)
@pytest.mark.parametrize("vector", [0, 16, 32, 64])
def test_lowered_kernels_pass(value: Node, vector: int) -> None:
    ast = sink(store(OUT, value))
    verify(ast, Level.KERNEL)
    verify(lower(ast, Target("x86_64", vector)).linear, Level.LINEAR)


def test_a_gated_scalar_read_is_lowered_to_a_safe_one() -> None:
    # A scalar load has no masked form: its gate must become a choice of the place, or memory outside is touched.
    inside = window(View.contiguous(dtypes.float32, (1,)), P)
    value = reduce("sum", pad(inside, ((1, 1),)), (0,))
    target = window(View.contiguous(dtypes.float32, ()), Q)
    code = lower(sink(store(target, value)), Target("x86_64", 0)).linear
    verify(code, Level.LINEAR)
    assert [n for n in code.src if n.op.name == "load"]
    assert all(len(n.src) == 2 for n in code.src if n.op.name == "load" and not n.shape)


def damaged() -> dict[str, tuple[Callable[[], Node], str]]:
    """Code with one fault each, and what the verifier says."""
    lanes = add(iota(4), whole(0))
    vector = load(P, whole(0), lanes=4)
    condition = lt(load(P, whole(0)), ZERO)
    start = make(If(0), condition)
    inner = load(P, whole(3))
    far = make(Loop(1), whole(0), whole(4), whole(1), ZERO)
    three = load(P, whole(0), lanes=3)
    return {
        "use before definition": (lambda: linear(NEXT, *GOOD), "used outside its loop"),
        "never defined": (lambda: linear(store(Q, whole(0), READ)), "used before it is defined"),
        "never closed": (lambda: linear(LOOP, READ, NEXT), "loop is never closed"),
        "out of scope": (lambda: linear(*GOOD, store(Q, whole(0), READ)), "after its scope has ended"),
        "final too early": (
            lambda: linear(LOOP, READ, NEXT, store(Q, whole(0), SUM), END),
            "before its loop or condition has ended",
        ),
        "crossed": (
            lambda: linear(load(P, whole(0)), condition, start, LOOP, READ, NEXT, make(END_IF, start), END),
            "does not close the innermost if",
        ),
        "closed twice": (lambda: linear(*GOOD, END), "does not close the innermost loop"),
        "opened twice": (lambda: linear(LOOP, LOOP), "loop is open already"),
        "value of a branch": (
            lambda: linear(load(P, whole(0)), condition, start, inner, make(END_IF, start), store(Q, whole(0), inner)),
            "after its scope has ended",
        ),
        "carried count": (lambda: linear(LOOP, READ, make(END_LOOP, LOOP)), "carries 1 values, its end gives 0"),
        "carried type": (
            lambda: linear(vector, LOOP, make(END_LOOP, LOOP, vector)),
            r"begins as float32\[\] and goes on as float32\[4\]",
        ),
        "other loop's value": (lambda: linear(far, make(END_LOOP, far, ACC)), "used outside its loop"),
        "step": (lambda: linear(make(Loop(2), whole(0), whole(4), whole(0))), "step must be a positive constant"),
        "store dtype": (lambda: linear(store(Q, whole(0), whole(1))), "the value is int64, the pointer float32"),
        "index dtype": (lambda: linear(store(Q, const(dtypes.int32, 0), ZERO)), r"the index is int32\[\]"),
        "index lanes": (
            lambda: linear(lanes, store(Q, lanes, ZERO)),
            r"the index is int64\[4\], the value has shape \[\]",
        ),
        "scalar mask": (lambda: linear(store(Q, whole(0), ZERO, const(dtypes.bool, True))), r"the mask is bool\[\]"),
        "store through a value": (lambda: linear(store(ZERO, whole(0), ZERO)), "must go through a param or local"),
        "prefetch of a value": (
            lambda: linear(make(PREFETCH, P, whole(0), ZERO)),
            "a prefetch takes a pointer and an index",
        ),
        "prefetch of lanes": (lambda: linear(lanes, make(PREFETCH, P, lanes)), r"the index is int64\[4\]"),
        "lanes": (lambda: linear(three, make(Across("sum"), three)), r"across takes a vector of 2 \*\* k lanes"),
        "lanes in turn": (lambda: linear(three, make(Interleave(True), three, three)), r"two vectors of 2 \* k lanes"),
        "lanes by number": (lambda: linear(three, make(Shuffle((0, 6)), three, three)), "lanes of two alike vectors"),
        "not decomposed": (lambda: linear(load(P, whole(0)), exp(load(P, whole(0)))), "exp of float32 must have been"),
        "other level": (lambda: linear(X), "window may not stand here"),
        "matrix": (lambda: linear(expand(ZERO, (2, 2))), "must be a scalar or a vector"),
        "no linear": (lambda: sink(store(OUT, X)), "code must be a linear"),
    }


@pytest.mark.parametrize("fault", damaged())
def test_damaged_code_is_refused(fault: str) -> None:
    build, says = damaged()[fault]
    with pytest.raises(InternalError, match=says) as caught:
        verify(build(), Level.LINEAR)
    assert "at LINEAR level" in str(caught.value)
    assert "return %" in caught.value.ir


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: sink(store(OUT, window(View.contiguous(dtypes.float32, (39,)), P))), r"the value has shape \(39,\)"),
        (lambda: sink(store(OUT, window(View.contiguous(dtypes.int32, (40,)), P))), "the value is int32"),
        (lambda: sink(store(X)), "a store needs a window and a value"),
        (lambda: sink(store(exp(X), X)), "must go into a window on a param"),
        (lambda: sink(X), "window is no statement"),
        (lambda: store(OUT, X), "a kernel must be a sink"),
        (lambda: sink(store(OUT, window(X.op.view, buffer(BufferRef(160, "CPU"))))), "buffer may not stand here"),
        (lambda: sink(store(OUT, expand(make(Carried(0), LOOP), (40,)))), "may not stand here"),
    ],
)
def test_a_wrong_kernel_is_refused(build: Callable[[], Node], says: str) -> None:
    with pytest.raises(InternalError, match=says):
        verify(build(), Level.KERNEL)


def test_types_that_do_not_follow_from_inputs_are_refused() -> None:
    node = add(make(Arg(0, dtypes.int32)), make(Arg(1, dtypes.int32)))
    forged = Node.__new__(Node)
    forged.op, forged.src, forged.dtype, forged.shape, forged.site = node.op, node.src, dtypes.int64, (), None
    with pytest.raises(InternalError, match="its inputs give another type"):
        verify(forged, Level.LOOP)
