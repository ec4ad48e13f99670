"""Every choice of lowering gives the bits of the cost model's."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio.core.target import Target
from intaglio.ir.levels import Level
from intaglio.ir.verify import verify
from intaglio.lower.choice import MODEL, Choice, Decisions, about
from intaglio.lower.kernel import Lowered, lower
from intaglio.lower.search import neighbours
from intaglio.ops.elementwise import add, exp, mul, sub
from intaglio.ops.loop import Sink, sink
from intaglio.ops.movement import expand, permute, reshape
from intaglio.ops.reduce import reduce, scan
from intaglio.render import llvm
from intaglio.runtime.compiler import host_target
from tests.unit.lower.running import Operands, compiler, function

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from intaglio.ir.node import Node


def drawn(*shape: int) -> np.ndarray:
    """Random numbers whose sums depend on their order."""
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def chain(k: Operands) -> tuple[Node, np.ndarray]:
    """Elementwise, over one axis, large enough for threads."""
    a, out = drawn(1_100_003), np.zeros(1_100_003, np.float32)
    x = k.read(a)
    return sink(k.write(out, mul(add(x, x), x))), out


def outer_sum(k: Operands) -> tuple[Node, np.ndarray]:
    """Elementwise over three axes that cannot be merged."""
    a, b, out = drawn(6, 35), drawn(9, 35), np.zeros((6, 9, 35), np.float32)
    left = expand(reshape(k.read(a), (6, 1, 35)), (6, 9, 35))
    right = expand(reshape(k.read(b), (1, 9, 35)), (6, 9, 35))
    return sink(k.write(out, add(left, right))), out


def transposition(k: Operands) -> tuple[Node, np.ndarray]:
    """Columns as rows."""
    a, out = drawn(90, 70), np.zeros((70, 90), np.float32)
    return sink(k.write(out, permute(k.read(a), (1, 0)))), out


def softmax(k: Operands) -> tuple[Node, np.ndarray]:
    """Rows whose values are kept."""
    a, out = drawn(33, 70), np.zeros((33, 70), np.float32)
    x = k.read(a)
    greatest = expand(reshape(reduce("max", x, (1,)), (33, 1)), (33, 70))
    raised = exp(sub(x, greatest))
    total = expand(reshape(reduce("sum", raised, (1,)), (33, 1)), (33, 70))
    return sink(k.write(out, mul(raised, total))), out


def columns(k: Operands) -> tuple[Node, np.ndarray]:
    """A sum down the columns of a matrix out of memory."""
    a, out = drawn(700, 1500), np.zeros(1500, np.float32)
    return sink(k.write(out, reduce("sum", k.read(a), (0,)))), out


def running(k: Operands) -> tuple[Node, np.ndarray]:
    """A scan down columns."""
    a, out = drawn(20, 100), np.zeros((20, 100), np.float32)
    return sink(k.write(out, scan("sum", k.read(a), 0))), out


def product(
    k: Operands, m: int, n: int, depth: int, *, turned: bool = False, heavy: bool = False
) -> tuple[Node, np.ndarray]:
    """A product, with more after it or not."""
    a, b, out = drawn(m, depth), drawn(depth, n), np.zeros((m, n), np.float32)
    held = np.ascontiguousarray(b.T).T if turned else b
    left = expand(reshape(k.read(a), (m, 1, depth)), (m, n, depth))
    right = expand(reshape(permute(k.read(held), (1, 0)), (1, n, depth)), (m, n, depth))
    value = reduce("sum", mul(left, right), (2,))
    return sink(k.write(out, exp(mul(value, value)) if heavy else value)), out


KERNELS: dict[str, Callable[[Operands], tuple[Node, np.ndarray]]] = {
    "chain": chain,
    "outer sum": outer_sum,
    "transposition": transposition,
    "softmax": softmax,
    "columns": columns,
    "running": running,
    "product": lambda k: product(k, 130, 97, 333),
    "large product": lambda k: product(k, 200, 700, 300),
    "heavy product": lambda k: product(k, 50, 70, 30, heavy=True),
    "turned product": lambda k: product(k, 40, 300, 70, turned=True),
    "few rows": lambda k: product(k, 5, 700, 1500),
    "dots": lambda k: product(k, 6, 401, 900, turned=True),
    "row by turned": lambda k: product(k, 1, 4000, 900, turned=True),
}
TARGET = host_target(2)


def bits(k: Operands, lowered: Lowered, out: np.ndarray) -> bytes:
    """What a kernel writes, its chunks run one by one."""
    verify(lowered.linear, Level.LINEAR)
    out.fill(99)
    address, _ = compiler().load(llvm.render(lowered.linear, TARGET), lowered.name)
    slots = array("Q", (x.ctypes.data for x in k.arrays))
    for chunk in reversed(range(lowered.chunks)):
        function(address, lowered.linear)(slots.buffer_info()[0], chunk, chunk + 1)
    return out.tobytes()


@pytest.mark.parametrize("name", KERNELS)
def test_no_choice_changes_a_bit(name: str, rng: random.Random) -> None:
    k = Operands()
    ast, out = KERNELS[name](k)
    assert isinstance(ast.op, Sink)
    model = lower(ast, TARGET)
    expected = bits(k, model, out)
    assert model.decisions
    others: dict[Node, Lowered] = {}
    for choice in neighbours(model):
        code = lower(ast, TARGET, choice=choice)
        others[code.linear] = code
        for further in rng.sample(list(neighbours(code)), 2):
            twice = lower(ast, TARGET, choice=further)
            others[twice.linear] = twice
    assert len(others) > 1
    drawn = rng.sample(list(others.values()), min(8, len(others)))
    assert [code.decisions for code in drawn if bits(k, code, out) != expected] == []


def test_a_choice_gives_the_same_code_again() -> None:
    ast, _ = KERNELS["product"](Operands())
    model = lower(ast, TARGET)
    assert lower(ast, TARGET, choice=MODEL).linear is model.linear
    choice = next(c for c in neighbours(model) if c.answers[0][1] == "tile")
    code = lower(ast, TARGET, choice=choice)
    assert code.linear is not model.linear
    assert code.linear is lower(ast, TARGET, choice=choice).linear
    assert hash(choice) == hash(Choice(choice.answers))


def test_an_answer_that_is_no_option_is_the_models() -> None:
    ast, _ = KERNELS["product"](Operands())
    model = lower(ast, TARGET)
    for answer in ((0, "tile", (31, 8)), (0, "tile", 3), (7, "tile", (1, 1)), (0, "soup", 1)):
        assert lower(ast, TARGET, choice=Choice((answer,))).linear is model.linear


def test_a_question_asked_twice_has_one_answer() -> None:
    decisions = Decisions(Choice(((0, "rows", 4),)))
    decisions.begin()
    assert decisions.of("rows", 8, (2, 4)) == 4
    assert decisions.of("rows", 16, (4,)) == 4
    assert decisions.of("rows", 16, (8,)) == 16
    assert [(d.model, d.value, d.options) for d in decisions.taken] == [(8, 4, (8, 2, 4))]
    decisions.begin()
    assert decisions.of("rows", 8, (2, 4)) == 8


def test_numbers_around_one_stay_in_bounds() -> None:
    assert about(8, 1, 64) == [2, 4, 16, 32]
    assert about(1, 1, 2) == [2]
    assert about(64, 1, 64) == [16, 32]


def test_scalar_code_has_no_vectors_to_choose() -> None:
    ast, _ = KERNELS["chain"](Operands())
    assert "vectors" not in {d.name for d in lower(ast, Target("c", 0)).decisions}
