"""Nodes: equal ones are one object, however they are made."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import InternalError
from intaglio.ir import node as node_module
from intaglio.ir.node import living, make, make_known
from intaglio.ops.composite import MATMUL
from intaglio.ops.elementwise import ADD, EXP
from intaglio.ops.memory import BufferRef, const
from intaglio.ops.movement import expand


def test_a_node_whose_result_is_known_is_the_one_that_make_gives() -> None:
    x, y = (expand(const(dtypes.float32, n), shape) for n, shape in ((1.0, (2, 3)), (2.0, (3, 4))))
    first = make(MATMUL, x, y)
    assert make_known(MATMUL, (x, y), *MATMUL.infer(x, y)) is first
    assert (first.dtype, first.shape, first.src) == (dtypes.float32, (2, 4), (x, y))
    del first
    before = living()
    again = make_known(MATMUL, (x, y), *MATMUL.infer(x, y))
    assert (living() - before, make(MATMUL, x, y) is again) == (1, True)


def test_inputs_that_do_not_fit_are_an_error() -> None:
    x, y = expand(const(dtypes.float32, 1.0), (2, 3)), expand(const(dtypes.int32, 1), (2, 3))
    with pytest.raises(InternalError, match="matmul: float32"):
        make(MATMUL, x, x)
    with pytest.raises(InternalError, match="add: operands are float32 and int32"):
        make(ADD, x, y)


def test_a_buffer_is_printed_under_one_number() -> None:
    refs = [BufferRef(8, "CPU") for _ in range(3)]
    shown = [repr(ref) for ref in refs]
    assert shown == [repr(ref) for ref in refs]
    assert len({*shown}) == 3
    del refs[0]
    assert repr(BufferRef(8, "CPU")) not in shown


def test_what_another_thread_puts_in_the_place_of_a_dead_node_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    x = const(dtypes.float64, 3.0)
    make(EXP, x)  # and let go of
    key = (EXP, id(x))
    entry = node_module._Entry(x, node_module._bury)
    entry.key = key

    class Between(dict[Any, Any]):
        """A table in which another thread puts an entry right after this one has looked."""

        meanwhile: ClassVar[list[Any]] = [entry, None]

        def get(self, wanted: Any, default: Any = None) -> Any:
            found = super().get(wanted, default)
            if wanted == key and self.meanwhile:
                after = self.meanwhile.pop(0)
                self.pop(wanted)
                if after is not None:
                    self[wanted] = after
            return found

    table = Between(node_module._table)
    monkeypatch.setattr(node_module, "_table", table)
    node_module.drain()
    assert table[key] is entry  # that is no dead one's
    node_module._dead.append(entry)
    node_module.drain()  # now it is gone once it has been looked at
    assert key not in table
