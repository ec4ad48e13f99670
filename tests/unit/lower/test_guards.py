"""What a condition guards stays under it: no load of a place that the condition rules out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Node, make
from intaglio.ir.view import View
from intaglio.ops.elementwise import add, mul
from intaglio.ops.loop import BLOCK, FOR, SWITCH, If, Range, StoreAt, store
from intaglio.ops.memory import Load, const, take, window
from intaglio.ops.movement import expand, reshape
from intaglio.ops.reduce import reduce
from tests.unit.lower.running import Operands, numbers, run

if TYPE_CHECKING:
    from intaglio.lower.kernel import Lowered


def unguarded_loads(lowered: Lowered, slot: int) -> int:
    """How many loads of a parameter run whatever the conditions say."""
    depth = found = 0
    for node in lowered.linear.src:
        depth += isinstance(node.op, If) - (node.op.name == "end_if")
        if isinstance(node.op, Load) and getattr(node.src[0].op, "slot", None) == slot and not depth:
            found += 1
    return found


@pytest.mark.parametrize("interpret", [False, True])
def test_an_arm_loads_nothing_where_another_arm_runs(interpret: bool) -> None:
    count = 50
    x = numbers((count,))
    out = np.zeros(count, np.float32)
    which = np.array([0] + [1] * (count - 1))
    k = Operands()
    counter = make(Range(1_000_000), const(dtypes.int64, count))
    source, target, arms = k.pointer(x), k.pointer(out), k.read(which)
    one = View.contiguous(dtypes.float32, ())
    here = mul(counter, const(dtypes.int64, 4))

    def at(pointer: Node, offset: int) -> Node:
        return window(one, pointer, add(here, const(dtypes.int64, offset)))

    first = make(BLOCK, store(at(target, 0), at(source, 0)))
    later = make(BLOCK, store(at(target, 0), add(mul(at(target, -4), const(dtypes.float32, 0.5)), at(source, 0))))
    selector = reshape(take(arms, reshape(counter, (1,))), ())
    lowered = run(k, make(FOR, counter, make(SWITCH, selector, first, later)), interpret=interpret)
    want = x.copy()
    for i in range(1, count):
        want[i] = want[i - 1] * np.float32(0.5) + x[i]
    np.testing.assert_array_equal(out, want)
    assert unguarded_loads(lowered, 1) == 0


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize("combine", ["set", "add", "max"])
@pytest.mark.parametrize("row", [(), (3,), (40,)])
def test_scatters_drop_positions_out_of_range(row: tuple[int, ...], combine: str, interpret: bool) -> None:
    places = np.array([2, -1, 5, 2, 7, 0, 9, 5])
    values = numbers((len(places), *row))
    out = numbers((6, *row), seed=1)
    want = out.copy()
    for place, value in zip(places, values, strict=True):
        if 0 <= place < 6:
            want[place] = {"set": value, "add": want[place] + value, "max": np.maximum(want[place], value)}[combine]
    k = Operands()
    target = k.read(out)
    lowered = run(k, make(StoreAt(combine), target, k.read(values), k.read(places)), interpret=interpret)
    np.testing.assert_array_equal(out, want)
    assert unguarded_loads(lowered, 0) == 0


@pytest.mark.parametrize("threads", [1, 4])
def test_a_total_is_computed_once_though_the_last_elements_are_under_a_condition(threads: int) -> None:
    x = np.ones(600_001, np.float32)
    out = np.zeros_like(x)
    k = Operands()
    value = k.read(x)
    lowered = run(
        k, k.write(out, add(value, expand(reshape(reduce("sum", value, (0,)), (1,)), x.shape))), threads=threads
    )
    np.testing.assert_array_equal(out, np.float32(600_002))
    assert sum(n.op.name == "across" for n in lowered.linear.src) == 1
    assert lowered.chunks == 1  # or each would compute the total
