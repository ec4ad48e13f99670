"""A nest of loops as a statement: in order along some of its axes, whole arrays along the others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from intaglio.core.dtypes import dtypes
from intaglio.ir.view import View
from intaglio.ops.elementwise import add, cast, floor_div, mod, mul
from intaglio.ops.memory import buffer, const, iota, take, window
from intaglio.ops.movement import expand, reshape
from intaglio.schedule.program import Repeat, Write
from intaglio.storage.batch import batch
from intaglio.storage.build import Turns, counter, flat, number_form, positions, table
from intaglio.storage.columns import Affine, affine, integers
from intaglio.storage.nests import order_of, parts_of
from intaglio.storage.skeleton import NumberStep

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node
    from intaglio.ops.memory import BufferRef
    from intaglio.storage.columns import Integers
    from intaglio.storage.nests import Order
    from intaglio.storage.reroll import Sequential
    from intaglio.storage.skeleton import Leaf, ReadStep
    from intaglio.storage.storage import Storage
    from intaglio.storage.writes import Column, Run


def loops(group: Sequential, home: Callable[[Storage], BufferRef]) -> list[Repeat]:
    """Writes that depend on one another as statements: nests where they are that, else one loop, turn after turn.

    Args:
        home: The buffer of a storage, which must hold its value when the loop starts.
    """
    parts = parts_of(group)
    orders = [order_of(part) for part in parts]
    if not any(orders):
        return [Turns(group, home).repeat()]
    made = [
        Turns(part, home).repeat() if order is None else _Nested(part, order, home).repeat()
        for part, order in zip(parts, orders, strict=True)
    ]
    return [made[0], *(replace(repeat, joined=True) for repeat in made[1:])]


class _Nested:
    """A nest: each hole an expression of the counter of turns, and of the place among the lanes."""

    def __init__(self, group: Sequential, order: Order, home: Callable[[Storage], BufferRef]) -> None:
        extents = order.nest.extents
        self.group: Final = group
        self.order: Final = order
        self.home: Final = home
        self.lanes: Final = tuple(extents[a] for a in order.lanes)
        self.turns: Final = order.count
        self.counter: Final = counter(self.turns)
        self.digits: Final = dict(zip(order.turns, self._digits(), strict=True))

    def repeat(self) -> Repeat:
        """The statement."""
        return Repeat(self.counter, (tuple(self._write(run) for run in self.group.runs),), None, self.order.free)

    def _digits(self) -> list[Node]:
        """The place of a turn along each axis that runs in order."""
        found: list[Node] = []
        weight = self.turns
        for axis in self.order.turns:
            extent = self.order.nest.extents[axis]
            weight //= extent
            digit = floor_div(self.counter, const(dtypes.int64, weight)) if weight > 1 else self.counter
            found.append(mod(digit, const(dtypes.int64, extent)) if weight * extent < self.turns else digit)
        return found

    def _write(self, run: Run) -> Write:
        """One write of the body."""
        kind = run.kind
        ref = self.home(kind.storage)

        def leaf(step: Leaf, hole: int) -> tuple[Node, bool]:
            """A read or number, and whether it differs from lane to lane."""
            if isinstance(step, NumberStep):
                return self._number(run.column(hole), step.dtype, ref.device)
            return self._read(step, run.whole(hole), ref.device)

        form = affine(run.offsets, self.order.nest)
        assert form is not None
        view = View(kind.dtype, self.lanes + kind.shape, self._apart(form) + kind.strides, int(form.base))
        return Write(ref, view, batch(kind.pattern, self.lanes, leaf), offset=self._start(form))

    def _apart(self, form: Affine) -> tuple[int, ...]:
        """How far apart the lanes are."""
        return tuple(int(form.coefficients[a]) for a in self.order.lanes)

    def _start(self, form: Affine) -> Node | None:
        """What a turn adds to the place of its first lane."""
        total: Node | None = None
        for axis, digit in self.digits.items():
            step = int(form.coefficients[axis])
            if step:
                term = mul(digit, const(dtypes.int64, step))
                total = term if total is None else add(total, term)
        return total

    def _read(self, step: ReadStep, column: Integers, device: str) -> tuple[Node, bool]:
        """A read of the pattern: a view, or (of a storage that the nest does not write) by a table of positions."""
        source = buffer(self.home(step.storage))
        form = affine(column, self.order.nest)
        if form is not None:
            apart = self._apart(form)
            start = self._start(form)
            if not any(apart):
                return window(View(step.dtype, step.shape, step.strides, int(form.base)), source, start), False
            view = View(step.dtype, self.lanes + step.shape, apart + step.strides, int(form.base))
            return window(view, source, start), True
        view = flat(step.dtype, step.storage.nbytes, int(column[0]))
        item = step.dtype.itemsize
        base = self._table((column - view.offset) // item, dtypes.int64, device)
        return take(window(view, source), positions(base, self.lanes, step.shape, step.strides, item)), True

    def _number(self, values: Column, dtype: DType, device: str) -> tuple[Node, bool]:
        """A number of the pattern: a constant, an affine expression, or a table."""
        nest = self.order.nest
        whole = None if dtype.is_bool else integers(values)
        form = number_form(values, whole, nest, dtype)
        if form is None:
            return self._table(values, dtype, device), True
        if form.is_constant:
            return const(dtype, form.base), False
        exact = dtypes.float64 if isinstance(form.base, float) else dtypes.int64
        lead = {a: n for n, a in enumerate(self.order.lanes)}
        total = const(exact, form.base)
        for axis, (extent, step) in enumerate(zip(nest.extents, form.coefficients, strict=True)):
            if not step:
                continue
            digit = self.digits.get(axis)
            if digit is None:
                shape = tuple(extent if n == lead[axis] else 1 for n in range(len(self.lanes)))
                digit = expand(reshape(iota(extent), shape), self.lanes)
            term = mul(cast(digit, exact), const(exact, step))
            total = add(total, term)
        return cast(total, dtype), total.shape != ()

    def _table(self, values: Column, dtype: DType, device: str) -> Node:
        """The part of a table that belongs to a turn: one number for each lane."""
        nest = self.order.nest
        order = np.arange(nest.n).reshape(nest.extents).transpose(self.order.turns + self.order.lanes).ravel()
        ordered = values[order] if isinstance(values, np.ndarray) else [values[k] for k in order.tolist()]
        view = View.contiguous(dtype, self.lanes)
        start = mul(self.counter, const(dtypes.int64, view.nbytes))
        return window(view, buffer(table(ordered, dtype, device)), start)
