"""The text form parses back to the very same nodes, for every op and for whole kernels."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import intaglio.ir.rule  # noqa: F401 -- registers what rules are made of
from intaglio.core.dtypes import dtypes
from intaglio.core.errors import InternalError
from intaglio.core.target import Target
from intaglio.ir.levels import levels_of
from intaglio.ir.node import Node, Op, make
from intaglio.ir.text import instance, parse, print_text
from intaglio.ir.view import View
from intaglio.lower.kernel import lower
from intaglio.ops.elementwise import ADD, add, cos, exp, gt, mul, where
from intaglio.ops.loop import sink, store
from intaglio.ops.memory import Arg, BufferRef, Param, buffer, const, window
from intaglio.ops.movement import expand, permute
from intaglio.ops.reduce import reduce, scan

REF = BufferRef(64, "CPU")
VALUES: dict[str, Any] = {
    "int": 3,
    "str": "sum",
    "DType": dtypes.int32,
    "Shape": (2, 3),
    "BufferRef": REF,
    "bool": True,
    "Ints": (1, 0),
    "View": View(dtypes.float32, (2, 3), (-12, 4), 12),
    "tuple[int, ...]": (1,),
    "ops.Binary": ADD,
    "tuple[str, ...]": ('a "b"', "c\\d\n"),
    "tuple[tuple[int, int], ...]": ((0, 1), (2, 3)),
}
RULES_ONLY = {"variable", "folded"}  # functions of this process, which no text can hold
UNWRITTEN = {*RULES_ONLY, "read"}  # as is a storage


def loose(op: Op, *src: Node) -> Node:
    node = Node.__new__(Node)
    node.op, node.src, node.dtype, node.shape, node.site = op, src, dtypes.int32, (2,), None
    return node


@pytest.mark.parametrize("name", sorted(set(Op.registry) - UNWRITTEN))
def test_the_attributes_of_every_op_parse_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Op.registry[name]
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    types = {f.name: str(f.type).removeprefix("Final[").removesuffix("]").split(" |")[0] for f in fields}
    types |= {f.name: str(f.type) for f in fields if str(f.type) in VALUES}
    unknown = [text for text in types.values() if text not in VALUES]
    assert not unknown, f"{name}: give VALUES an example of {unknown}"
    op = instance(kind, {field: VALUES[text] for field, text in types.items()})
    text = print_text([loose(op)])
    made: list[Op] = []

    def take(op: Op, *src: Node) -> Node:
        made.append(op)
        return loose(op, *src)

    monkeypatch.setattr("intaglio.ir.text.make", take)
    parse(text, lambda number, nbytes, device: REF)
    assert made == [op]


def test_what_has_no_text_form_prints_and_does_not_parse() -> None:
    node = loose(Op.registry["folded"](max))  # pyright: ignore[reportCallIssue]
    assert "<builtin_function_or_method>" in print_text([node])
    with pytest.raises(InternalError, match="unexpected '<"):
        parse(print_text([node]))


def test_ops_without_attributes_exist_once() -> None:
    for name, kind in Op.registry.items():
        if name not in RULES_ONLY and not dataclasses.is_dataclass(kind):
            assert instance(kind, {}) is instance(kind, {})
    x = make(Arg(0, dtypes.float64))
    assert parse(print_text([exp(x), cos(x)])) == [exp(x), cos(x)]


def test_every_op_has_a_level() -> None:
    assert {name for name, kind in Op.registry.items() if not levels_of(kind)} == RULES_ONLY


def test_a_tensor_graph_parses_back_to_the_same_nodes() -> None:
    x = window(View.contiguous(dtypes.float32, (4, 4)), buffer(REF))
    y = where(gt(x, const(dtypes.float32, 0)), x, permute(x, (1, 0)))
    roots = [reduce("sum", mul(x, y), (1,)), scan("max", x, 0), expand(const(dtypes.float32, -0.0), (3,))]
    again = parse(print_text(roots), lambda number, nbytes, device: REF)
    assert all(a is b for a, b in zip(again, roots, strict=True))


def test_constants_keep_every_bit() -> None:
    for dtype in dtypes.all:
        for bits in (0, 1, (1 << dtype.bits) - 1, 1 << (dtype.bits - 1)):
            node = make(Op.registry["const"](dtype, bits))  # pyright: ignore[reportCallIssue]
            assert parse(print_text([node])) == [node]


def test_linear_code_parses_back_to_the_same_nodes() -> None:
    pointers = [make(Param(k, dtypes.float32, k)) for k in range(3)]
    a, b, out = (window(View.contiguous(dtypes.float32, (33, 33)), p) for p in pointers)
    product = reduce("sum", mul(expand_rows(a), expand_columns(b)), (2,))
    for value in (product, exp(add(a, b)), reduce("sum", a, (0, 1))):
        target = out if value.shape else window(View.contiguous(dtypes.float32, ()), pointers[2])
        ast = sink(store(target, value))
        linear = lower(ast, Target("x86_64", 32)).linear
        assert parse(print_text([ast, linear])) == [ast, linear]


def expand_rows(a: Node) -> Node:
    view = View(dtypes.float32, (33, 33, 33), (132, 0, 4), 0)
    return window(view, *a.src)


def expand_columns(b: Node) -> Node:
    view = View(dtypes.float32, (33, 33, 33), (0, 4, 132), 0)
    return window(view, *b.src)


def test_the_form_is_stable() -> None:
    p = make(Param(0, dtypes.float32, 0))
    x = window(View.contiguous(dtypes.float32, (4,)), p)
    assert print_text([add(x, x)]) == (
        "%0 = param{slot=0, of=float32, group=0} float32[]\n"
        "%1 = window{view=view(float32, (4,), (4,), 0)} float32[4] %0\n"
        "%2 = add float32[4] %1 %1\n"
        "return %2\n"
    )


def test_a_deep_graph_needs_no_recursion() -> None:
    total = make(Arg(0, dtypes.int32))
    for _ in range(20_000):
        total = add(total, total)
    assert parse(print_text([total])) == [total]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("%0 = nonsense int32[]\nreturn %0", "no op nonsense"),
        ("%0 = add int32[] %1 %2\nreturn %0", "line 1 does not parse"),
        ("%0 = iota{n=4} int32[4]\nreturn %0", r"the type should be int64\[4\]"),
        ("%0 = iota{n=4} int64[4]\n%0 = iota{n=4} int64[4]\nreturn %0", "%0 is defined twice"),
        ("%0 = iota{n=4} int64[4]", "no `return` line"),
        ("%0 = iota{m=4} int64[4]\nreturn %0", "line 1 does not parse"),
        ("%0 = iota{n=$} int64[4]\nreturn %0", "unexpected"),
        ('%0 = buffer{ref=@1:4:"CPU"} uint8[4]\nreturn %0', "a buffer is named"),
        ("what is this", "line 1 does not parse"),
    ],
)
def test_text_that_is_wrong_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(InternalError, match=reason):
        parse(text)
