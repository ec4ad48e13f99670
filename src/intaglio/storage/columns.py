"""Columns of holes: constant, affine in the digits of a loop's counter, or a table; found by whole-array analysis."""

from __future__ import annotations

import itertools
import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from intaglio.core.dtypes import DType, dtypes
from intaglio.ops.elementwise import add, cast, mul
from intaglio.ops.memory import const, iota
from intaglio.ops.movement import expand, reshape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from intaglio.ir.node import Node
    from intaglio.storage.skeleton import Hole

Integers: TypeAlias = "NDArray[np.int64]"
EXACT: Final = 1 << 53  # integers up to here are what they are as float64


@dataclass(frozen=True, slots=True)
class Nest:
    """A loop nest over n entries: the extents of its axes, outermost first (their product is n)."""

    extents: tuple[int, ...]

    @property
    def n(self) -> int:
        """How many entries the nest has."""
        count = 1
        for extent in self.extents:
            count *= extent
        return count


@dataclass(frozen=True, slots=True)
class Affine:
    """base + sum of coefficient * digit, one coefficient for each axis of the nest."""

    base: int | float
    coefficients: tuple[int | float, ...]

    @property
    def is_constant(self) -> bool:
        """Whether no digit matters."""
        return not any(self.coefficients)


def integers(values: Sequence[Hole] | Integers) -> Integers | None:
    """The values (none of them a bool) as 64-bit integers, or None where one is no integer or does not fit."""
    if isinstance(values, np.ndarray):
        return values
    try:
        # Unlike NumPy, `struct` takes no float for an integer; and it is the fastest way.
        return np.frombuffer(struct.pack(f"{len(values)}q", *values), np.int64)
    except struct.error:
        return None


def is_one_number(values: Sequence[Hole] | Integers) -> bool:
    """Whether all values are of one class and one number (0.0 and -0.0 are two)."""
    first, sign = values[0], math.copysign(1, values[0])
    return all(
        v is first or (v == first and v.__class__ is first.__class__ and (v or math.copysign(1, v) == sign))
        for v in values
    )


def periods(column: Integers) -> tuple[int, ...] | None:
    """The lengths after which an affine nest steps: () for a plain progression, None where there is no nest."""
    found: list[int] = []
    length = 1
    while len(column) > 2:
        steps = np.diff(column)
        breaks = np.flatnonzero(steps != steps[0])
        if not len(breaks):
            return tuple(found)
        inner = int(breaks[0]) + 1
        if inner < 2 or len(column) % inner:
            return None
        rows = column.reshape(-1, inner)
        if not (np.diff(rows, axis=1) == steps[0]).all():
            return None
        length *= inner
        found.append(length)
        column = rows[:, 0]
    return tuple(found)


def common_nest(n: int, columns: Sequence[Integers]) -> Nest:
    """A nest in which as many of the columns as possible are affine; the first columns come first."""
    chosen: list[int] = []
    for column in columns:
        wanted = periods(column)
        if wanted is None:
            continue
        merged = sorted({*chosen, *wanted})
        if all(b % a == 0 for a, b in zip(merged, [*merged[1:], n], strict=False)):
            chosen = merged
    bounds = [1, *chosen, n]
    extents = tuple(b // a for a, b in itertools.pairwise(bounds))
    return Nest(tuple(reversed([e for e in extents if e > 1] or [n])))


def affine(column: Integers, nest: Nest) -> Affine | None:
    """The column as an affine function of the nest's digits, if it is one (exactly)."""
    block = column.reshape(nest.extents)
    origin = (0,) * len(nest.extents)
    coefficients: list[int] = []
    predicted: Integers = np.full(nest.extents, block[origin], np.int64)
    for axis, extent in enumerate(nest.extents):
        step = 0
        if extent > 1:
            place = [0] * len(origin)
            place[axis] = 1
            step = int(block[tuple(place)]) - int(block[origin])
        if not fits_int64(step):
            return None
        coefficients.append(step)
        shape = [1] * len(nest.extents)
        shape[axis] = extent
        predicted = predicted + (np.arange(extent, dtype=np.int64) * step).reshape(shape)
    return Affine(int(block[origin]), tuple(coefficients)) if (predicted == block).all() else None


def fits_int64(value: int) -> bool:
    """Whether a Python integer fits 64 bits."""
    return -(1 << 63) <= value < 1 << 63


def affine_floats(column: NDArray[np.float64], nest: Nest, dtype: DType) -> Affine | None:
    """A float column as base + step * digit sums in float64 that round to the same bits in `dtype`, if so."""
    if dtype not in (dtypes.float32, dtypes.float64):
        return None
    kind = np.float32 if dtype is dtypes.float32 else np.float64
    block = column.reshape(nest.extents)
    origin = (0,) * len(nest.extents)
    coefficients: list[float] = []
    with np.errstate(all="ignore"):
        predicted = np.full(nest.extents, block[origin], np.float64)
        for axis, extent in enumerate(nest.extents):
            step = 0.0
            if extent > 1:
                place = [0] * len(origin)
                place[axis] = 1
                step = float(block[tuple(place)]) - float(block[origin])
            coefficients.append(step)
            shape = [1] * len(nest.extents)
            shape[axis] = extent
            if step:
                predicted = predicted + (np.arange(extent, dtype=np.float64) * step).reshape(shape)
        same = predicted.astype(kind).tobytes() == block.astype(kind).tobytes()
    if not same or not np.isfinite(block).all():
        constant = column.astype(kind)
        if constant.tobytes() == constant[:1].tobytes() * len(constant):
            return Affine(float(column[0]), (0.0,) * len(nest.extents))
        return None
    return Affine(float(block[origin]), tuple(coefficients))


def as_bytes(values: Sequence[Hole], dtype: DType) -> bytes:
    """The values in a dtype's bytes, each converted by its own class (so that 2**60 + 1 stays exact)."""
    floats = dtype in (dtypes.float32, dtypes.float64)
    if floats or dtype.is_int or dtype.is_unsigned:
        found = integers(values)
        if found is not None:
            return found.astype(dtype.numpy).tobytes()
    if floats and all(v.__class__ is float or -EXACT <= v <= EXACT for v in values):
        with np.errstate(all="ignore"):
            return np.fromiter(values, np.float64, len(values)).astype(dtype.numpy).tobytes()
    size = dtype.itemsize
    return b"".join(dtype.to_bits(dtype.wrap(v)).to_bytes(size, "little") for v in values)


def grid(form: Affine, nest: Nest, dtype: DType) -> Node:
    """An affine column as a node of the nest's shape (a scalar where it is constant), cast to `dtype`."""
    if form.is_constant:
        return const(dtype, form.base)
    exact = dtypes.float64 if isinstance(form.base, float) else dtypes.int64
    total = const(exact, form.base)
    for axis, (extent, step) in enumerate(zip(nest.extents, form.coefficients, strict=True)):
        if step:
            shape = tuple(extent if a == axis else 1 for a in range(len(nest.extents)))
            digit = expand(reshape(cast(iota(extent), exact), shape), nest.extents)
            total = add(total, mul(digit, const(exact, step)))
    return cast(total, dtype)
