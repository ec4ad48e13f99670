"""Groups of entries as statements of a program: views with the loop's axes in front, tables, sequential loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from intaglio.core.dtypes import DType, dtypes
from intaglio.engine import realize as engine
from intaglio.ir.node import Node, make
from intaglio.ir.view import View
from intaglio.ops.elementwise import add, cast, floor_div, ge, mod, mul, sub
from intaglio.ops.loop import Range
from intaglio.ops.memory import buffer, const, iota, take, window
from intaglio.ops.movement import expand, reshape
from intaglio.schedule.program import Repeat, Write
from intaglio.storage.batch import batch
from intaglio.storage.columns import (
    Affine,
    Integers,
    Nest,
    affine,
    affine_floats,
    as_bytes,
    common_nest,
    fits_int64,
    grid,
    integers,
    is_one_number,
)
from intaglio.storage.skeleton import NumberStep, OpStep, Pattern
from intaglio.storage.writes import Kind, Run

if TYPE_CHECKING:
    from intaglio.ops.memory import BufferRef
    from intaglio.storage.reroll import Sequential
    from intaglio.storage.skeleton import Leaf, ReadStep
    from intaglio.storage.storage import Storage
    from intaglio.storage.writes import Column

_axes: Final = itertools.count(1_000_000)  # numbers of the counters of sequential loops, apart from lowering's own
FEW_CHANGES: Final = 2  # changes of the arm that runs up to which turns are compared with each

Reader = Callable[["Storage", View], Node]  # the value of a view of a storage as of the group's start


def table(values: Column, dtype: DType, device: str) -> BufferRef:
    """A constant buffer of numbers."""
    data = values.astype(dtype.numpy).tobytes() if isinstance(values, np.ndarray) else as_bytes(values, dtype)
    return engine.from_bytes(data, device, table=True)


def flat(view_dtype: DType, nbytes: int, offset: int) -> View:
    """All elements of a storage on the grid that `offset` lies on."""
    rest = offset % view_dtype.itemsize
    return View.contiguous(view_dtype, ((nbytes - rest) // view_dtype.itemsize,), rest)


def _within(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Node | None:
    """The element offsets of a region's positions from its first, or None for one element."""
    total: Node | None = None
    for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        place = tuple(extent if a == axis else 1 for a in range(len(shape)))
        steps = mul(expand(reshape(iota(extent), place), shape), const(dtypes.int64, stride // itemsize))
        total = steps if total is None else add(total, steps)
    return total


def positions(base: Node, axes: tuple[int, ...], shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> Node:
    """Element indices of shape `axes` + `shape`: a base for each entry, then the region's own steps."""
    inner = _within(shape, strides, item)
    if inner is None:
        return base if base.shape == axes else expand(base, axes)
    full = axes + shape
    inner = expand(reshape(inner, (1,) * len(axes) + shape), full)
    if base.shape == ():
        return add(inner, base)
    return add(expand(reshape(base, axes + (1,) * len(shape)), full), inner)


class Whole:
    """One run as a whole-array write, with the forms of its columns."""

    def __init__(self, run: Run, read: Reader, ref: BufferRef) -> None:
        """Find the nest that suits the run's columns.

        Args:
            run: Entries of one kind, no two of which write one place.
            read: Gives the value of a view of a storage as of the group's start.
            ref: The buffer of the storage that is written.
        """
        self.run: Final = run
        self.read: Final = read
        self.ref: Final = ref
        kind = run.kind
        self.offsets: Final[Integers] = run.offsets
        self.n: Final = len(self.offsets)
        self.columns: Final[dict[int, Column]] = {}
        self.whole: Final[dict[int, Integers]] = {}
        hole = 0
        for step in kind.pattern.steps:
            if isinstance(step, OpStep):
                continue
            self.columns[hole] = run.column(hole)
            found = None if step.dtype.is_bool and isinstance(step, NumberStep) else integers(self.columns[hole])
            if found is not None:
                self.whole[hole] = found
            hole += step.holes
        self.nest: Final = common_nest(self.n, [self.offsets, *self.whole.values()])

    def write(self) -> Write:
        """The statement: a view with the nest's axes in front, or a scatter through a table of positions."""
        kind = self.run.kind
        axes = self.nest.extents
        value = batch(kind.pattern, axes, self._leaf)
        form = affine(self.offsets, self.nest)
        if form is not None:
            view = View(kind.dtype, axes + kind.shape, _ints(form) + kind.strides, int(form.base))
            if not view.has_internal_overlap():
                return Write(self.ref, view, value)
        view = flat(kind.dtype, self.ref.nbytes, int(self.offsets[0]))
        item = kind.dtype.itemsize
        base = self._table((self.offsets - view.offset) // item)
        index = positions(base, axes, kind.shape, kind.strides, item)
        return Write(self.ref, view, value, indices=(index,))

    def _table(self, values: Column, dtype: DType = dtypes.int64) -> Node:
        """A constant of the nest's shape."""
        ref = table(values, dtype, self.ref.device)
        return window(View.contiguous(dtype, self.nest.extents), buffer(ref))

    def _leaf(self, step: Leaf, hole: int) -> tuple[Node, bool]:
        """A read or number of the pattern for all entries, and whether it has the nest's axes."""
        if isinstance(step, NumberStep):
            return self._number(step, hole)
        storage = step.storage
        offsets = self.whole[hole]
        form = affine(offsets, self.nest)
        if form is not None:
            if form.is_constant:
                return self.read(storage, View(step.dtype, step.shape, step.strides, int(form.base))), False
            view = View(step.dtype, self.nest.extents + step.shape, _ints(form) + step.strides, int(form.base))
            return self.read(storage, view), True
        view = flat(step.dtype, storage.nbytes, int(offsets[0]))
        item = step.dtype.itemsize
        base = self._table((offsets - view.offset) // item)
        index = positions(base, self.nest.extents, step.shape, step.strides, item)
        return take(self.read(storage, view), index), True

    def _number(self, step: NumberStep, hole: int) -> tuple[Node, bool]:
        """A number of the pattern: a constant, an affine grid, or a table."""
        values = self.columns[hole]
        form = number_form(values, self.whole.get(hole), self.nest, step.dtype)
        if form is None:
            return self._table(values, step.dtype), True
        node = grid(form, self.nest, step.dtype)
        return node, node.shape != ()


def number_form(values: Column, whole: Integers | None, nest: Nest, dtype: DType) -> Affine | None:
    """How a column of numbers follows from the nest's digits in a dtype, if it does exactly."""
    if is_one_number(values):
        return Affine(values[0], (0,) * len(nest.extents))
    if whole is not None:
        form = affine(whole, nest)
        if form is None or not (dtype.is_float and dtype not in (dtypes.float32, dtypes.float64)):
            return form
        return None
    if dtype.is_float and all(v.__class__ is float for v in values):
        return affine_floats(np.fromiter(values, np.float64, len(values)), nest, dtype)
    return None


def _ints(form: Affine) -> tuple[int, ...]:
    """The coefficients of a form of integers."""
    return tuple(int(c) for c in form.coefficients)


def counter(turns: int) -> Node:
    """The counter of a new loop."""
    return make(Range(next(_axes)), const(dtypes.int64, turns))


class Turns:
    """A sequential loop: each hole an expression of the counter."""

    def __init__(self, group: Sequential, home: Callable[[Storage], BufferRef]) -> None:
        """Make the counter.

        Args:
            group: The entries, by arm.
            home: The buffer of a storage, which must hold its value when the loop starts.
        """
        self.group: Final = group
        self.home: Final = home
        self.counter: Final = counter(group.count)
        self._before: Node | None = None

    def repeat(self) -> Repeat:
        """The statement."""
        arms = tuple(tuple(self._write(run) for run in arm) for arm in self.group.arms)
        return Repeat(self.counter, arms, self._selector() if self.group.selector is not None else None)

    def _selector(self) -> Node:
        """Which arm runs in a turn: by comparisons where that changes a few times, else by a table."""
        column = np.array(self.group.selector, np.int64)
        changes = np.flatnonzero(np.diff(column)) + 1
        if len(changes) > FEW_CHANGES:
            device = self.home(self.group.runs[0].kind.storage).device
            return self._lookup(column, dtypes.int64, device)
        total = const(dtypes.int64, int(column[0]))
        for turn in changes.tolist():
            after = cast(ge(self.counter, const(dtypes.int64, turn)), dtypes.int64)
            total = add(total, mul(after, const(dtypes.int64, int(column[turn] - column[turn - 1]))))
        return total

    def _write(self, run: Run) -> Write:
        """One write of the body."""
        kind = run.kind
        ref = self.home(kind.storage)

        def leaf(step: Leaf, hole: int) -> tuple[Node, bool]:
            """A read or number as an expression of the counter."""
            values = run.column(hole)
            if isinstance(step, NumberStep):
                return self._number(values, run, step.dtype, ref.device), False
            storage = step.storage
            base, offset = self._offset(values, run, step.dtype, ref.device)
            view = View(step.dtype, step.shape, step.strides, base)
            return window(view, buffer(self.home(storage)), offset), False

        base, offset = self._offset(run.offsets, run, kind.dtype, ref.device)
        return Write(
            ref, View(kind.dtype, kind.shape, kind.strides, base), batch(kind.pattern, (), leaf), offset=offset
        )

    def _progression(self, column: Integers, run: Run) -> tuple[int, int] | None:
        """(base, step) with column[k] = base + step * turn of entry k, for an arm that runs in some turns only."""
        turns = run.numbers
        step = 0
        if len(turns) > 1:
            step, rest = divmod(int(column[1]) - int(column[0]), int(turns[1] - turns[0]))
            if rest:
                return None
        base = int(column[0]) - step * int(turns[0])
        if not (fits_int64(step) and fits_int64(base)):
            return None
        return (base, step) if (column == base + step * turns).all() else None

    def _offset(self, values: Column, run: Run, dtype: DType, device: str) -> tuple[int, Node | None]:
        """The byte offset of an element as a number and an expression of the counter that is added to it.

        Both are whole elements: a progression that is so only in the turns that run this arm is a table.
        """
        column = integers(values)
        if column is None:
            raise TypeError("offsets are integers")
        found = self._progression(column, run)
        if found is not None and not any(place % dtype.itemsize for place in found):
            base, step = found
            return base, mul(self.counter, const(dtypes.int64, step)) if step else None
        node = self._digits(column, run)
        if node is not None:
            return node
        return 0, self._lookup(column, dtypes.int64, device)

    def _digits(self, column: Integers, run: Run) -> tuple[int, Node] | None:
        """A column over a nest of loops in a row of turns, by the digits of the counter; None where it is no nest."""
        turns = run.numbers
        if turns[-1] - turns[0] + 1 != len(turns):
            return None
        counter = self.counter if not turns[0] else sub(self.counter, const(dtypes.int64, int(turns[0])))
        nest = common_nest(len(column), [column])
        form = affine(column, nest)
        if form is None:
            return None
        total: Node | None = None
        weight = nest.n
        for extent, step in zip(nest.extents, _ints(form), strict=True):
            weight //= extent
            if step:
                digit = floor_div(counter, const(dtypes.int64, weight)) if weight > 1 else counter
                if weight * extent < nest.n:
                    digit = mod(digit, const(dtypes.int64, extent))
                term = mul(digit, const(dtypes.int64, step))
                total = term if total is None else add(total, term)
        return (int(form.base), total) if total is not None else None

    def _number(self, values: Column, run: Run, dtype: DType, device: str) -> Node:
        """A number as a constant, an affine expression of the counter, or a table."""
        first = values[0]
        if is_one_number(values):
            return const(dtype, first)
        column = None if dtype.is_bool else integers(values)
        narrow = dtype.is_float and dtype not in (dtypes.float32, dtypes.float64)
        if column is not None and not narrow:
            found = self._progression(column, run)
            if found is not None:
                return cast(add(mul(self.counter, const(dtypes.int64, found[1])), const(dtypes.int64, found[0])), dtype)
            nest = self._digits(column, run)
            if nest is not None:
                return cast(add(nest[1], const(dtypes.int64, nest[0])), dtype)
        return self._lookup(values, dtype, device)

    def _lookup(self, values: Column, dtype: DType, device: str) -> Node:
        """The element of a table, one for each turn of an arm, that belongs to this turn."""
        place = self.counter if len(values) == self.group.count else self._turn_of_arm(device)
        return take(window(View.contiguous(dtype, (len(values),)), buffer(table(values, dtype, device))), place)

    def _turn_of_arm(self, device: str) -> Node:
        """How often this turn's arm has run before: one table for all arms."""
        if self._before is None:
            before = np.zeros(self.group.count, np.int64)
            for arm in self.group.arms:
                before[arm[0].numbers] = np.arange(len(arm[0].numbers))
            self._before = self._lookup(before, dtypes.int64, device)
        return self._before


def whole_write(run: Run, read: Reader, ref: BufferRef) -> Write:
    """One run as a whole-array write."""
    return Whole(run, read, ref).write()


def copies(step: ReadStep, target: Storage, places: Integers, offsets: Integers, stamps: Integers) -> Run:
    """A run that copies what a read sees, at each of some offsets and stamps, to places of another storage."""
    whole = View.contiguous(step.dtype, step.shape)
    kind = Kind(target, step.dtype, step.shape, whole.strides, Pattern((step,)), ((step, 0),))
    numbers = np.arange(len(places))
    return Run(kind, numbers, numbers, places, [offsets, stamps])
